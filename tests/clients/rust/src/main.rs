//! A convolution in binary and a dequantization in JSON, with ureq: cargo run URL
use serde_json::{json, Value};
use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Posts JSON followed by tensors, and returns both parts of the answer.
fn infer(url: &str, model: &str, request: &Value, tensors: &[u8]) -> Result<(Value, Vec<u8>)> {
    let mut body = request.to_string().into_bytes();
    let header_length = body.len();
    body.extend(tensors);
    let mut response = ureq::post(format!("{url}/v2/models/{model}/infer"))
        .config()
        .http_status_as_error(false) // the body has the error's text
        .build()
        .header("Inference-Header-Content-Length", header_length.to_string())
        .send(&body)?;
    let answer = response.body_mut().read_to_vec()?;
    if response.status() != 200 {
        let refusal: Value = serde_json::from_slice(&answer)?;
        let (status, text) = (response.status(), &refusal["error"]);
        return Err(format!("{model}: HTTP {status}: {text}").into());
    }
    let length = match response.headers().get("Inference-Header-Content-Length") {
        Some(length) => length.to_str()?.parse::<usize>()?.min(answer.len()),
        None => answer.len(),
    };
    let header = serde_json::from_slice(&answer[..length])?;
    Ok((header, answer[length..].to_vec()))
}

fn convolve(url: &str) -> Result<()> {
    let request = json!({
        "parameters": {"pads": [1, 0, 0, 1], "strides": [2, 1], "binary_data_output": true},
        "inputs": [
            {"name": "x", "datatype": "UINT8", "shape": [1, 2, 4, 4],
             "parameters": {"binary_data_size": 32}},
            {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.02]},
            {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [100]},
            {"name": "w", "datatype": "INT8", "shape": [3, 2, 3, 3],
             "parameters": {"binary_data_size": 54}},
            {"name": "w_scale", "datatype": "FP32", "shape": [3], "data": [0.5, 0.25, 0.1]},
            {"name": "w_zero_point", "datatype": "INT8", "shape": [], "data": [1]},
            {"name": "y_scale", "datatype": "FP32", "shape": [], "data": [0.2]},
            {"name": "y_zero_point", "datatype": "UINT8", "shape": [], "data": [120]},
            {"name": "B", "datatype": "INT32", "shape": [3], "data": [100, -200, 300]}]});
    // Tensors as bytes are little-endian, row by row, in the order of inputs.
    let x = (0..32).map(|i| (37 * i) as u8);
    let w = (0..54).map(|i| (5 * i % 17 - 8) as u8);
    let tensors: Vec<u8> = x.chain(w).collect();
    let (_, y) = infer(url, "onnx.QLinearConv", &request, &tensors)?;
    let expected = [
        56, 86, 203, 46, 62, 109, 146, 90, 92, 138, 54, 95, 127, 125, 118, 114, 131, 116,
    ];
    check("convolution", &json!(y), &json!(expected))
}

fn dequantize(url: &str) -> Result<()> {
    let request = json!({
        "parameters": {"axis": 0},
        "inputs": [
            {"name": "x", "datatype": "UINT8", "shape": [2, 3],
             "data": [[0, 128, 255], [127, 128, 129]]},
            {"name": "x_scale", "datatype": "FP32", "shape": [2], "data": [0.5, "Infinity"]},
            {"name": "x_zero_point", "datatype": "UINT8", "shape": [2], "data": [128, 128]}]});
    let (answer, _) = infer(url, "onnx.DequantizeLinear", &request, &[])?;
    let expected = json!([-64, 0, 63.5, "-Infinity", "NaN", "Infinity"]);
    check("dequantization", &answer["outputs"][0]["data"], &expected)
}

fn check(what: &str, y: &Value, expected: &Value) -> Result<()> {
    if y != expected {
        return Err(format!("{what}: expected {expected}, got {y}").into());
    }
    println!("{what}: {y}");
    Ok(())
}

fn main() {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: cargo run URL");
        std::process::exit(1);
    };
    if let Err(error) = convolve(&url).and_then(|()| dequantize(&url)) {
        eprintln!("{url}: {error}");
        std::process::exit(1);
    }
}
