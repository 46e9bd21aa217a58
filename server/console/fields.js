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
    size: h("input", {id: id + "-size", size: 10, ...about}),
    mean: h("input", {id: id + "-mean", value: "0", ...about}),
    scale: h("input", {id: id + "-scale", value: "1", ...about}),
    note: h("p", {class: "hint", role: "status"}),
  };
  field.send.checked = !optional;
  setOptions(field.datatype, types.map((type) => [type, type]));
  setOptions(field.layout, Object.keys(LAYOUTS).map((name) => [name, name]));
  const labelled = (text, element, className) =>
    h("p", {class: className}, h("label", {for: element.id}, text), element);
  const layoutRow = h("div", {class: "row"}, labelled("Convert the image to", field.layout),
    labelled("Resize to rows, columns", field.size, "short"),
    labelled("Subtract mean", field.mean, "short"), labelled("Divide by", field.scale, "short"),
    h("p", {class: "hint"}, "Mean and divisor: one number, or one for each channel. Pixels are " +
      "from 0 to 255. ImageNet's are 123.675, 116.28, 103.53 and 58.395, 57.12, 57.375."));
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
  for (const part of [field.layout, field.size, field.mean, field.scale])
    part.addEventListener("change", () => takeImage(field));
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
      const image = await readImage(file);
      const rgb = words(field.shape.value)[1] === "3";
      field.layout.value = layoutOf(field.dims) ??
        Object.keys(LAYOUTS).find((name) => /^\[N, C/.test(field.takes) || field.dims.length === 4
          ? name.startsWith(rgb ? "RGB, [1" : "gray, [1") : name === "gray, [H, W]");
      const [rows, columns] = imageSizeOf(field.layout.value, field.dims);
      field.size.value = (rows > 0 ? rows : image.height) + ", " +
        (columns > 0 ? columns : image.width);
      field.image = image;
      takeImage(field);
    }
  } catch (error) {
    field.clear();
    showError(field.file, error.message);
  }
}

const PIXELS_MAX = 1 << 26;

/* Returns one number for each channel. NaN: the text is neither that nor one number. */
function channelNumbers(text, channels) {
  const numbers = words(text).map(Number);
  if (numbers.length === 1) return new Array(channels).fill(numbers[0]);
  return numbers.length === channels ? numbers : new Array(channels).fill(NaN);
}

/* Makes the input's tensor of its image. Returns silently after showing an error at a field. */
function takeImage(field) {
  const {channels} = LAYOUTS[field.layout.value];
  const [rows, columns, more] = words(field.size.value).map(Number);
  const mean = channelNumbers(field.mean.value, channels);
  const scale = channelNumbers(field.scale.value, channels);
  const numbers = "Expected a number, or " + channels + " with commas between them, got ";
  clearErrors(field.element);
  if (!(Number.isInteger(rows) && Number.isInteger(columns) && rows > 0 && columns > 0 &&
        rows * columns <= PIXELS_MAX && more === undefined))
    return showError(field.size, "Expected rows and columns, such as 224, 224, got " +
                     JSON.stringify(field.size.value) + ".");
  if (!mean.every(Number.isFinite))
    return showError(field.mean, numbers + JSON.stringify(field.mean.value) + ".");
  if (!scale.every((number) => Number.isFinite(number) && number !== 0))
    return showError(field.scale, numbers.replace("number", "number other than 0") +
                     JSON.stringify(field.scale.value) + ".");
  const pixels = pixelsOf(field.image, rows, columns);
  setTensor(field, imageToTensor(pixels, field.layout.value, mean, scale, field.types));
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
