#!/bin/sh
# A convolution in binary and a dequantization in JSON, with curl (7.84 or newer): client.sh URL
set -eu
if test $# != 1; then
    echo 'usage: client.sh URL' >&2
    exit 1
fi
url=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail()
{
    echo "$1" >&2
    exit 1
}

# infer MODEL CURL-OPTION...: posts a request and writes the answer's body to a file. Sets length to
# the length of the answer's JSON.
infer()
{
    model=$1
    shift
    curl -sS -m 10 -o "$folder/answer" "$@" "$url/v2/models/$model/infer" \
        -w '%{http_code} %header{inference-header-content-length}\n' >"$folder/status" || exit 1
    read -r status length <"$folder/status"
    test "$status" = 200 || fail "$model: HTTP $status: $(cat "$folder/answer")"
}

check()
{
    test "$2" = "$3" || fail "$1: expected $3, got $2"
    echo "$1: $2"
}

# Tensors follow the JSON as bytes, little-endian and row by row, in the order of inputs.
cat >"$folder/request" <<'JSON'
{"parameters": {"pads": [1, 0, 0, 1], "strides": [2, 1], "binary_data_output": true},
 "inputs": [
  {"name": "x", "datatype": "UINT8", "shape": [1, 2, 4, 4], "parameters": {"binary_data_size": 32}},
  {"name": "x_scale", "datatype": "FP32", "shape": [], "data": [0.02]},
  {"name": "x_zero_point", "datatype": "UINT8", "shape": [], "data": [100]},
  {"name": "w", "datatype": "INT8", "shape": [3, 2, 3, 3], "parameters": {"binary_data_size": 54}},
  {"name": "w_scale", "datatype": "FP32", "shape": [3], "data": [0.5, 0.25, 0.1]},
  {"name": "w_zero_point", "datatype": "INT8", "shape": [], "data": [1]},
  {"name": "y_scale", "datatype": "FP32", "shape": [], "data": [0.2]},
  {"name": "y_zero_point", "datatype": "UINT8", "shape": [], "data": [120]},
  {"name": "B", "datatype": "INT32", "shape": [3], "data": [100, -200, 300]}]}
JSON
header=$(wc -c <"$folder/request")
x=$(for i in $(seq 0 31); do printf '\\%03o' $((37 * i % 256)); done)
w=$(for i in $(seq 0 53); do printf '\\%03o' $(((5 * i % 17 - 8) & 255)); done)
# shellcheck disable=SC2059  # the bytes, as octal escapes
printf "$x$w" >>"$folder/request"
infer onnx.QLinearConv --data-binary "@$folder/request" \
    -H "Inference-Header-Content-Length: $header"
y=$(tail -c "+$((length + 1))" "$folder/answer" | od -An -v -tu1 -w18 | tr -s ' ')
check convolution "$y" ' 56 86 203 46 62 109 146 90 92 138 54 95 127 125 118 114 131 116'

infer onnx.DequantizeLinear -d '{
  "parameters": {"axis": 0},
  "inputs": [
    {"name": "x", "datatype": "UINT8", "shape": [2, 3], "data": [[0, 128, 255], [127, 128, 129]]},
    {"name": "x_scale", "datatype": "FP32", "shape": [2], "data": [0.5, "Infinity"]},
    {"name": "x_zero_point", "datatype": "UINT8", "shape": [2], "data": [128, 128]}]}'
y=$(cat "$folder/answer")
y=${y##*'"data":'}
check dequantization "${y%%\}*}" '[-64,0,63.5,"-Infinity","NaN","Infinity"]'
