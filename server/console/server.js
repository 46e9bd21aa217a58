/* Shows what this server is and does: charts of /metrics, its models, its limits. */

const POINT_COUNT = 60, LOOK_MS = 2000;
const live = {looks: [], points: {}, rows: new Map(), start: 0, bytes: new Map(), told: "",
              offered: ""};

function addPoint(name, value) {
  const list = live.points[name] ??= [];
  list.push(value);
  if (list.length > POINT_COUNT) list.shift();
  return list;
}

/* ---- The four charts ---- */

function chart(title, parts, unit, format = round) {
  const words = parts.map(([label, list], i) => h("span", {},
    h("b", {class: i === 0 ? "first" : "second"},
      Number.isFinite(list.at(-1)) ? format(list.at(-1)) : "–"), " " + label + " "));
  const label = title + ", the last two minutes. " + parts.map(([name, list]) =>
    name + ": now " + (Number.isFinite(list.at(-1)) ? format(list.at(-1)) : "none") + ", most " +
    format(Math.max(0, ...list.filter(Number.isFinite)))).join("; ") + unit;
  return h("div", {class: "chart"}, h("h3", {}, title), h("p", {}, ...words),
           lineChart(label, parts.map(([, list]) => list), POINT_COUNT));
}

function drawCharts(look, before) {
  const now = sumModels(look), then = sumModels(before), {gauges} = look;
  const seconds = look.time - before.time;
  const good = addPoint("good", (now.good - then.good) / seconds);
  const bad = addPoint("bad", (now.bad - then.bad) / seconds);
  const p50 = addPoint("p50", quantile(0.5, now.total, then.total));
  const p99 = addPoint("p99", quantile(0.99, now.total, then.total));
  const waiting = addPoint("waiting", gauges.quantd_queue_length);
  const busy = addPoint("busy", gauges.quantd_workers_busy);
  const resident = addPoint("resident", gauges.process_resident_memory_bytes);
  const models = addPoint("models", gauges.quantd_model_bytes + gauges.quantd_inflight_bytes);
  $("charts").replaceChildren(
    chart("Inferences per second", [["answered", good], ["refused", bad]], " per second"),
    chart("Time from first byte to answer", [["p50", p50], ["p99", p99]], "",
          (seconds) => boundedText(seconds, now.total)),
    chart("Queue of " + gauges.quantd_queue_length_max + ", workers " + gauges.quantd_workers,
          [["waiting", waiting], ["workers busy", busy]], ""),
    chart("Memory", [["in RAM", resident], ["models, requests", models]], "", bytesText));
}

/* ---- Models ---- */


function modelRow(key, name, version, loaded) {
  const cells = Array.from({length: STAGES.length + 3}, () => h("td"));
  cells[0].className = "text";
  const unload = h("button", {onclick: () => unloadModel(name), "aria-label": "Unload " + name},
                   "Unload");
  const row = h("tr", {}, h("th", {scope: "row"}, name + " " + version), ...cells,
                h("td", {}, loaded ? unload : ""));
  const kept = {row, cells};
  live.rows.set(key, kept);
  return kept;
}

/* Returns a time as text. A time in the first bucket is only known to be at most its bound. */
function boundedText(seconds, buckets) {
  return (seconds === buckets?.[0]?.[0] ? "≤ " : "") + timeText(seconds);
}

/* Updates the table in place, so that the focus and the reading position stay. */
function drawModels() {
  const look = live.looks.at(-1), span = Number($("span").value);
  if (look === undefined) return;
  const before = span === 0 ? undefined : live.looks[0];
  const since = span === 0 ? Date.now() / 1000 - look.gauges.process_start_time_seconds
    : look.time - before.time;
  const rows = [];
  for (const {name, version, state, reason} of play.index) {
    if (!version && BUILT_IN.test(name)) continue;
    const key = JSON.stringify([name, version]);
    const now = look.models.get(key), then = before?.models.get(key);
    const count = now ? now.good + now.bad - (then ? then.good + then.bad : 0) : 0;
    if (BUILT_IN.test(name) && count === 0) continue;
    const {row, cells} = live.rows.get(key) ?? modelRow(key, name, version, !BUILT_IN.test(name));
    const texts = [state + (reason ? ": " + reason : ""), live.bytes.get(key) ?? "",
                   since > 0 ? round(count / since) : "0",
                   ...STAGES.map((stage) => [0.5, 0.99].map((share) => boundedText(
                     quantile(share, now?.stages[stage], then?.stages[stage]), now?.stages[stage]))
                     .join(" / ").replace("– / –", "–"))];
    texts.forEach((text, i) => {
      if (cells[i].textContent !== text) cells[i].textContent = text;
    });
    rows.push(row);
  }
  const body = $("models").querySelector("tbody");
  const same = rows.length === body.children.length &&
    rows.every((row, i) => row === body.children[i]);
  if (!same) body.replaceChildren(...rows);
  $("models-note").textContent = rows.length === 0
    ? "No model is loaded, and no operator has been requested."
    : "Loaded models, and the operators that were requested. Times are p50 / p99.";
}

function startModels() {
  const heads = ["Model", "State", "Bytes", "Requests/s", ...STAGES, "Unload"];
  const cells = heads.map((text, i) =>
    h("th", {scope: "col", class: i < 2 ? "text" : undefined}, text));
  $("models").append(h("table", {"aria-describedby": "models-note"},
                       h("thead", {}, h("tr", {}, ...cells)), h("tbody")));
  $("span").addEventListener("change", drawModels);
  $("load").addEventListener("submit", loadModel);
  $("load-file").addEventListener("change", () => offerLoad(""));
}

/* Reads the sizes of loaded models from their metadata, which does not change while a model is
 * loaded. */
async function findBytes() {
  live.bytes.clear();
  const loaded = play.index.filter(({name, state}) => state === "READY" && !BUILT_IN.test(name));
  for (const {name, version} of loaded.slice(0, 64)) {
    const {properties} = await askJson("GET", modelPath(name, version));
    live.bytes.set(JSON.stringify([name, version]), bytesText(Number(properties.bytes)));
  }
}

const modelAmong = (files) =>
  [...files].find(({name}) => name.endsWith(".onnx")) ?? files[0];

function offerLoad(text) {
  const file = modelAmong($("load-file").files), name = $("load-name");
  if (file && ["", live.offered].includes(name.value)) /* keep a name that the user has typed */
    name.value = live.offered = file.name.replace(/\.onnx$/, "");
  if (text !== "") $("loaded").textContent = text;
  if (text !== "") $("load-name").focus();
}

function readBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
}

async function loadModel(event) {
  event.preventDefault();
  clearErrors($("load"));
  $("loaded").textContent = "";
  const name = $("load-name").value.trim(), {files} = $("load-file"), file = modelAmong(files);
  if (name === "") return showError($("load-name"), "Expected a name, got none.");
  if (file === undefined) return showError($("load-file"), "Expected a file, got none.");
  try {
    const parameters = {};
    for (const part of files) {
      const place = part === file ? "model.onnx" : part.name.replace(/.*\.txt$/, "labels.txt");
      parameters["file:1/" + place] = await readBase64(part);
    }
    const body = JSON.stringify({parameters});
    $("loaded").textContent = "Loading …";
    await ask("POST", "/v2/repository/models/" + encodeURIComponent(name) + "/load", body,
              {seconds: 120});
    $("loaded").textContent = name + " is loaded, and chosen in the playground.";
    await refresh();
    await chooseModel(name);
  } catch (error) {
    $("loaded").textContent = "";
    showError(/name/.test(error.message.split(":")[0]) ? $("load-name") : $("load-file"),
              error.message);
  }
}

async function unloadModel(name) {
  if (!confirm("Unload " + name + "? Requests for this model will then get an error.")) return;
  try {
    await ask("POST", "/v2/repository/models/" + encodeURIComponent(name) + "/unload");
    await refresh();
    $("loaded").textContent = name + " is unloaded.";
    $("load-name").focus();
  } catch (error) {
    $("load-error").textContent = error.message;
  }
}

/* ---- The machine and the flags ---- */

function facts(caption, rows) {
  return h("table", {class: "facts"}, h("caption", {}, caption), h("tbody", {},
    ...rows.map(([name, value]) =>
      h("tr", {}, h("th", {scope: "row"}, name), h("td", {}, value)))));
}

async function describeServer() {
  const {version, extensions, properties = {}} = await askJson("GET", "/v2");
  const {kernels = "", ...limits} = properties;
  const lines = [...kernels.matchAll(/^ {2}(.{17}) (.*)$/gm)].map(([, name, value]) =>
    [name.trim(), value]);
  const unit = (name, value) => (/bytes|rate/.test(name) && value > 0 ? bytesText(Number(value))
    : /timeout|secs/.test(name) ? value + " s" : value);
  $("server-version").textContent = version;
  $("server").replaceChildren(
    facts("The machine and its kernels", lines),
    facts("Flags and limits", [...Object.entries(limits).map(([name, value]) =>
      ["--" + name, unit(name, value)]), ["extensions", extensions.join(", ")]]));
  offerLoads(limits["model-control-mode"] ?? "explicit");
}

/* Shows what loads and unloads models, unless the server would refuse these calls. */
function offerLoads(mode) {
  const refused = mode !== "explicit";
  $("load").hidden = refused;
  $("models").classList.toggle("fixed", refused);
  $("load-hint").textContent = !refused ? ""
    : "This page can load and unload models if the server runs with --model-control-mode " +
      "explicit. It runs with " + mode + ".";
}

/* Updates what does not change by itself. */
async function refresh() {
  await describeServer();
  await listModels();
  await findBytes();
  drawModels();
}
