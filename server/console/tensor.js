/* Turns typed text and files into a request's inputs, and an answer's outputs into numbers. Typed
 * text is sent unchanged, so that the server judges it, not this page. */

const ARRAYS = {UINT8: Uint8Array, INT8: Int8Array, UINT16: Uint16Array, INT16: Int16Array,
                UINT32: Uint32Array, INT32: Int32Array, FP32: Float32Array, BOOL: Uint8Array};
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/;

const countOf = (shape) => shape.reduce((product, size) => product * size, 1);
const words = (text) => text.split(/[\s,;[\]]+/).filter((word) => word !== "");

/* Returns the words as JSON. Numbers, true and false keep their spelling. Any other word becomes a
 * string, which the server will refuse. */
function wordsToJson(list) {
  return "[" + list.map((word) => JSON_NUMBER.test(word) || /^(true|false)$/.test(word) ? word
    : Number.isFinite(Number(word)) ? String(Number(word)) : JSON.stringify(word)).join(", ") + "]";
}

/* ---- Files ---- */

const NPY_TYPES = {u1: "UINT8", i1: "INT8", u2: "UINT16", i2: "INT16", u4: "UINT32", i4: "INT32",
                   i8: "INT64", b1: "BOOL", f2: "FP16", f4: "FP32", f8: "FP64"};

/* Reads NumPy's format, as numpy.save writes it. */
function readNpy(buffer) {
  const view = new DataView(buffer), bytes = new Uint8Array(buffer);
  if (bytes.length < 12 || String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY")
    throw new Error("expected a file that numpy.save wrote");
  const wide = bytes[6] > 1;
  const begin = (wide ? 12 : 10) + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
  const head = new TextDecoder("latin1").decode(bytes.subarray(10, begin));
  const [, order, type] = /'descr': *'([<>|=])(\w+)'/.exec(head) ?? [];
  const [, sizes] = /'shape': *\(([\d, ]*)\)/.exec(head) ?? [];
  const datatype = NPY_TYPES[type];
  if (datatype === undefined || order === ">" || sizes === undefined)
    throw new Error("expected integers, booleans or floats, little-endian, as " +
                    "array.astype makes them; got " + (type ? order + type : "no array"));
  const shape = words(sizes).map(Number);
  if (/'fortran_order': *True/.test(head) && shape.length > 1)
    throw new Error("expected rows in C order: save numpy.ascontiguousarray(array)");
  const expected = countOf(shape) * Number(type[1]);
  if (bytes.length - begin !== expected)
    throw new Error("expected " + expected + " bytes of data, got " + (bytes.length - begin));
  const data = buffer.slice(begin);
  if (datatype !== "FP64") return {datatype, shape, raw: new Uint8Array(data)};
  const singles = Float32Array.from(new Float64Array(data)); /* NumPy's default type */
  return {datatype: "FP32", shape, raw: new Uint8Array(singles.buffer)};
}

/* Image layouts: the shape for an image's rows and columns, and where the colours go. */
const LAYOUTS = {
  "gray, [1, 1, H, W]": {shape: (rows, columns) => [1, 1, rows, columns], channels: 1},
  "RGB, [1, 3, H, W]": {shape: (rows, columns) => [1, 3, rows, columns], channels: 3, planes: true},
  "RGBA, [1, 4, H, W]": {shape: (rows, columns) => [1, 4, rows, columns], channels: 4,
                         planes: true},
  "gray, [1, H, W, 1]": {shape: (rows, columns) => [1, rows, columns, 1], channels: 1},
  "RGB, [1, H, W, 3]": {shape: (rows, columns) => [1, rows, columns, 3], channels: 3},
  "RGBA, [1, H, W, 4]": {shape: (rows, columns) => [1, rows, columns, 4], channels: 4},
  "gray, [H, W]": {shape: (rows, columns) => [rows, columns], channels: 1},
  "RGB, [H, W, 3]": {shape: (rows, columns) => [rows, columns, 3], channels: 3},
};

/* Returns the layout of a shape of the model, in which the batch and the image's sizes may be free;
 * undefined: none. An image of four rows is more likely than one of four channels. */
function layoutOf(dims) {
  const names = Object.keys(LAYOUTS), byColor = (color) =>
    names.filter((name) => name.startsWith(color + ","));
  return ["RGB", "gray", "RGBA"].flatMap(byColor).find((name) => {
    const shape = LAYOUTS[name].shape(-1, -1);
    return dims.length === shape.length &&
      shape.every((size, i) => size < 0 || size === dims[i] || (i === 0 && dims.length === 4));
  });
}

/* Returns the rows and columns that a layout has in a shape; below 1: any number. */
function imageSizeOf(layoutName, dims) {
  const at = LAYOUTS[layoutName].shape(-1, -1).indexOf(-1);
  return [dims[at] ?? -1, dims[at + 1] ?? -1];
}

async function readImage(file) {
  return createImageBitmap(file).catch(() => {
    throw new Error("expected a .npy file, or an image that this browser can show");
  });
}

/* Returns an image's pixels, resized bilinearly. */
function pixelsOf(bitmap, rows, columns) {
  const canvas = new OffscreenCanvas(columns, rows), context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high"; /* an image that shrinks is averaged */
  context.drawImage(bitmap, 0, 0, columns, rows);
  return context.getImageData(0, 0, columns, rows);
}

/* Returns a tensor of (pixel - mean) / scale. `mean` and `scale` have a number for each channel. If
 * they change nothing, the datatype is UINT8. Otherwise it is the first of FP32, INT8 and UINT8 in
 * `types`. Integers are rounded and saturated. */
function imageToTensor({width, height, data}, layoutName, mean, scale, types) {
  const {shape, channels, planes} = LAYOUTS[layoutName];
  const count = width * height, plain = mean.every((x) => x === 0) && scale.every((x) => x === 1);
  const datatype = plain ? "UINT8"
    : ["FP32", "INT8", "UINT8"].find((type) => types.includes(type)) ?? "FP32";
  const values = new Float32Array(count * channels);
  for (let i = 0; i < count; i++) {
    for (let c = 0; c < channels; c++) {
      const pixel = channels > 1 ? data[4 * i + c]
        : Math.round(0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]);
      values[planes ? c * count + i : channels * i + c] = (pixel - mean[c]) / scale[c];
    }
  }
  const least = datatype === "INT8" ? -128 : 0;
  const array = datatype === "FP32" ? values : ARRAYS[datatype].from(values, (value) =>
    Math.min(least + 255, Math.max(least, Math.round(value))));
  return {datatype, shape: shape(height, width), raw: new Uint8Array(array.buffer)};
}

/* ---- Requests ---- */

/* Builds a request. `inputs` are {name, datatype, shape: words, values: words | raw: bytes}. The
 * tensors' bytes follow the JSON. `outputs` are the wanted outputs; undefined: all. */
function buildRequest(inputs, parameters, binaryOutput, outputs) {
  const raws = [];
  const tensors = inputs.map(({name, datatype, shape, values, raw}) => {
    if (raw) raws.push(raw);
    return '    {"name": ' + JSON.stringify(name) + ', "datatype": ' + JSON.stringify(datatype) +
      ', "shape": ' + wordsToJson(shape) +
      (raw ? ', "parameters": {"binary_data_size": ' + raw.length + "}}"
        : ', "data": ' + wordsToJson(values) + "}");
  });
  const given = binaryOutput ? {...parameters, binary_data_output: true} : parameters;
  const json = "{\n" + (Object.keys(given).length === 0 ? ""
    : '  "parameters": ' + JSON.stringify(given) + ",\n") +
    '  "inputs": [\n' + tensors.join(",\n") + "\n  ]" +
    (outputs === undefined ? "" : ',\n  "outputs": ' + JSON.stringify(outputs)) + "\n}";
  if (raws.length === 0)
    return {json, body: json, headers: {"Content-Type": "application/json"}, binary: false};
  return {json, body: new Blob([json, ...raws]), binary: true,
          headers: {"Content-Type": "application/octet-stream",
                    "Inference-Header-Content-Length": String(new Blob([json]).size)}};
}

/* ---- Answers ---- */

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

/* Returns the numbers in an output's bytes. null: JavaScript has no array for the type. */
function decode(datatype, bytes) {
  const buffer = bytes.slice().buffer;
  if (datatype === "FP16") return Float32Array.from(new Uint16Array(buffer), fromHalf);
  if (datatype === "BF16")
    return new Float32Array(Uint32Array.from(new Uint16Array(buffer), (bits) => bits << 16).buffer);
  if (datatype === "INT64") return Float64Array.from(new BigInt64Array(buffer), Number);
  return ARRAYS[datatype] ? new ARRAYS[datatype](buffer) : null;
}

/* Returns the answer's JSON, with the numbers of each output as `values`. */
async function readAnswer(answer) {
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const length = answer.headers.get("Inference-Header-Content-Length");
  let at = length === null ? bytes.length : Number(length);
  const tree = JSON.parse(new TextDecoder().decode(bytes.subarray(0, at)));
  for (const output of tree.outputs) {
    const size = output.parameters?.binary_data_size;
    if (size === undefined) {
      output.values = output.data.map(Number);
    } else {
      output.values = decode(output.datatype, bytes.subarray(at, at + size));
      at += size;
    }
  }
  return tree;
}
