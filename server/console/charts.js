/* Draws figures: small charts over time, bars, histograms, tensors as pictures. Each figure is also
 * described in words, as its label or beside it. */

/* Draws lines over time. `series` are lists of numbers, the newest last; NaN: no number. */
function lineChart(label, series, pointCount) {
  const width = 300, height = 80;
  const most = Math.max(1e-9, ...series.flat().filter(Number.isFinite));
  const x = (i, list) => width * (i + pointCount - list.length) / (pointCount - 1);
  const y = (value) => height - 4 - (height - 12) * value / most;
  const chart = svg("svg", {viewBox: "0 0 " + width + " " + height, role: "img",
                            "aria-label": label});
  chart.append(svg("path", {class: "base", d: "M0 " + (height - 4) + "H" + width}));
  series.forEach((list, which) => {
    let path = "", down = false;
    list.forEach((value, i) => {
      if (Number.isFinite(value)) {
        path += (down ? "L" : "M") + x(i, list).toFixed(1) + " " + y(value).toFixed(1);
        if (!down) path += "h.01"; /* a dot, if no line follows */
      }
      down = Number.isFinite(value);
    });
    if (which === 0 && path.split("M").length === 2) /* the line has no gap */
      chart.append(svg("path", {class: "area", d: path + "V" + (height - 4) + "H" +
                                                  /M([\d.]+)/.exec(path)[1] + "Z"}));
    chart.append(svg("path", {class: which === 0 ? "first" : "second", d: path,
                              "stroke-linecap": "round"}));
  });
  return chart;
}

/* Draws a bar from `begin` to `end`, as shares of its width. Its number is beside it. */
function bar(begin, end) {
  return svg("svg", {viewBox: "0 0 200 12", preserveAspectRatio: "none", height: 12,
                     "aria-hidden": "true"},
             svg("rect", {class: "bar", x: 200 * begin, y: 1, height: 10,
                          width: Math.max(1, 200 * (end - begin))}));
}

function range(values) {
  let min = Infinity, max = -Infinity, sum = 0, count = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    min = Math.min(min, value);
    max = Math.max(max, value);
    sum += value;
    count++;
  }
  return {min, max, mean: sum / count, count};
}

function histogram(values) {
  const {min, max, mean, count} = range(values);
  if (count === 0) return h("p", {}, "No finite value.");
  const binCount = 32, width = 320, height = 120;
  const bins = new Array(binCount).fill(0);
  for (const value of values)
    if (Number.isFinite(value))
      bins[Math.min(binCount - 1, Math.floor(binCount * (value - min) / (max - min || 1)))]++;
  const most = Math.max(...bins);
  const words = "minimum " + round(min) + ", mean " + round(mean) + ", maximum " + round(max) +
    (count < values.length ? "; not finite: " + (values.length - count) : "");
  const figure = svg("svg", {viewBox: "0 0 " + width + " " + height, role: "img",
                             "aria-label": "Histogram of " + count + " values: " + words});
  bins.forEach((bin, i) => figure.append(
    svg("rect", {class: "bar", x: i * width / binCount + 0.5, width: width / binCount - 1,
                 y: height - height * bin / most, height: height * bin / most})));
  return h("figure", {class: "plain"}, figure, h("figcaption", {class: "hint"}, words));
}

/* Dark blue, green, yellow. Their brightness differs, so they can be told apart without colours,
 * too. */
const HEAT = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function heat(share) {
  const at = Math.min(HEAT.length - 2, Math.floor(share * (HEAT.length - 1)));
  const part = share * (HEAT.length - 1) - at;
  return HEAT[at].map((low, i) => low + (HEAT[at + 1][i] - low) * part);
}

/* Draws a picture. `color(i)` returns the red, green and blue of pixel i. */
function picture(rows, columns, color, label) {
  const canvas = h("canvas", {role: "img", "aria-label": label});
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) image.data.set([...color(i), 255], 4 * i);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
