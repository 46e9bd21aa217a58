/* The playground's fields, one for each input and attribute in the model's metadata. */

function describedBy(id) {
  return {"aria-describedby": id + "-error " + id + "-hint", autocomplete: "off",
          spellcheck: "false"};
}

/* Makes the field of one input. `field` keeps its elements, and the tensor or image from a file. */
function makeInput(spec, index, properties) {
  const id = "input-" + index, about = describedBy(id);
  const types = (properties[spec.name + ".types"] ?? spec.datatype).split(", ");
  const optional = properties[spec.name + ".optional"] === "true";
  const takes = properties[spec.name + ".shape"] ?? "[" + spec.shape.join(", ") + "]";
  const field = {
    name: spec.name, dims: spec.shape, takes, types, tensor: null, image: null,
    send: h("input", {type: "checkbox", id: id + "-send", hidden: !optional, ...about}),
    datatype: h("select", {id: id + "-datatype", ...about}),
    shape: h("input", {id: id + "-shape", size: 10, ...about}),
    data: h("textarea", {id: id + "-data", rows: 1, ...about}),
    file: h("input", {type: "file", id: id + "-file", accept: ".npy,.onnx,image/*", class: "over",
                      ...about}),
    layout: h("select", {id: id + "-layout"}),
    note: h("p", {class: "hint", role: "status"}),
  };
  field.send.checked = !optional;
  setOptions(field.datatype, types.map((type) => [type, type]));
  setOptions(field.layout, Object.keys(LAYOUTS).map((name) => [name, name]));
  const labelled = (text, element, className) =>
    h("p", {class: className}, h("label", {for: element.id}, text), element);
  const layoutRow = labelled("Convert the image to", field.layout);
  const values = labelled("Values", field.data, "values");
  const drop = h("button", {type: "button"}, "Type values instead");
  field.show = () => {
    values.hidden = field.tensor !== null;
    drop.hidden = field.tensor === null;
    layoutRow.hidden = field.image === null;
    for (const part of [field.datatype, field.shape, field.data, field.file])
      part.disabled = !field.send.checked || (field.tensor !== null && part !== field.file);
  };
  field.clear = () => {
    field.tensor = field.image = null;
    field.file.value = field.note.textContent = "";
    field.show();
  };
  field.send.addEventListener("change", field.show);
  drop.addEventListener("click", () => {
    field.clear();
    field.data.focus();
  });
  field.file.addEventListener("change", () => takeFile(field));
  field.layout.addEventListener("change", () => takeImage(field));
  field.element = h("fieldset", {},
    h("legend", {}, spec.name, optional ? h("small", {}, " optional") : ""),
    optional ? h("label", {class: "check", for: field.send.id}, field.send, "send this input") : "",
    h("p", {class: "hint", id: id + "-hint"}, "Shape: " + takes),
    h("div", {class: "row"}, labelled("Datatype", field.datatype, "short"),
      labelled("Shape", field.shape, "short"),
      h("p", {class: "pick"}, field.file, h("label", {for: field.file.id}, "File …",
        h("span", {class: "unseen"}, " for " + spec.name + ", .npy or an image"))),
      values, layoutRow, drop),
    field.note,
    h("p", {class: "error", id: id + "-error", role: "alert"}));
  field.show();
  return field;
}

/* Fills in an input from an example or from the model's shape. undefined: the input is left out. */
function setInput(field, tensor) {
  field.send.checked = tensor !== undefined;
  field.clear();
  if (tensor === undefined) return;
  field.datatype.value = tensor.datatype;
  field.shape.value = "[" + tensor.shape.join(", ") + "]";
  field.data.value = tensor.data.flat(Infinity).join(", ");
  field.data.rows = Math.min(6, Math.ceil(field.data.value.length / 30));
}

/* Fills in an input without an example: 0, 1, 0, 1 … in the known shape, with 4 for unknown sizes.
 */
function setAnyInput(field) {
  const shape = field.dims.map((size) => (size < 0 ? 4 : size));
  const count = Math.min(countOf(shape), 4096);
  setInput(field, {datatype: field.datatype.value, shape,
                   data: Array.from({length: count}, (_, i) => i % 2)});
}

async function takeFile(field) {
  const file = field.file.files[0];
  if (file === undefined) return;
  clearErrors(field.element);
  if (file.name.endsWith(".onnx")) {
    const files = new DataTransfer();
    files.items.add(file);
    $("load-file").files = files.files;
    field.clear();
    offerLoad("An ONNX file is a model: load it here, then run it.");
    return;
  }
  try {
    field.image = null;
    if (file.name.endsWith(".npy")) {
      setTensor(field, readNpy(await file.arrayBuffer()));
    } else {
      field.image = await readImage(file);
      const rgb = words(field.shape.value)[1] === "3" || field.dims[1] === 3;
      field.layout.value = Object.keys(LAYOUTS).find((name) => /^\[N, C/.test(field.takes) ||
        field.dims.length === 4 ? name.startsWith(rgb ? "RGB, [1" : "gray, [1")
        : name === "gray, [H, W]");
      takeImage(field);
    }
  } catch (error) {
    field.clear();
    showError(field.file, error.message);
  }
}

function takeImage(field) {
  setTensor(field, imageToTensor(field.image, field.layout.value));
}

/* Takes a file's tensor. Bytes become floats if the input takes no bytes, as a quantizer's does
 * not. */
function setTensor(field, tensor) {
  let raw = tensor.raw, datatype = tensor.datatype;
  if (datatype === "UINT8" && !field.types.includes("UINT8") && field.types.includes("FP32")) {
    raw = new Uint8Array(Float32Array.from(raw).buffer);
    datatype = "FP32";
  }
  if (!field.types.includes(datatype)) /* the server will say why not */
    field.datatype.append(h("option", {value: datatype}, datatype));
  field.datatype.value = datatype;
  field.shape.value = "[" + tensor.shape.join(", ") + "]";
  field.tensor = raw;
  field.note.textContent = "From the file: " + datatype + " [" + tensor.shape.join(", ") + "], " +
    bytesText(raw.length) + ".";
  field.show();
}

/* ---- Attributes ---- */

function makeAttribute(name, about, index) {
  const id = "attribute-" + index, [kind] = about.split(":");
  const input = kind === "true or false"
    ? h("select", {id, ...describedBy(id)}, h("option", {value: ""}, "default"),
        h("option", {}, "true"), h("option", {}, "false"))
    : h("input", {id, ...describedBy(id)});
  const element = h("div", {}, h("label", {for: id}, name), input,
    h("p", {class: "hint", id: id + "-hint"}, about),
    h("p", {class: "error", id: id + "-error", role: "alert"}));
  return {name, kind, input, element};
}

const toNumber = (word) => (/^-?\d+$/.test(word) ? Number(word) : word);

/* Returns the attribute's value for JSON; undefined: nothing was typed. Text that does not fit the
 * attribute's kind is sent as text. */
function attributeValue({kind, input}) {
  const text = input.value.trim();
  if (text === "") return undefined;
  if (kind === "true or false") return text === "true";
  if (kind === "integers") return words(text).map(toNumber);
  return kind === "string" ? text : toNumber(text);
}
