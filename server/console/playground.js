/* The playground: chooses a model, shows its fields, and runs it. */

const play = {inputs: [], attributes: [], sent: [], examples: [], turn: 0, running: false,
              document: null, index: []};
const BUILT_IN = /^(onnx|directml|tensorflow|com\.microsoft)\./;

/* ---- Which model ---- */

async function listModels() {
  play.index = await askJson("POST", "/v2/repository/index");
  const names = [...new Set(play.index.filter(({state}) => state === "READY")
    .map(({name}) => name))];
  const before = $("model").value;
  const loaded = names.filter((name) => !BUILT_IN.test(name)).sort();
  $("model").replaceChildren(
    group("Operators", names.filter((name) => BUILT_IN.test(name))),
    ...(loaded.length > 0 ? [group("Loaded", loaded)] : []));
  if (names.includes(before)) $("model").value = before;
  if ($("model").value !== before || play.inputs.length === 0) await chooseModel();
  else listVersions();
}

function listVersions() {
  const versions = play.index
    .filter(({name, state, version}) => name === $("model").value && state === "READY" && version)
    .map(({version}) => version).sort((a, b) => b - a);
  setOptions($("version"), versions.map((version) => [version, version]));
}

async function chooseModel(name = $("model").value) {
  $("model").value = name;
  listVersions();
  $("version").selectedIndex = 0;
  await chooseVersion();
}

async function chooseVersion() {
  const name = $("model").value, version = $("version").value, turn = ++play.turn;
  clearErrors($("try"));
  $("network-box").hidden = true;
  $("try").dataset.shown = ""; /* the fields are still those of the previous model */
  let metadata, examples, nodes;
  try {
    [metadata, examples, nodes] = await Promise.all([
      askJson("GET", modelPath(name, version)), findExamples(name, version),
      BUILT_IN.test(name) ? {nodes: []} : askJson("GET", modelPath(name, version) + "/nodes")]);
  } catch (error) {
    $("model-error").textContent = error.message;
    return;
  }
  if (turn !== play.turn) return; /* another model has been chosen meanwhile */
  const {properties} = metadata;
  $("about").textContent = properties.about;
  play.inputs = metadata.inputs.map((spec, i) => makeInput(spec, i, properties));
  play.attributes = Object.entries(properties).filter(([key]) => key.startsWith("parameters."))
    .map(([key, about], i) => makeAttribute(key.slice("parameters.".length), about, i));
  $("inputs").replaceChildren(...play.inputs.map(({element}) => element));
  $("parameters").replaceChildren(...play.attributes.map(({element}) => element));
  $("attributes").hidden = play.attributes.length === 0;
  const knows = (fields, wanted) => fields.some((field) => field.name === wanted);
  play.examples = examples.filter(({value}) =>
    Object.keys(value.parameters ?? {}).every((key) => knows(play.attributes, key)) &&
    value.inputs.every((input) => knows(play.inputs, input.name)));
  $("example-row").hidden = play.examples.length === 0;
  setOptions($("example"), play.examples.map(({summary}, i) => [String(i), summary]), "0");
  showNetwork(nodes);
  if (play.examples.length > 0) showExample();
  else play.inputs.forEach(setAnyInput);
  $("try").dataset.shown = name + " " + version;
  showProgram();
}

/* Returns the examples in the interface's OpenAPI document for this version, or else for the newest
 * one. The page itself knows no operator. */
async function findExamples(name, version) {
  if (!BUILT_IN.test(name)) return [];
  try {
    play.document ??= await askJson("GET", "/openapi.json");
    const look = (node) => node?.$ref?.slice(2).split("/").reduce((at, key) => at?.[key],
                                                                  play.document) ?? node;
    const {paths} = play.document;
    const {requestBody} = (paths[modelPath(name, version) + "/infer"] ??
                           paths[modelPath(name) + "/infer"]).post;
    return Object.values(look(requestBody).content["application/json"].examples).map(look);
  } catch {
    return [];
  }
}

function showExample() {
  const {value} = play.examples[$("example").value];
  for (const field of play.inputs)
    setInput(field, value.inputs.find(({name}) => name === field.name));
  for (const {name, input} of play.attributes)
    input.value = [value.parameters?.[name] ?? ""].flat().join(", ");
  $("attributes").open = value.parameters !== undefined;
}

/* ---- A run ---- */

const LARGE_BYTES = 64 << 10; /* for larger inputs the answer comes as bytes, without parsing */

/* Returns the request that the fields describe, with what it is made of. The request of a run asks
 * for the time of each node, and may ask for an answer as bytes. */
function readFields(isRun) {
  play.sent = play.inputs.filter(({send}) => send.checked);
  const inputs = play.sent.map((field) => ({
    name: field.name, datatype: field.datatype.value, shape: words(field.shape.value),
    ...(field.tensor ? {raw: field.tensor} : {values: words(field.data.value)})}));
  const parameters = {};
  for (const attribute of play.attributes) {
    const value = attributeValue(attribute);
    if (value !== undefined) parameters[attribute.name] = value;
  }
  const large = inputs.some(({raw, values}) => (raw ?? values).length > LARGE_BYTES);
  const asksTimes = isRun && !BUILT_IN.test($("model").value); /* an operator is a single node */
  const request = buildRequest(inputs, asksTimes ? {...parameters, profile: true} : parameters,
                               isRun && large);
  return {...request, inputs, parameters, hasImage: play.sent.some(({image}) => image !== null)};
}

/* Returns a function that asks for the `count` greatest elements of an output of this request. */
function classesOf({inputs, parameters}, path) {
  return async (name, count) => {
    const outputs = [{name, parameters: {classification: count}}];
    const {body, headers} = buildRequest(inputs, parameters, false, outputs);
    return (await readAnswer(await ask("POST", path, body, {headers, seconds: 120}))).outputs[0];
  };
}

/* Returns the field that a refusal names. The server names fields as inputs[0].shape or
 * parameters.axis, or an input or an attribute by its name alone. */
function fieldOf(text) {
  const [, index, part] = /^inputs\[(\d+)\](?:\.(\w+))?/.exec(text) ?? [];
  const bare = text.replace(/^parameters\./, "");
  const isNamed = ({name}) => bare.startsWith(name) && !/\w/.test(bare[name.length] ?? "");
  const named = play.attributes.filter(isNamed).map(({name}) => name).sort();
  if (named.length > 0) return play.attributes.find(({name}) => name === named.at(-1)).input;
  const field = index !== undefined ? play.sent[index]
    : play.inputs.find(isNamed) ?? play.inputs.find(({name}) => text.includes('"' + name + '"'));
  if (field === undefined) return null;
  if (!field.send.checked) return field.send;
  const which = part === "datatype" || /expected the datatype/.test(text) ? field.datatype
    : part === "shape" || (part === undefined && /shape|dimension/.test(text)) ? field.shape
    : field.data;
  return which.disabled ? field.file : which;
}

function showRefusal(error) {
  const field = error.status === 400 ? fieldOf(error.message) : null;
  $("answered").textContent = error.status > 0 ? "Refused, HTTP status " + error.status + "."
    : "No answer.";
  if (field === null) {
    $("try-error").textContent = error.message;
    return;
  }
  showError(field, error.message);
}

async function run(event) {
  event?.preventDefault();
  if (play.running) return;
  play.running = true;
  clearErrors($("try"));
  $("answered").textContent = "Running …";
  $("stages").replaceChildren();
  $("nodes").replaceChildren();
  $("outputs").replaceChildren();
  try {
    const request = readFields(true), {body, headers} = request;
    const path = modelPath($("model").value, $("version").value) + "/infer";
    const begun = performance.now();
    const answer = await ask("POST", path, body, {headers, seconds: 120});
    const tree = await readAnswer(answer);
    for (const output of tree.outputs) {
      output.isOfImage = request.hasImage;
      output.askClasses = classesOf(request, path);
    }
    showAnswer(tree, answer.headers.get("Server-Timing"), performance.now() - begun);
    $("answer").scrollIntoView({block: "nearest"});
  } catch (error) {
    if (!(error instanceof Refusal)) error.message = "The answer cannot be read: " + error.message;
    showRefusal(error);
  } finally {
    play.running = false;
  }
}

/* ---- As a program ---- */

function showProgram() {
  if (!$("program").open) return;
  const request = readFields(false);
  const url = location.origin + modelPath($("model").value, $("version").value) + "/infer";
  $("snippet").textContent = PROGRAMS[$("language").value](url, request,
    sessionStorage.getItem("quantd-token") !== null);
  $("save").hidden = !request.binary;
}

async function copyProgram() {
  const text = $("snippet").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { /* works only on HTTPS and on this host; otherwise copy the old way */
    getSelection().selectAllChildren($("snippet"));
    document.execCommand("copy");
  }
  $("copied").textContent = "Copied.";
  setTimeout(() => { $("copied").textContent = ""; }, 3000);
}

function saveRequest() {
  const url = URL.createObjectURL(new Blob([readFields(false).body]));
  h("a", {href: url, download: "request.bin"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function startPlayground() {
  $("model").addEventListener("change", () => chooseModel());
  $("version").addEventListener("change", chooseVersion);
  $("example").addEventListener("change", showExample);
  $("try").addEventListener("submit", run);
  $("try").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.ctrlKey) run(event);
  });
  for (const kind of ["input", "change"]) $("try").addEventListener(kind, showProgram);
  $("program").addEventListener("toggle", showProgram);
  $("copy").addEventListener("click", copyProgram);
  $("save").addEventListener("click", saveRequest);
}
