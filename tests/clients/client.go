// A convolution in binary and a dequantization in JSON, with net/http: go run client.go URL
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"reflect"
	"strconv"
)

const convolution = `
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
  {"name": "B", "datatype": "INT32", "shape": [3], "data": [100, -200, 300]}]}`

const dequantization = `
{"parameters": {"axis": 0},
 "inputs": [
  {"name": "x", "datatype": "UINT8", "shape": [2, 3], "data": [[0, 128, 255], [127, 128, 129]]},
  {"name": "x_scale", "datatype": "FP32", "shape": [2], "data": [0.5, "Infinity"]},
  {"name": "x_zero_point", "datatype": "UINT8", "shape": [2], "data": [128, 128]}]}`

// infer posts JSON followed by tensors, and returns both parts of the answer.
func infer(url, model, header string, tensors []byte) ([]byte, []byte) {
	body := append([]byte(header), tensors...)
	request, err := http.NewRequest("POST", url+"/v2/models/"+model+"/infer", bytes.NewReader(body))
	fatal(err)
	request.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(header)))
	response, err := http.DefaultClient.Do(request)
	fatal(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	fatal(err)
	if response.StatusCode != http.StatusOK {
		fatal(fmt.Errorf("%s: HTTP %s: %s", model, response.Status, answer))
	}
	length, err := strconv.Atoi(response.Header.Get("Inference-Header-Content-Length"))
	if err != nil || length > len(answer) {
		length = len(answer) // the answer is JSON alone
	}
	return answer[:length], answer[length:]
}

func fatal(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func check(what string, y, expected any) {
	if !reflect.DeepEqual(y, expected) {
		log.Fatalf("%s: expected %v, got %v", what, expected, y)
	}
	fmt.Printf("%s: %v\n", what, y)
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: go run client.go URL")
	}
	// Tensors as bytes are little-endian, row by row, in the order of inputs.
	var tensors []byte
	for i := 0; i < 32; i++ {
		tensors = append(tensors, byte(37*i)) // x
	}
	for i := 0; i < 54; i++ {
		tensors = append(tensors, byte(5*i%17-8)) // w
	}
	_, y := infer(os.Args[1], "onnx.QLinearConv", convolution, tensors)
	check("convolution", y, []byte{56, 86, 203, 46, 62, 109, 146, 90, 92,
		138, 54, 95, 127, 125, 118, 114, 131, 116})

	header, _ := infer(os.Args[1], "onnx.DequantizeLinear", dequantization, nil)
	var answer struct{ Outputs []struct{ Data []any } }
	fatal(json.Unmarshal(header, &answer))
	check("dequantization", answer.Outputs[0].Data,
		[]any{-64.0, 0.0, 63.5, "-Infinity", "NaN", "Infinity"})
}
