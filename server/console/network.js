/* Draws a loaded network: a box for each node with what became of it, and lines to the nodes that
 * read it. Layers follow each other downwards. The nodes are those of GET …/nodes. */

const BOX = {width: 184, height: 42, gapX: 16, gapY: 26, lane: 8};
const LANE_LAYERS_MAX = 64; /* the space beside boxes is kept for lines that are not longer */
const LANES_MAX = 16384;    /* places of such lines; more would take seconds to draw */
const ROW_BOXES_MAX = 24;   /* more nodes of one layer take several rows */
const RUNS = new Set(["operator", "table", "alias"]);

const network = {nodes: [], parts: [], times: new Map(), active: -1, boxes: new Map()};

/* ---- Which nodes, and where ---- */

/* Returns the nodes' indexes such that each comes after the nodes that it reads. Leaves out nodes
 * of a cycle: only nodes that no output needs can have one. */
function sortNodes(reads) {
  const readers = reads.map(() => []), missing = reads.map((list) => list.length);
  reads.forEach((list, i) => list.forEach((from) => readers[from].push(i)));
  const sorted = [...reads.keys()].filter((i) => missing[i] === 0);
  for (let at = 0; at < sorted.length; at++)
    for (const reader of readers[sorted[at]])
      if (--missing[reader] === 0) sorted.push(reader);
  return sorted;
}

/* Returns, for each node that requests compute, which of these nodes it reads. Other nodes have no
 * entry: a node behind the one whose part it is stands for that one, and the rest for what they
 * read. */
function foldReads(nodes, reads) {
  const sources = [], folded = new Map();
  for (const i of sortNodes(reads)) {
    const {fate, into} = nodes[i], found = new Set(reads[i].flatMap((from) => [...sources[from]]));
    if (RUNS.has(fate)) {
      folded.set(i, found);
      sources[i] = new Set([i]);
    } else if (found.has(into) && folded.has(into)) {
      found.delete(into);
      found.forEach((from) => { if (from !== into) folded.get(into).add(from); });
      sources[i] = new Set([into]);
    } else {
      sources[i] = fate === "planned" ? new Set() : found; /* a shape is no tensor */
    }
  }
  return folded;
}

/* Returns the layers: lists of places. A place is a node's, or keeps room for the line from one. */
function makeLayers(readsOf) {
  const indexes = [...readsOf.keys()], numbers = new Map(indexes.map((index, at) => [index, at]));
  const reads = indexes.map((index) => [...readsOf.get(index)].map((from) => numbers.get(from)));
  const sorted = sortNodes(reads), layerOf = indexes.map(() => 0), layers = [];
  for (const i of sorted)
    layerOf[i] = 1 + Math.max(-1, ...reads[i].map((from) => layerOf[from]));
  const first = indexes.map(() => Infinity), last = indexes.map(() => 0);
  reads.forEach((list, i) => list.forEach((from) => {
    first[from] = Math.min(first[from], layerOf[i]);
  }));
  reads.forEach((list, i) => { /* a node that reads none comes right before its reader */
    if (list.length === 0 && Number.isFinite(first[i])) layerOf[i] = first[i] - 1;
  });
  for (let longest = LANE_LAYERS_MAX, count = Infinity; count > LANES_MAX; longest /= 2) {
    last.fill(0);
    reads.forEach((list, i) => list.forEach((from) => {
      if (layerOf[i] - layerOf[from] <= longest) last[from] = Math.max(last[from], layerOf[i]);
    }));
    count = last.reduce((sum, layer, i) => sum + Math.max(0, layer - layerOf[i] - 1), 0);
  }
  const lanes = indexes.map(() => []), put = (layer, place) => (layers[layer] ??= []).push(place);
  for (const i of sorted) {
    const place = {index: indexes[i], width: BOX.width, above: [], below: [], x: 0};
    lanes[i][layerOf[i]] = place;
    put(layerOf[i], place);
    for (let layer = layerOf[i] + 1; layer < last[i]; layer++)
      put(layer, lanes[i][layer] = {width: BOX.lane, above: [], below: [], x: 0});
    for (let layer = layerOf[i] + 1; layer < last[i]; layer++)
      join(lanes[i][layer - 1], lanes[i][layer]);
  }
  reads.forEach((list, i) => list.forEach((from) => {
    join(lanes[from][layerOf[i] - 1] ?? lanes[from][layerOf[from]], lanes[i][layerOf[i]]);
  }));
  return layers;
}

function join(from, to) {
  from.below.push(to);
  to.above.push(from);
}

/* Gives a row's places their x, as near as possible to the mean of the places that they are joined
 * with in the row above or below. Nodes that read none, such as constants, move no other place. */
function alignRow(row, side) {
  const wanted = new Map(row.map((place) => {
    const moving = place[side].filter(({above}) => above.length > 0);
    const near = moving.length > 0 ? moving : place[side];
    return [place, near.length > 0 ? near.reduce((sum, {x}) => sum + x, 0) / near.length : place.x];
  }));
  row.sort((a, b) => wanted.get(a) - wanted.get(b));
  let end = -Infinity, shift = 0, count = 0;
  for (const place of row) {
    place.x = Math.max(wanted.get(place), end + place.width / 2);
    end = place.x + place.width / 2 + BOX.gapX;
    if (place.above.length === 0) continue;
    shift += place.x - wanted.get(place);
    count++;
  }
  for (const place of row) place.x -= shift / (count || 1);
}

/* Sets the x and y of all places: the middles of the boxes. Returns the size of the drawing. */
function placeAll(layers) {
  const rows = layers.flatMap((layer) => Array.from(
    {length: Math.ceil(layer.length / ROW_BOXES_MAX)},
    (_, i) => layer.slice(i * ROW_BOXES_MAX, (i + 1) * ROW_BOXES_MAX)));
  rows.forEach((row, y) => row.forEach((place) => { place.y = BOX.height / 2 + 2 +
                                                             y * (BOX.height + BOX.gapY); }));
  for (const side of ["above", "below", "above"])
    for (const row of side === "above" ? rows : rows.toReversed()) alignRow(row, side);
  const lefts = rows.flat().map(({x, width}) => x - width / 2);
  const least = lefts.reduce((a, b) => Math.min(a, b), Infinity) - 2;
  let width = 0;
  for (const place of rows.flat()) {
    place.x -= least;
    width = Math.max(width, place.x + place.width / 2 + 2);
  }
  return {rows, width, height: rows.length * (BOX.height + BOX.gapY)};
}

/* ---- The drawing ---- */

const shorten = (text, length) =>
  (text.length > length ? text.slice(0, length - 1) + "…" : text);

const nodeText = (index) => index + " " + (network.nodes[index]?.operator ?? "");

/* Returns what became of a node, in words. */
const fateText = ({fate, into}) => (fate === "operator" ? "computed" : fate.replaceAll("_", " ")) +
  (into === undefined ? "" : ({fused: " into ", cancelled: " with "}[fate] ?? " ") +
                             nodeText(into));

/* Returns a path from the lower end of one place to the upper end of another one, and through that
 * one if it is no box. */
function drawLine(from, to) {
  const y = from.y + BOX.height / 2, end = to.y - BOX.height / 2, bend = BOX.gapY;
  return "M" + from.x + " " + y + "C" + from.x + " " + (y + bend) + " " + to.x + " " +
    (end - bend) + " " + to.x + " " + end + (to.index === undefined ? "v" + BOX.height : "");
}

/* Returns which operators are a part of a node, except for those that all nodes have. */
function partsText(index) {
  const names = network.parts[index].map(({operator}) => operator)
    .filter((name) => !/QuantizeLinear$/i.test(name));
  return names.length === 0 ? "" : " with " + [...new Set(names)].join(", ");
}

function drawBox({index, x, y}) {
  const node = network.nodes[index], left = x - BOX.width / 2, top = y - BOX.height / 2;
  const box = svg("g", {class: "node", id: "node-" + index, role: "option", "data-fate": node.fate,
                        "aria-selected": "false"},
    svg("rect", {x: left, y: top, width: BOX.width, height: BOX.height, rx: 5}),
    svg("text", {class: "operator", x: left + 8, y: top + 16},
        shorten(index + " " + node.operator.replace(/.*\./, ""), 24)),
    svg("text", {x: left + 8, y: top + 31},
        " " + shorten(fateText(node) + partsText(index), RUNS.has(node.fate) ? 20 : 27)),
    svg("text", {class: "time", x: left + BOX.width - 8, y: top + 31}),
    svg("rect", {class: "bar", x: left + 1, y: top + BOX.height - 5, height: 4, width: 0}));
  box.addEventListener("pointerenter", () => showNode(index));
  box.addEventListener("click", () => activate(index));
  network.boxes.set(index, {box, x, y});
  return box;
}

function drawNetwork() {
  const every = $("every-node").checked, {nodes} = network;
  const reads = nodes.map((node) => [...new Set(node.reads)].filter((from) => from < nodes.length));
  const shown = every ? new Map(sortNodes(reads).map((i) => [i, new Set(reads[i])]))
    : foldReads(nodes, reads);
  const {rows, width, height} = placeAll(makeLayers(shown));
  network.boxes.clear();
  network.active = -1;
  const lines = rows.flat().flatMap((from) => from.below.map((to) => drawLine(from, to)));
  const figure = svg("svg", {viewBox: "0 0 " + width + " " + height, class: "network",
                             role: "listbox", tabindex: "0", "aria-label": "Nodes of the network"},
    svg("path", {class: "edges", d: lines.join("") || "M0 0"}),
    ...rows.flat().filter(({index}) => index !== undefined).map(drawBox));
  figure.style.width = width + "px"; /* 1:1; the box around it scrolls */
  figure.addEventListener("keydown", moveByKey);
  figure.addEventListener("focus", () => {
    if (network.active < 0 && network.boxes.size > 0) activate([...network.boxes.keys()][0]);
  });
  $("network").replaceChildren(figure);
  $("network").scrollTo((rows[0]?.[0].x ?? 0) - $("network").clientWidth / 2, 0);
  $("node").replaceChildren(h("p", {class: "hint"},
    "Point at a node, or go there with the arrow keys, to see more of it."));
  drawTimes();
}

/* Shows which share of a run's time each node took. */
function drawTimes() {
  const times = [...network.times.values()], all = times.reduce((sum, ns) => sum + ns, 0) || 1;
  const most = times.reduce((a, b) => Math.max(a, b), 1);
  for (const [index, {box}] of network.boxes) {
    const ns = network.times.get(index);
    box.querySelector(".bar").setAttribute("width", (BOX.width - 2) * (ns ?? 0) / most);
    box.querySelector(".time").textContent = ns === undefined ? ""
      : " " + (100 * ns / all).toFixed(1) + " %";
  }
}

/* ---- One node ---- */

function showNode(index) {
  const node = network.nodes[index], ns = network.times.get(index);
  const rows = [["Node", String(index)], ["Name", node.name], ["Operator", node.operator],
                ["Became", fateText(node)], ["Runs as", node.runs_as], ["Kernel", node.kernel],
                ["Multiplications", node.multiplications?.toLocaleString("en")],
                ["Reads", node.reads.map(nodeText).join(", ")],
                ["Parts", network.parts[index]
                  .map((part) => nodeText(part.index)).join(", ")],
                ["Time", ns === undefined ? "" : timeText(ns / 1e9)]];
  $("node").replaceChildren(facts("What became of the node",
                                  rows.filter(([, value]) => value)));
}

function activate(index) {
  network.boxes.get(network.active)?.box.setAttribute("aria-selected", "false");
  network.active = index;
  const {box} = network.boxes.get(index);
  box.setAttribute("aria-selected", "true");
  box.scrollIntoView({block: "nearest", inline: "nearest"});
  $("network").firstChild.setAttribute("aria-activedescendant", box.id);
  showNode(index);
}

/* Goes to the nearest box in the direction of an arrow key. */
function moveByKey(event) {
  const direction = {ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0],
                     ArrowLeft: [-1, 0]}[event.key];
  const from = network.boxes.get(network.active);
  if (direction === undefined || from === undefined) return;
  event.preventDefault();
  let best = -1, least = Infinity;
  for (const [index, {x, y}] of network.boxes) {
    const along = (x - from.x) * direction[0] + (y - from.y) * direction[1];
    const aside = Math.abs((x - from.x) * direction[1]) + Math.abs((y - from.y) * direction[0]);
    const distance = direction[0] === 0 ? along * 1000 + aside : along + aside * 1000;
    if (along > 0 && distance < least) [best, least] = [index, distance];
  }
  if (best >= 0) activate(best);
}

/* ---- The model ---- */

/* Shows the network of a loaded model. Operators, and models made of a request, have none. */
function showNetwork({nodes, unlisted_nodes: unlisted = 0}) {
  Object.assign(network, {nodes, times: new Map(), parts: nodes.map(() => [])});
  for (const node of nodes)
    if (node.fate !== "cancelled") network.parts[node.into]?.push(node);
  $("network-box").hidden = nodes.length === 0;
  if (nodes.length === 0) return;
  const counts = new Map();
  for (const {fate} of nodes) counts.set(fate, (counts.get(fate) ?? 0) + 1);
  $("network-about").textContent = nodes.length + unlisted + " nodes in the file: " +
    [...counts].sort((a, b) => b[1] - a[1])
      .map(([fate, count]) => count + " " + fateText({fate})).join(", ") +
    (unlisted > 0 ? ", and " + unlisted + " more that are not listed" : "") + ".";
  drawNetwork();
}

function showTimes(profile) {
  network.times.clear();
  for (const {index, ns} of profile)
    network.times.set(index, (network.times.get(index) ?? 0) + ns);
  drawTimes();
}

function startNetwork() {
  $("every-node").addEventListener("change", drawNetwork);
}
