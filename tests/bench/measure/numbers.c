#define _GNU_SOURCE
#include "tests/bench/measure/numbers.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/reader.h"
#include "server/json/tensor.h"
#include "tests/bench/measure/buffer.h"
#include "tests/bench/peers/numbers.h"
#include "tests/support/random.h"

enum { TEXT_BYTES_MAX = 32, ENVELOPE_BYTES = 256 };

struct bench_numbers {
    bool is_print;
    enum qk_type type;
    size_t count;
    struct bench_buffer values; /* the expected values, or the values to print */
    struct bench_buffer text;   /* the text to read, with padding after it, or the printed text */
    size_t text_bytes;
    struct bench_buffer out;
    size_t out_bytes;
    struct qd_memory *memory;
    void *library;
    bench_peer_read_fn *peer_read;
    bench_peer_print_fn *peer_print;
};

/* ---- Which numbers ----------------------------------------------------------------------- */

static uint64_t state;

static uint64_t random_bits(void)
{
    return random_next(&state);
}

/* Returns a number of roughly normal distribution with variance 1: the sum of twelve uniform
 * ones. */
static double random_normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (double)(random_bits() >> 11) * 0x1p-53;
    return sum;
}

static int print_uint8(char *text)
{
    return snprintf(text, TEXT_BYTES_MAX, "%u", (unsigned)(random_bits() >> 56));
}

static int print_int32(char *text)
{
    return snprintf(text, TEXT_BYTES_MAX, "%d", (int)(random_bits() >> 32));
}

static int print_int64(char *text)
{
    return snprintf(text, TEXT_BYTES_MAX, "%lld", (long long)random_bits());
}

static int print_six(char *text)
{
    return snprintf(text, TEXT_BYTES_MAX, "%.6g", random_normal());
}

static int print_shortest(char *text)
{
    const float value = (float)random_normal();
    for (int digits = 6;; digits++) {
        const int bytes = snprintf(text, TEXT_BYTES_MAX, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            return bytes;
    }
}

static int print_double(char *text)
{
    return snprintf(text, TEXT_BYTES_MAX, "%.17g", random_normal());
}

static float any_normal(void)
{
    return (float)random_normal();
}

static float any_bits(void)
{
    for (;;) {
        const uint32_t bits = (uint32_t)(random_bits() >> 32);
        float value;
        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value))
            return value;
    }
}

static float any_dequantized(void)
{
    return ((float)(random_bits() >> 56) - 128) * 0.0173f;
}

static float any_integer(void)
{
    return (float)((int)(random_bits() % 2000001) - 1000000);
}

static const struct kind {
    const char *name;
    enum qk_type type;
    int (*print)(char *text); /* to make numbers to read */
    float (*value)(void);     /* to make numbers to print */
} kinds[] = {
    {"uint8", QK_UINT8, print_uint8, NULL},          {"int32", QK_INT32, print_int32, NULL},
    {"int64", QK_FP32, print_int64, NULL},           {"six", QK_FP32, print_six, NULL},
    {"shortest", QK_FP32, print_shortest, NULL},     {"double", QK_FP32, print_double, NULL},
    {"normal", QK_FP32, NULL, any_normal},           {"bits", QK_FP32, NULL, any_bits},
    {"dequantized", QK_FP32, NULL, any_dequantized}, {"integers", QK_FP32, NULL, any_integer},
};

static size_t value_bytes(const struct bench_numbers *numbers)
{
    return numbers->count * qk_type_info(numbers->type)->bits / 8;
}

/* Stores the value of a number's text, as libc reads it. */
static void store_value(enum qk_type type, const char *text, void *values, size_t index)
{
    if (type == QK_FP32)
        ((float *)values)[index] = strtof(text, NULL);
    else if (type == QK_INT32)
        ((int32_t *)values)[index] = (int32_t)strtoll(text, NULL, 10);
    else
        ((uint8_t *)values)[index] = (uint8_t)strtoll(text, NULL, 10);
}

/* Makes a request with these numbers, and the expected values. */
static void make_text(struct bench_numbers *numbers, const struct kind *kind)
{
    const size_t count = numbers->count;
    bench_buffer_reserve(&numbers->text,
                         count * TEXT_BYTES_MAX + ENVELOPE_BYTES + BENCH_PEER_PADDING_BYTES);
    char *at = (char *)numbers->text.data;
    at += sprintf(at, "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"%s\",\"shape\":[%zu],\"data\":[",
                  qk_type_info(kind->type)->name, count);
    for (size_t i = 0; i < count; i++) {
        const char *text = at;
        at += kind->print(at);
        store_value(kind->type, text, numbers->values.data, i);
        *at++ = ',';
    }
    at += sprintf(at - 1, "]}]}") - 1;
    numbers->text_bytes = (size_t)(at - (char *)numbers->text.data);
}

static const struct kind *find_kind(const char *name, bool is_print)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0 && (kinds[i].value != NULL) == is_print)
            return &kinds[i];
    bench_fail("no numbers are called '%s' here", name);
}

static void load(struct bench_numbers *numbers, const char *library)
{
    if (strcmp(library, "-") == 0)
        return;
    numbers->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!numbers->library)
        bench_fail("%s", dlerror());
    *(void **)&numbers->peer_read = dlsym(numbers->library, "bench_peer_read");
    *(void **)&numbers->peer_print = dlsym(numbers->library, "bench_peer_print");
    if (!numbers->peer_read || !numbers->peer_print)
        bench_fail("%s", dlerror());
}

struct bench_numbers *bench_numbers_create(const char *task, const char *kind_name, size_t count,
                                           const char *library)
{
    struct bench_numbers *numbers = calloc(1, sizeof(*numbers));
    if (!numbers || count == 0)
        bench_fail("expected a count of numbers, and memory for them");
    numbers->is_print = strcmp(task, "print") == 0;
    const struct kind *kind = find_kind(kind_name, numbers->is_print);
    numbers->type = kind->type;
    numbers->count = count;
    numbers->memory = qd_memory_create(SIZE_MAX / 2);
    if (!numbers->memory)
        bench_fail("no memory");
    load(numbers, library);
    state = 88172645463325252;
    bench_buffer_reserve(&numbers->values, value_bytes(numbers));
    if (numbers->is_print) {
        for (size_t i = 0; i < count; i++)
            ((float *)numbers->values.data)[i] = kind->value();
        bench_buffer_reserve(&numbers->text, count * TEXT_BYTES_MAX + 1);
    } else {
        make_text(numbers, kind);
        bench_buffer_reserve(&numbers->out, value_bytes(numbers));
    }
    return numbers;
}

void bench_numbers_destroy(struct bench_numbers *numbers)
{
    if (!numbers)
        return;
    free(numbers->values.data);
    free(numbers->text.data);
    free(numbers->out.data);
    qd_memory_destroy(numbers->memory);
    if (numbers->library)
        dlclose(numbers->library);
    free(numbers);
}

size_t bench_numbers_bytes(const struct bench_numbers *numbers)
{
    return numbers->text_bytes;
}

/* ---- Reading ----------------------------------------------------------------------------- */

/* Reads the request's JSON like the server: first its tree, then its data, piece by piece. */
static void read_request(struct bench_numbers *numbers)
{
    struct qd_error error = {0};
    struct qd_arena arena;
    struct qd_json_reader reader;
    bool done = false;
    qd_arena_init(&arena, numbers->memory);
    qd_json_reader_init(&reader, (const char *)numbers->text.data, numbers->text_bytes,
                        QD_JSON_PIECE_BYTES, &arena, &error);
    while (!done)
        if (qd_json_reader_step(&reader, &done) != QD_OK)
            bench_fail("%s", error.text);
    const struct qd_json_value *data = reader.root->first->first->first;
    while (data->kind != QD_JSON_DATA)
        data = data->next;
    const struct qk_tensor tensor = {
        .type = numbers->type, .rank = 1, .dims = {numbers->count}, .count = numbers->count};
    struct qd_json_numbers job;
    qd_json_numbers_init(&job, data, reader.marks, &tensor);
    job.out = numbers->out.data;
    for (size_t piece = 0; piece <= job.mark_count; piece++)
        if (qd_json_numbers_read(&job, piece, "data", &error) != QD_OK)
            bench_fail("%s", error.text);
    qd_arena_deinit(&arena);
}

static void read_by_libc(struct bench_numbers *numbers)
{
    const char *at = strstr((const char *)numbers->text.data, "\"data\"") + strlen("\"data\":[");
    for (size_t i = 0; i < numbers->count; i++) {
        char *end;
        if (numbers->type == QK_FP32)
            ((float *)numbers->out.data)[i] = strtof(at, &end);
        else if (numbers->type == QK_INT32)
            ((int32_t *)numbers->out.data)[i] = (int32_t)strtoll(at, &end, 10);
        else
            numbers->out.data[i] = (uint8_t)strtoll(at, &end, 10);
        at = end + 1;
    }
}

static bool run_read(struct bench_numbers *numbers, const char *name)
{
    if (strcmp(name, "quantd") == 0) {
        read_request(numbers);
    } else if (strcmp(name, "libc") == 0) {
        read_by_libc(numbers);
    } else {
        const char kind = numbers->type == QK_FP32 ? 'f' : numbers->type == QK_INT32 ? 'i' : 'b';
        return numbers->peer_read &&
               numbers->peer_read(name, (const char *)numbers->text.data, numbers->text_bytes, kind,
                                  numbers->out.data, numbers->count);
    }
    return true;
}

/* ---- Printing ---------------------------------------------------------------------------- */

static size_t print_by_libc(const float *values, size_t count, char *out)
{
    char *at = out;
    for (size_t i = 0; i < count; i++) {
        at += sprintf(at, "%.9g", (double)values[i]);
        *at++ = ',';
    }
    return (size_t)(at - out);
}

static size_t print_by_quantd(const struct bench_numbers *numbers, char *out)
{
    const struct qk_tensor tensor = {.type = QK_FP32,
                                     .rank = 1,
                                     .dims = {numbers->count},
                                     .count = numbers->count,
                                     .data = numbers->values.data};
    return (size_t)(qd_json_elements_print(out, &tensor, 0, tensor.count) - out);
}

static bool run_print(struct bench_numbers *numbers, const char *name)
{
    const float *values = (const float *)numbers->values.data;
    char *out = (char *)numbers->text.data;
    if (strcmp(name, "quantd") == 0)
        numbers->text_bytes = print_by_quantd(numbers, out);
    else if (strcmp(name, "libc") == 0)
        numbers->text_bytes = print_by_libc(values, numbers->count, out);
    else
        numbers->text_bytes =
            numbers->peer_print ? numbers->peer_print(name, values, numbers->count, out) : 0;
    out[numbers->text_bytes] = '\0'; /* cuts off a longer, earlier text */
    return numbers->text_bytes > 0;
}

bool bench_numbers_run(struct bench_numbers *numbers, const char *name)
{
    if (numbers->is_print)
        return run_print(numbers, name);
    memset(numbers->out.data, 0x55, 1); /* so that the output of an earlier run does not count */
    return run_read(numbers, name);
}

bool bench_numbers_same(const struct bench_numbers *numbers)
{
    if (!numbers->is_print)
        return memcmp(numbers->out.data, numbers->values.data, value_bytes(numbers)) == 0;
    const char *at = (const char *)numbers->text.data;
    const char *text_end = at + numbers->text_bytes;
    for (size_t i = 0; i < numbers->count; i++) {
        char *end;
        const float value = strtof(at, &end);
        if (end == at || end > text_end ||
            memcmp(&value, numbers->values.data + i * sizeof(value), sizeof(value)) != 0)
            return false;
        at = end + 1;
    }
    return true;
}

/* ---- All floats -------------------------------------------------------------------------- */

/* Copies the digits of a number without its point, its sign and leading and trailing zeros. These
 * are the digits that a printer chose, whatever the notation. */
static size_t significant(const char *at, const char *end, char *digits)
{
    size_t count = 0, kept = 0;
    for (; at < end && *at != 'e'; at++) {
        if (*at < '0' || *at > '9' || (count == 0 && *at == '0'))
            continue;
        digits[count++] = *at;
        kept = *at == '0' ? kept : count;
    }
    return kept;
}

static bool check(const struct bench_numbers *numbers, uint32_t bits)
{
    float value, back;
    char text[2][TEXT_BYTES_MAX], digits[2][TEXT_BYTES_MAX];
    memcpy(&value, &bits, sizeof(value));
    const char *end = qd_print_float(text[0], value);
    struct qd_json_number number;
    if (qd_json_number_scan(text[0], end, &number) != end)
        return false;
    back = qd_json_number_to_float(&number);
    if (memcmp(&back, &value, sizeof(value)) != 0)
        return false;
    if (fabsf(value) >= 16777216 && fabsf(value) < 1e9f) { /* printed with all digits */
        snprintf(text[1], sizeof(text[1]), "%.0f", (double)value);
        return strlen(text[1]) == (size_t)(end - text[0]) &&
               memcmp(text[0], text[1], strlen(text[1])) == 0;
    }
    if (!numbers->peer_print)
        return true;
    const size_t bytes = numbers->peer_print("scientific", &value, 1, text[1]);
    const size_t count = significant(text[0], end, digits[0]);
    return bytes > 0 && count == significant(text[1], text[1] + bytes - 1, digits[1]) &&
           memcmp(digits[0], digits[1], count) == 0;
}

size_t bench_numbers_check(const char *library, size_t first, size_t last)
{
    struct bench_numbers numbers = {0};
    size_t wrong = 0;
    load(&numbers, library);
    for (size_t bits = first; bits <= last && bits <= UINT32_MAX; bits++) {
        const bool is_finite = (bits >> 23 & 0xff) != 0xff;
        if (is_finite && !check(&numbers, (uint32_t)bits) && wrong++ == 0)
            fprintf(stderr, "measure: float %08zx is not printed as it should be\n", bits);
    }
    if (numbers.library)
        dlclose(numbers.library);
    return wrong;
}
