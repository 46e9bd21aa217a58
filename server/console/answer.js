/* Shows the answer of a run: the time of each stage, and each output as a table, a heat map, an
 * image, a histogram or classes. */

function showAnswer(tree, timing, milliseconds) {
  const stages = [...(timing ?? "").matchAll(/(\w+);dur=([\d.]+)/g)]
    .map(([, name, duration]) => [name, Number(duration)]);
  const total = stages.find(([name]) => name === "total")?.[1];
  $("answered").textContent = "Answered" +
    (total === undefined ? "" : " in " + timeText(total / 1e3)) + " by " +
    kernelsText(tree.parameters.kernel) + ", version " + tree.model_version +
    "; with the way there and back " + timeText(milliseconds / 1e3) + ".";
  $("stages").replaceChildren(stageTable(stages));
  $("outputs").replaceChildren(...tree.outputs.map(showOutput));
  $("nodes").replaceChildren(...nodeTable(tree.parameters.profile ?? []));
  showTimes(tree.parameters.profile ?? []);
}

const KERNELS_SHOWN_MAX = 3;

/* Shortens the kernels of a network, which may have dozens. The table of nodes has them all. */
function kernelsText(kernel) {
  const all = kernel.split("+"), more = all.length - KERNELS_SHOWN_MAX;
  return all.slice(0, KERNELS_SHOWN_MAX).join("+") + (more > 0 ? " and " + more + " more" : "");
}

const NODE_ROWS_MAX = 500;

/* Shows the time of each node that ran, in the order in which they ran. Of very many nodes, shows
 * those that took longest. Long names come last, so that they push no bar out of sight. Returns a
 * list, which is empty if the answer has no profile. */
function nodeTable(profile) {
  if (profile.length === 0) return [];
  const times = profile.map(({ns}) => ns).sort((a, b) => b - a);
  const all = times.reduce((sum, ns) => sum + ns, 0), least = times[NODE_ROWS_MAX - 1] ?? 0;
  const shown = profile.filter(({ns}) => ns >= least).slice(0, NODE_ROWS_MAX);
  const caption = "Time of each node, together " + timeText(all / 1e9) +
    (shown.length < profile.length
      ? "; the slowest " + shown.length + " of " + profile.length + " nodes" : "");
  const heads = ["Node", "Time", "Share", "Name", "Operator", "Kernel"];
  return [h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes"},
    h("table", {class: "facts"}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...heads.map((text) =>
        h("th", {scope: "col", class: "text"}, text)))),
      h("tbody", {}, ...shown.map(({index, name, operator, kernel, ns}) =>
        h("tr", {}, h("th", {scope: "row"}, String(index)), h("td", {}, timeText(ns / 1e9)),
          h("td", {class: "wide"}, bar(0, ns / (times[0] || 1))), h("td", {}, name ?? ""),
          h("td", {}, operator), h("td", {}, kernel))))))];
}

function stageTable(stages) {
  const parts = stages.filter(([name]) => name !== "total");
  const all = parts.reduce((sum, [, duration]) => sum + duration, 0) || 1;
  let at = 0;
  return h("table", {class: "facts"}, h("caption", {}, "Where the server's time went"),
    h("thead", {}, h("tr", {}, ...["Stage", "Time", "Share"].map((name) =>
      h("th", {scope: "col", class: "text"}, name)))),
    h("tbody", {}, ...parts.map(([name, duration]) => {
      const begin = at / all;
      at += duration;
      return h("tr", {}, h("th", {scope: "row"}, name), h("td", {}, timeText(duration / 1e3)),
               h("td", {class: "wide"}, bar(begin, at / all)));
    })));
}

const VIEWS = {"Table": tableView, "Heat map": heatView, "Image": imageView,
               "Histogram": (output) => histogram(output.values), "Classes": classesView};

function showOutput(output, index) {
  const {name, datatype, shape, values} = output;
  const title = h("h4", {}, name + ": " + datatype + " [" + shape.join(", ") + "]");
  if (values === null)
    return h("div", {}, title, h("p", {}, "Too many packed bytes to show."));
  if (values.length === 0) return h("div", {}, title, h("p", {}, "No elements."));
  const view = h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": name});
  const choices = Object.keys(VIEWS).map((label, i) => {
    const id = "view-" + index + "-" + i;
    const radio = h("input", {type: "radio", name: "view-" + index, id, value: label,
                              onchange: () => view.replaceChildren(VIEWS[label](output))});
    return [radio, h("label", {class: "check", for: id}, radio, label)];
  });
  const last = shape.at(-1) ?? 1;
  const start = output.isOfImage && isVector(shape) ? "Classes"
    : shape.length > 1 && last > 15 && values.length / last > 7 ? "Heat map" : "Table";
  choices[Object.keys(VIEWS).indexOf(start)][0].checked = true;
  view.append(VIEWS[start](output));
  return h("div", {}, title,
    h("div", {class: "row", role: "radiogroup", "aria-label": "Show " + name + " as"},
      ...choices.map(([, label]) => label)), view);
}

const ROWS_MAX = 200, COLUMNS_MAX = 64;

/* Shows a row for each run of the last dimension, with its indices in the other dimensions. */
function tableView({name, shape, values, data}) {
  const width = shape.at(-1) ?? 1, rows = values.length / width;
  const columns = Math.min(width, COLUMNS_MAX), shown = Math.min(rows, ROWS_MAX);
  const place = (row) => {
    const at = [];
    for (let d = shape.length - 2; d >= 0; d--) {
      at.unshift(row % shape[d]);
      row = Math.floor(row / shape[d]);
    }
    return "[" + at.join(", ") + "]";
  };
  const left = shown < rows || columns < width
    ? "the first " + shown + " of " + rows + " rows, " + columns + " of " + width + " columns" : "";
  return h("table", {}, left ? h("caption", {}, name + ": " + left) : "",
    h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "at"),
      ...Array.from({length: columns}, (_, i) => h("th", {scope: "col"}, String(i))))),
    h("tbody", {}, ...Array.from({length: shown}, (_, row) =>
      h("tr", {}, h("th", {scope: "row"}, place(row)),
        ...Array.from({length: columns}, (_, i) =>
          h("td", {}, String((data ?? values)[row * width + i])))))));
}

/* Returns how the output divides into planes of its last two dimensions. A single long row is
 * broken into several. */
function planeOf({shape, values}) {
  let columns = shape.at(-1) ?? 1, rows = shape.at(-2) ?? 1;
  if (rows === 1 && columns > 256) {
    columns = Math.ceil(Math.sqrt(columns));
    rows = Math.ceil(values.length / columns);
  }
  return {rows, columns, planes: Math.max(1, Math.floor(values.length / (rows * columns)))};
}

/* Shows draw(plane) for one plane, and a field that chooses the plane. */
function withPlanes(planes, label, draw) {
  const place = h("div", {}, draw(0));
  if (planes === 1) return place;
  const number = h("input", {type: "number", min: 0, max: planes - 1, value: 0});
  number.addEventListener("input", () => {
    const plane = Number(number.value);
    if (plane >= 0 && plane < planes) place.replaceChildren(draw(Math.floor(plane)));
  });
  return h("div", {}, h("label", {}, label + " of " + planes + " ", number), place);
}

function heatView(output) {
  const {rows, columns, planes} = planeOf(output), {min, max} = range(output.values);
  const scale = "from " + round(min) + " (dark) to " + round(max) + " (light)";
  return h("div", {}, withPlanes(planes, "Plane", (plane) =>
    picture(rows, columns, (i) => {
      const value = output.values[plane * rows * columns + i];
      return Number.isFinite(value) ? heat((value - min) / (max - min || 1)) : [128, 128, 128];
    }, "Heat map of " + output.name + ", " + rows + " by " + columns + ", " + scale)),
  h("p", {class: "hint"}, scale + (output.values.length < rows * columns ? ", padded" : "")));
}

/* Shows colours if a dimension that holds the channels of images is 3, otherwise gray. */
function imageView(output) {
  const {shape, values} = output, {min, max} = range(values);
  const bytes = output.datatype === "UINT8";
  const level = (value) => (bytes ? value : 255 * (value - min) / (max - min || 1));
  let {rows, columns, planes} = planeOf(output);
  let color = (plane, i) => new Array(3).fill(level(values[plane * rows * columns + i]));
  if (shape.length > 2 && shape.at(-1) === 3) {
    [rows, columns] = [shape.at(-3), shape.at(-2)];
    planes = values.length / (3 * rows * columns);
    color = (plane, i) => [0, 1, 2].map((c) => level(values[3 * (plane * rows * columns + i) + c]));
  } else if (shape.length > 2 && shape.at(-3) === 3) {
    planes /= 3;
    color = (plane, i) => [0, 1, 2].map((c) =>
      level(values[(3 * plane + c) * rows * columns + i]));
  }
  return h("div", {}, withPlanes(planes, "Image", (plane) =>
    picture(rows, columns, (i) => color(plane, i),
            output.name + " as an image, " + rows + " by " + columns)),
  bytes ? "" : h("p", {class: "hint"}, round(min) + " is black, " + round(max) + " is white"));
}

/* ---- Classes ---- */

const CLASSES = 5, CLASS_ROWS_MAX = 40;

/* Returns whether all dimensions behind the first are 1, but for one. */
const isVector = (shape) => shape.slice(1).filter((size) => size !== 1).length === 1;

/* Shows the greatest elements of each row, with the names of their classes. Only the server knows
 * the names, so the request is sent again. */
function classesView(output) {
  const place = h("div", {role: "status"}, "Asking for the classes …");
  output.askClasses(output.name, CLASSES).then(
    (classes) => place.replaceChildren(classTable(output, classes)),
    (error) => { place.textContent = error.message; });
  return place;
}

function classTable({name, values}, {shape, data}) {
  const kept = shape.at(-1), rows = data.length / kept, shown = Math.min(rows, CLASS_ROWS_MAX);
  const {min, max} = range(values), least = Math.min(0, min), most = Math.max(least + 1, max);
  const heads = [...(rows > 1 ? ["Row"] : []), "Class", "Name", "Value", "Share"];
  return h("table", {class: "facts"},
    h("caption", {}, "The greatest elements of " + name +
      (shown < rows ? ", the first " + shown + " of " + rows + " rows" : "")),
    h("thead", {}, h("tr", {}, ...heads.map((text) =>
      h("th", {scope: "col", class: "text"}, text)))),
    h("tbody", {}, ...data.slice(0, shown * kept).map((text, i) => {
      const [, value, index, label] = /^([^:]*):(\d+):?(.*)$/s.exec(text);
      const share = Number.isFinite(Number(value)) ? (Number(value) - least) / (most - least) : 0;
      return h("tr", {}, rows > 1 ? h("td", {}, String(Math.floor(i / kept))) : "",
               h("td", {}, index), h("td", {}, label), h("td", {}, value),
               h("td", {class: "wide"}, bar(0, Math.min(1, Math.max(0, share)))));
    })));
}
