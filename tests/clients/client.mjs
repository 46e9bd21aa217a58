// A convolution in binary and a dequantization in JSON, with fetch: node client.mjs URL
if (process.argv.length !== 3) fail("usage: node client.mjs URL");
const url = process.argv[2];

async function infer(model, body, headers = {}) {
  const options = { method: "POST", body, headers, signal: AbortSignal.timeout(10_000) };
  const answer = await fetch(`${url}/v2/models/${model}/infer`, options);
  if (answer.status === 200) return answer;
  throw new Error(`${model}: HTTP ${answer.status}: ${(await answer.json()).error}`);
}

// Tensors follow the JSON as bytes, little-endian and row by row, in the order of inputs.
async function convolve() {
  const x = Uint8Array.from({ length: 32 }, (_, i) => 37 * i);
  const w = Int8Array.from({ length: 54 }, (_, i) => ((5 * i) % 17) - 8);
  const header = new TextEncoder().encode(
    JSON.stringify({
      parameters: { pads: [1, 0, 0, 1], strides: [2, 1], binary_data_output: true },
      inputs: [
        { name: "x", datatype: "UINT8", shape: [1, 2, 4, 4], parameters: { binary_data_size: 32 } },
        { name: "x_scale", datatype: "FP32", shape: [], data: [0.02] },
        { name: "x_zero_point", datatype: "UINT8", shape: [], data: [100] },
        { name: "w", datatype: "INT8", shape: [3, 2, 3, 3], parameters: { binary_data_size: 54 } },
        { name: "w_scale", datatype: "FP32", shape: [3], data: [0.5, 0.25, 0.1] },
        { name: "w_zero_point", datatype: "INT8", shape: [], data: [1] },
        { name: "y_scale", datatype: "FP32", shape: [], data: [0.2] },
        { name: "y_zero_point", datatype: "UINT8", shape: [], data: [120] },
        { name: "B", datatype: "INT32", shape: [3], data: [100, -200, 300] },
      ],
    }),
  );
  const answer = await infer("onnx.QLinearConv", new Blob([header, x, w]), {
    "Inference-Header-Content-Length": String(header.length),
  });
  const headerLength = Number(answer.headers.get("Inference-Header-Content-Length"));
  const y = new Uint8Array((await answer.arrayBuffer()).slice(headerLength));
  check(
    "convolution",
    Array.from(y),
    [56, 86, 203, 46, 62, 109, 146, 90, 92, 138, 54, 95, 127, 125, 118, 114, 131, 116],
  );
}

async function dequantize() {
  const request = {
    parameters: { axis: 0 },
    inputs: [
      { name: "x", datatype: "UINT8", shape: [2, 3], data: [0, 128, 255, 127, 128, 129] },
      { name: "x_scale", datatype: "FP32", shape: [2], data: [0.5, "Infinity"] },
      { name: "x_zero_point", datatype: "UINT8", shape: [2], data: [128, 128] },
    ],
  };
  const answer = await infer("onnx.DequantizeLinear", JSON.stringify(request));
  const y = (await answer.json()).outputs[0].data;
  check("dequantization", y, [-64, 0, 63.5, "-Infinity", "NaN", "Infinity"]);
}

function check(what, y, expected) {
  const [got, wanted] = [JSON.stringify(y), JSON.stringify(expected)];
  if (got !== wanted) throw new Error(`${what}: expected ${wanted}, got ${got}`);
  console.log(`${what}: ${got}`);
}

function fail(text) {
  console.error(text);
  process.exit(1);
}

try {
  await convolve();
  await dequantize();
} catch (error) {
  fail(error.cause ? `${url}: ${error.cause.message}` : error.message);
}
