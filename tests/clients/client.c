/*
 * A convolution in binary and a dequantization in JSON, with libcurl (7.84 or newer) and cJSON:
 * cc client.c -lcurl -lcjson -o client && ./client URL
 */
#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define JSON(...) #__VA_ARGS__
static const char convolution[] = JSON(
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
        {"name": "B", "datatype": "INT32", "shape": [3], "data": [100, -200, 300]}]});
static const char dequantization[] = JSON(
    {"parameters": {"axis": 0},
     "inputs": [
        {"name": "x", "datatype": "UINT8", "shape": [2, 3],
         "data": [[0, 128, 255], [127, 128, 129]]},
        {"name": "x_scale", "datatype": "FP32", "shape": [2], "data": [0.5, "Infinity"]},
        {"name": "x_zero_point", "datatype": "UINT8", "shape": [2], "data": [128, 128]}]});
/* clang-format on */

struct answer {
    char *data;
    size_t length, json_length; /* the tensors' bytes follow the JSON */
};

static struct answer infer(const char *base, const char *model, const char *body, size_t length,
                           size_t json_length)
{
    char url[1000], field[100];
    snprintf(url, sizeof url, "%s/v2/models/%s/infer", base, model);
    snprintf(field, sizeof field, "Inference-Header-Content-Length: %zu", json_length);
    struct curl_slist *fields = curl_slist_append(NULL, field);
    struct answer answer;
    FILE *stream = open_memstream(&answer.data, &answer.length);
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, stream);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 10L);
    CURLcode code = curl_easy_perform(curl);
    fclose(stream);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        errx(1, "%s: %s", url, curl_easy_strerror(code));
    if (status != 200)
        errx(1, "%s: HTTP %ld: %s", url, status, answer.data);
    struct curl_header *header;
    answer.json_length = answer.length;
    if (curl_easy_header(curl, "Inference-Header-Content-Length", 0, CURLH_HEADER, -1, &header) ==
        CURLHE_OK)
        answer.json_length = strtoul(header->value, NULL, 10);
    curl_easy_cleanup(curl);
    curl_slist_free_all(fields);
    return answer;
}

static void check(const char *what, const char *y, const char *expected)
{
    if (strcmp(y, expected) != 0)
        errx(1, "%s: expected %s, got %s", what, expected, y);
    printf("%s: %s\n", what, y);
}

/* Tensors follow the JSON as bytes, little-endian and row by row, in the order of inputs. */
static void convolve(const char *url)
{
    char body[sizeof convolution + 32 + 54];
    size_t json_length = strlen(convolution), length = json_length;
    memcpy(body, convolution, length);
    for (int i = 0; i < 32; i++)
        body[length++] = (char)(37 * i); /* x */
    for (int i = 0; i < 54; i++)
        body[length++] = (char)(5 * i % 17 - 8); /* w */
    struct answer answer = infer(url, "onnx.QLinearConv", body, length, json_length);
    char y[100] = "";
    for (size_t i = answer.json_length; i < answer.length && strlen(y) + 5 < sizeof y; i++)
        sprintf(y + strlen(y), " %d", (unsigned char)answer.data[i]);
    check("convolution", y, " 56 86 203 46 62 109 146 90 92 138 54 95 127 125 118 114 131 116");
    free(answer.data);
}

static void dequantize(const char *url)
{
    size_t length = strlen(dequantization);
    struct answer answer = infer(url, "onnx.DequantizeLinear", dequantization, length, length);
    cJSON *tree = cJSON_ParseWithLength(answer.data, answer.length);
    cJSON *output = cJSON_GetArrayItem(cJSON_GetObjectItem(tree, "outputs"), 0);
    char *y = cJSON_PrintUnformatted(cJSON_GetObjectItem(output, "data"));
    check("dequantization", y == NULL ? "" : y, "[-64,0,63.5,\"-Infinity\",\"NaN\",\"Infinity\"]");
    free(y);
    cJSON_Delete(tree);
    free(answer.data);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        errx(1, "usage: client URL");
    convolve(argv[1]);
    dequantize(argv[1]);
    return 0;
}
