#include "server/http/wire/head.h"

#include <string.h>
#include <strings.h>

#define BLANKS " \t"

/* Returns true if the text is this name. Upper and lower case are equal. */
static bool is(const char *text, size_t bytes, const char *name)
{
    return strlen(name) == bytes && strncasecmp(text, name, bytes) == 0;
}

/* gzip's older name means the same (RFC 9110, 8.4.1.3). */
static bool is_gzip(const char *text, size_t bytes)
{
    return is(text, bytes, "gzip") || is(text, bytes, "x-gzip");
}

bool qd_coding_read(const char *content_encoding, enum qd_coding *coding)
{
    *coding = QD_CODING_IDENTITY;
    if (content_encoding == NULL)
        return true;
    const char *text = content_encoding + strspn(content_encoding, BLANKS);
    const size_t bytes = strcspn(text, BLANKS);
    if (text[bytes + strspn(text + bytes, BLANKS)] != '\0')
        return false;
    if (is_gzip(text, bytes))
        *coding = QD_CODING_GZIP;
    else if (is(text, bytes, "deflate"))
        *coding = QD_CODING_DEFLATE;
    else
        return bytes == 0 || is(text, bytes, "identity");
    return true;
}

/* ---- Accept-Encoding ---------------------------------------------------------------------- */

void qd_accepted_init(struct qd_accepted *accepted)
{
    *accepted = (struct qd_accepted){-1, -1, -1, -1};
}

/* Returns a weight such as 0, 0.5, 1 or 1.000 in thousandths. Returns -1 if the text is not a
 * weight. */
static int read_weight(const char *text, size_t bytes)
{
    if (bytes == 0 || bytes > 5 || (text[0] != '0' && text[0] != '1') ||
        (bytes > 1 && text[1] != '.'))
        return -1;
    int weight = (text[0] - '0') * 1000;
    int digit_weight = 100;
    for (size_t i = 2; i < bytes; i++, digit_weight /= 10) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        weight += (text[i] - '0') * digit_weight;
    }
    return weight <= 1000 ? weight : -1;
}

/* Reads what follows a coding's name: nothing, or ;q=WEIGHT with blanks around the semicolon.
 * Returns the weight in thousandths, or -1 if the text is neither. */
static int read_parameter(const char *text)
{
    text += strspn(text, BLANKS);
    if (*text == '\0' || *text == ',')
        return 1000;
    const char *name = text + 1 + strspn(text + 1, BLANKS);
    if (*text != ';' || strncasecmp(name, "q=", 2) != 0)
        return -1;
    const size_t bytes = strcspn(name + 2, BLANKS ",");
    const char *end = name + 2 + bytes;
    end += strspn(end, BLANKS);
    return *end == '\0' || *end == ',' ? read_weight(name + 2, bytes) : -1;
}

void qd_accepted_add(struct qd_accepted *accepted, const char *accept_encoding)
{
    const char *text = accept_encoding + strspn(accept_encoding, BLANKS ",");
    while (*text != '\0') {
        const size_t bytes = strcspn(text, BLANKS ",;");
        const int weight = read_parameter(text + bytes);
        int *const its = is_gzip(text, bytes)          ? &accepted->gzip
                         : is(text, bytes, "deflate")  ? &accepted->deflate
                         : is(text, bytes, "identity") ? &accepted->identity
                         : is(text, bytes, "*")        ? &accepted->any
                                                       : NULL;
        if (weight >= 0 && its != NULL)
            *its = weight;
        text += strcspn(text, ",");
        text += strspn(text, BLANKS ",");
    }
}

enum qd_coding qd_accepted_choose(const struct qd_accepted *accepted)
{
    const int any = accepted->any > 0 ? accepted->any : 0;
    const int gzip = accepted->gzip >= 0 ? accepted->gzip : any;
    const int deflate = accepted->deflate >= 0 ? accepted->deflate : any;
    const int identity = accepted->identity > 0 ? accepted->identity : 0; /* the last choice */
    if (gzip > 0 && gzip >= deflate && gzip >= identity)
        return QD_CODING_GZIP;
    return deflate > 0 && deflate >= identity ? QD_CODING_DEFLATE : QD_CODING_IDENTITY;
}
