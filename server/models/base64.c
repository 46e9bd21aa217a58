#include "server/models/base64.h"

#include <stdio.h>
#include <string.h>

#include "server/json/string.h"

/* The six bits of each ASCII character in the standard alphabet or in the one for URLs. N: the
 * character is in neither. */
enum { N = 0x80 };
static const uint8_t values[128] = {
    N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,
    N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  N,  62,
    N,  62, N,  63, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, N,  N,  N,  N,  N,  N,  N,  0,
    1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
    23, 24, 25, N,  N,  N,  N,  63, N,  26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,
    39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, N,  N,  N,  N,  N,
};

void qd_base64_init(struct qd_base64 *decoder, const char *text, size_t count, char *out)
{
    *decoder = (struct qd_base64){.begin = text, .at = text, .end = text + count, .out = out};
}

static enum qd_status expected(const struct qd_base64 *decoder, const char *what,
                               struct qd_error *error)
{
    char got[16] = "the end";
    if (decoder->at < decoder->end) {
        const unsigned char byte = (unsigned char)*decoder->at;
        snprintf(got, sizeof(got), byte > 0x20 && byte < 0x7f ? "'%c'" : "byte 0x%02x", byte);
    }
    return qd_fail(error, QD_INVALID, "base64, character %zu: expected %s, got %s",
                   (size_t)(decoder->at - decoder->begin), what, got);
}

static unsigned value_of(char character)
{
    return (unsigned char)character < 128 ? values[(unsigned char)character] : (unsigned)N;
}

/* Decodes whole groups without escapes and blanks. Nearly all groups are like this. */
static void decode_groups(struct qd_base64 *decoder, const char *end)
{
    const char *at = decoder->at;
    char *out = decoder->out;
    for (; end - at >= 4; at += 4) {
        unsigned a = value_of(at[0]), b = value_of(at[1]), c = value_of(at[2]), d = value_of(at[3]);
        if (((a | b | c | d) & N) != 0)
            break;
        uint32_t bits = a << 18 | b << 12 | c << 6 | d;
        *out++ = (char)(bits >> 16);
        *out++ = (char)(bits >> 8);
        *out++ = (char)bits;
    }
    decoder->at = at;
    decoder->out = out;
}

/* Reads the character at `at`. Returns how many bytes of JSON it takes, or 0 if it is an escape
 * that base64 cannot have. Escapes of blanks are allowed. */
static size_t read_character(const struct qd_base64 *decoder, char *character)
{
    const char *at = decoder->at;
    size_t left = (size_t)(decoder->end - at);
    *character = *at;
    if (*at != '\\')
        return 1;
    if (left >= 2 && at[1] == '/') {
        *character = '/';
        return 2;
    }
    static const char escapes[] = "nrt", blanks[] = "\n\r\t";
    const char *escape = left < 2 ? NULL : memchr(escapes, at[1], sizeof(escapes) - 1);
    if (escape != NULL) {
        *character = blanks[escape - escapes];
        return 2;
    }
    if (left < 6 || at[1] != 'u')
        return 0;
    long code = qd_json_hex4(at + 2, decoder->end);
    *character = (char)code;
    return code > 0 && code < 128 ? 6 : 0;
}

/* Writes the bytes of a last group that is not full. Its unused bits must be 0. */
static enum qd_status end_padded(struct qd_base64 *decoder, struct qd_error *error)
{
    uint32_t bits = decoder->bits << (decoder->count == 2 ? 12 : 6);
    if ((bits & (decoder->count == 2 ? 0xffffu : 0xffu)) != 0)
        return expected(decoder, "zeros as the last bits before it", error);
    *decoder->out++ = (char)(bits >> 16);
    if (decoder->count == 3)
        *decoder->out++ = (char)(bits >> 8);
    decoder->bits = decoder->count = 0;
    return QD_OK;
}

static enum qd_status decode_character(struct qd_base64 *decoder, struct qd_error *error)
{
    char character;
    size_t bytes = read_character(decoder, &character);
    unsigned value = bytes == 0 ? (unsigned)N : value_of(character);
    if (bytes > 0 && memchr(" \n\r\t", character, 4) != NULL) {
        decoder->at += bytes;
        return QD_OK;
    }
    if (bytes > 0 && character == '=' && decoder->count >= 2 && decoder->padded < 2) {
        decoder->padded++;
        if (decoder->count + decoder->padded == 4) {
            if (end_padded(decoder, error) != QD_OK)
                return error->status;
            decoder->padded = 4; /* nothing may follow */
        }
        decoder->at += bytes;
        return QD_OK;
    }
    if (decoder->padded > 0)
        return expected(decoder, decoder->padded == 4 ? "the end" : "'='", error);
    if (value == N)
        return expected(decoder, "a letter, a digit, '+', '/', '-', '_' or, at the end, '='",
                        error);
    decoder->bits = decoder->bits << 6 | value;
    decoder->at += bytes;
    if (++decoder->count == 4) {
        *decoder->out++ = (char)(decoder->bits >> 16);
        *decoder->out++ = (char)(decoder->bits >> 8);
        *decoder->out++ = (char)decoder->bits;
        decoder->bits = decoder->count = 0;
    }
    return QD_OK;
}

enum qd_status qd_base64_step(struct qd_base64 *decoder, size_t characters, struct qd_error *error)
{
    size_t left = (size_t)(decoder->end - decoder->at);
    const char *until = decoder->at + (characters < left ? characters : left);
    while (decoder->at < until) {
        if (decoder->count == 0 && decoder->padded == 0)
            decode_groups(decoder, until);
        if (decoder->at == until)
            break;
        if (decode_character(decoder, error) != QD_OK)
            return error->status;
    }
    return QD_OK;
}

enum qd_status qd_base64_finish(struct qd_base64 *decoder, struct qd_error *error)
{
    if (decoder->count == 1)
        return expected(decoder, "a second character of the last byte", error);
    return decoder->count == 0 ? QD_OK : end_padded(decoder, error);
}
