#include "server/json/element.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Types of 8 bits and less: their few values are in a table --------------------------- */

static bool is_small(enum qk_type type)
{
    return qk_type_info(type)->bits <= 8;
}

/* Returns whether the type only takes numbers that it has exactly. All of its values have at most
 * 12 digits. */
static bool is_exact(enum qk_type type)
{
    return is_small(type) && type != QK_FP8E8M0;
}

/* Returns the sign bit, or 0 if the type has no sign. */
static uint32_t sign_bit(enum qk_type type)
{
    return type == QK_FP8E8M0 ? 0 : UINT32_C(1) << (qk_type_info(type)->bits - 1);
}

/* Returns how many codes without a sign there are. They ascend with their values; NaN and infinity
 * are the last. */
static uint32_t code_count(enum qk_type type)
{
    uint32_t sign = sign_bit(type);
    return sign != 0 ? sign : UINT32_C(1) << qk_type_info(type)->bits;
}

/* Returns the first code whose value is at least `magnitude`. */
static uint32_t find_code(enum qk_type type, float magnitude)
{
    uint32_t begin = 0;
    uint32_t end = code_count(type);
    while (begin < end) {
        uint32_t middle = (begin + end) / 2;
        if (qk_float_decode(type, middle) < magnitude)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static bool find_nan(enum qk_type type, uint32_t *bits)
{
    *bits = code_count(type) - 1;
    if (!isnan(qk_float_decode(type, *bits)))
        *bits = sign_bit(type);
    return isnan(qk_float_decode(type, *bits));
}

static bool find_bits(enum qk_type type, float value, uint32_t *bits)
{
    if (isnan(value))
        return find_nan(type, bits);
    *bits = find_code(type, fabsf(value)) | (signbit(value) ? sign_bit(type) : 0);
    float found = qk_float_decode(type, *bits);
    return found == value && signbit(found) == signbit(value);
}

/* Prints the two values of the type around a number, or the nearest one if the number is out of
 * range. */
static void print_neighbours(enum qk_type type, float value, char *text, size_t size)
{
    char near[2][QD_PRINT_BYTES_MAX + 1];
    size_t count = 0;
    bool negative = value < 0 && sign_bit(type) != 0;
    uint32_t code = value < 0 && !negative ? 0 : find_code(type, fabsf(value));
    for (int above = 0; above < 2; above++) {
        uint32_t bits = above ? code : code - 1; /* wraps to a huge number below code 0 */
        if (bits >= code_count(type) || !isfinite(qk_float_decode(type, bits)))
            continue;
        bits |= negative && bits != 0 ? sign_bit(type) : 0;
        *qd_json_float_print(type, bits, near[count++]) = '\0';
    }
    const char *name = qk_type_info(type)->name;
    if (count == 1)
        snprintf(text, size, "a value of %s, such as %s", name, near[0]);
    else
        snprintf(text, size, "a value of %s, such as %s or %s", name, near[0], near[1]);
}

/* ---- Words ------------------------------------------------------------------------------- */

static const struct word {
    const char *text; /* with quotes */
    float value;
} words[] = {{"\"NaN\"", NAN}, {"\"Infinity\"", INFINITY}, {"\"-Infinity\"", -INFINITY}};

enum { WORDS = sizeof(words) / sizeof(words[0]) };

/* Returns the end of the word at `at`, with or without quotes, or NULL if there is none. */
static const char *scan_word(const char *at, const char *end, float *value)
{
    for (size_t i = 0; i < WORDS; i++) {
        bool bare = at < end && *at != '"';
        const char *text = words[i].text + bare;
        size_t count = strlen(text) - bare;
        if ((size_t)(end - at) < count || memcmp(at, text, count) != 0)
            continue;
        *value = words[i].value;
        return qd_json_element_ends(at + count, end) ? at + count : NULL;
    }
    return NULL;
}

/* ---- All types --------------------------------------------------------------------------- */

static bool convert_word(enum qk_type type, float value, uint32_t *bits)
{
    switch (type) {
    case QK_FP32:
        memcpy(bits, &value, sizeof(value));
        return true;
    case QK_FP16:
        *bits = qk_fp16_round(value);
        return true;
    case QK_BF16:
        *bits = qk_bf16_round(value);
        return true;
    default:
        return find_bits(type, value, bits);
    }
}

static bool convert_number(enum qk_type type, const struct qd_json_number *number, uint32_t *bits)
{
    float value;
    switch (type) {
    case QK_FP32:
        value = qd_json_number_to_float(number);
        memcpy(bits, &value, sizeof(value));
        return !isinf(value);
    case QK_FP16:
    case QK_BF16:
        convert_word(type, qd_json_number_to_odd(number), bits);
        return !isinf(qk_float_decode(type, *bits));
    case QK_FP8E8M0:
        return find_bits(type, qd_json_number_to_float(number), bits);
    default:
        return qd_json_number_exact(number, &value) && find_bits(type, value, bits);
    }
}

const char *qd_json_float_read(enum qk_type type, const char *at, const char *end, uint32_t *bits)
{
    struct qd_json_number number;
    const char *number_end = qd_json_number_scan(at, end, &number);
    if (number_end != NULL && qd_json_element_ends(number_end, end))
        return convert_number(type, &number, bits) ? number_end : NULL;
    float value;
    const char *word_end = scan_word(at, end, &value);
    return word_end != NULL && convert_word(type, value, bits) ? word_end : NULL;
}

void qd_json_float_expected(enum qk_type type, const char *at, const char *end, char *text,
                            size_t size)
{
    struct qd_json_number number;
    const char *number_end = qd_json_number_scan(at, end, &number);
    if (is_small(type) && number_end != NULL && qd_json_element_ends(number_end, end)) {
        print_neighbours(type, qd_json_number_to_float(&number), text, size);
        return;
    }
    const char *name = qk_type_info(type)->name;
    size_t used = (size_t)snprintf(
        text, size, is_small(type) ? "a value of %s" : "a number in the range of %s", name);
    uint32_t bits;
    size_t count = WORDS;
    while (count > 0 && !convert_word(type, words[count - 1].value, &bits))
        count--;
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i + 1 < count ? ", " : " or ",
                                 words[i].text);
}

char *qd_json_float_print(enum qk_type type, uint32_t bits, char *out)
{
    float value = qk_float_decode(type, bits);
    if (isfinite(value) && value != 0 && is_exact(type))
        return out + snprintf(out, QD_PRINT_BYTES_MAX, "%.17g", (double)value);
    return qd_print_float(out, value);
}

/* ---- INT64 and BOOL ---------------------------------------------------------------------- */

const char *qd_json_int64_read(const char *at, const char *end, int64_t *value)
{
    const bool is_quoted = at < end && *at == '"';
    struct qd_json_number number;
    at = qd_json_number_scan(at + is_quoted, end, &number);
    if (at == NULL || (is_quoted && (at == end || *at != '"')))
        return NULL;
    at += is_quoted;
    return qd_json_element_ends(at, end) && qd_json_number_to_int64(&number, value) ? at : NULL;
}

const char *qd_json_bool_read(const char *at, const char *end, bool *value)
{
    static const char *const texts[] = {"true", "false", "1", "0"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const size_t count = strlen(texts[i]);
        if ((size_t)(end - at) < count || memcmp(at, texts[i], count) != 0)
            continue;
        *value = i % 2 == 0;
        return qd_json_element_ends(at + count, end) ? at + count : NULL;
    }
    return NULL;
}
