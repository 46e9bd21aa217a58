// A convolution in binary and a dequantization in JSON, with java.net.http: java Client.java URL

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Arrays;
import java.util.stream.IntStream;

public class Client {
    static final String CONVOLUTION = """
        {"parameters": {"pads": [1, 0, 0, 1], "strides": [2, 1], "binary_data_output": true},
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
          {"name": "B", "datatype": "INT32", "shape": [3], "data": [100, -200, 300]}]}""";
    static final String DEQUANTIZATION = """
        {"parameters": {"axis": 0},
         "inputs": [
          {"name": "x", "datatype": "UINT8", "shape": [2, 3],
           "data": [[0, 128, 255], [127, 128, 129]]},
          {"name": "x_scale", "datatype": "FP32", "shape": [2], "data": [0.5, "Infinity"]},
          {"name": "x_zero_point", "datatype": "UINT8", "shape": [2], "data": [128, 128]}]}""";
    static final HttpClient CLIENT = HttpClient.newHttpClient();

    static HttpResponse<byte[]> infer(String url, String model, byte[] body, int headerLength)
            throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(url + "/v2/models/" + model + "/infer"))
            .header("Inference-Header-Content-Length", String.valueOf(headerLength))
            .timeout(Duration.ofSeconds(10))
            .POST(BodyPublishers.ofByteArray(body))
            .build();
        var answer = CLIENT.send(request, BodyHandlers.ofByteArray());
        if (answer.statusCode() != 200)
            throw new IOException(model + ": HTTP " + answer.statusCode() + ": "
                + new String(answer.body(), UTF_8));
        return answer;
    }

    /** Tensors follow the JSON as bytes: little-endian, row by row, in the order of inputs. */
    static void convolve(String url) throws IOException, InterruptedException {
        var header = CONVOLUTION.getBytes(UTF_8);
        var body = new ByteArrayOutputStream();
        body.writeBytes(header);
        for (int i = 0; i < 32; i++)
            body.write(37 * i); // x
        for (int i = 0; i < 54; i++)
            body.write(5 * i % 17 - 8); // w
        var answer = infer(url, "onnx.QLinearConv", body.toByteArray(), header.length);
        var bytes = answer.body();
        var length = answer.headers().firstValueAsLong("Inference-Header-Content-Length").orElse(0);
        var y = IntStream.range((int) length, bytes.length).map(i -> bytes[i] & 0xff).toArray();
        check("convolution", Arrays.toString(y),
            "[56, 86, 203, 46, 62, 109, 146, 90, 92, 138, 54, 95, 127, 125, 118, 114, 131, 116]");
    }

    /** Java has no JSON parser, so the numbers are the text between "data": and the next }. */
    static void dequantize(String url) throws IOException, InterruptedException {
        var body = DEQUANTIZATION.getBytes(UTF_8);
        var answer = infer(url, "onnx.DequantizeLinear", body, body.length);
        var y = new String(answer.body(), UTF_8).replaceAll("(?s).*\"data\":|\\}.*", "");
        check("dequantization", y, "[-64,0,63.5,\"-Infinity\",\"NaN\",\"Infinity\"]");
    }

    static void check(String what, String y, String expected) throws IOException {
        if (!y.equals(expected))
            throw new IOException(what + ": expected " + expected + ", got " + y);
        System.out.println(what + ": " + y);
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 1) {
            System.err.println("usage: java Client.java URL");
            System.exit(1);
        }
        try {
            convolve(arguments[0]);
            dequantize(arguments[0]);
        } catch (IOException | IllegalArgumentException error) {
            var reason = error instanceof ConnectException ? "cannot connect" : error;
            System.err.println(arguments[0] + ": " + reason);
            System.exit(1);
        }
    }
}
