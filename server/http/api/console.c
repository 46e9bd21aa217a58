#define _GNU_SOURCE
#include "server/http/api/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/digest.h"
#include "server/http/api/embed.h"
#include "server/http/api/handlers.h"

QD_EMBED(qd_console_index_html, "server/console/index.html");
QD_EMBED(qd_console_style_css, "server/console/style.css");
QD_EMBED(qd_console_dom_js, "server/console/dom.js");
QD_EMBED(qd_console_api_js, "server/console/api.js");
QD_EMBED(qd_console_metrics_js, "server/console/metrics.js");
QD_EMBED(qd_console_charts_js, "server/console/charts.js");
QD_EMBED(qd_console_tensor_js, "server/console/tensor.js");
QD_EMBED(qd_console_fields_js, "server/console/fields.js");
QD_EMBED(qd_console_playground_js, "server/console/playground.js");
QD_EMBED(qd_console_programs_js, "server/console/programs.js");
QD_EMBED(qd_console_answer_js, "server/console/answer.js");
QD_EMBED(qd_console_network_js, "server/console/network.js");
QD_EMBED(qd_console_server_js, "server/console/server.js");
QD_EMBED(qd_console_main_js, "server/console/main.js");

enum { HASH_BYTES = 44 /* SHA-256 as base64 */, SCRIPT_COUNT = 12 };

struct qd_console {
    struct qd_part page;
    char *bytes;
    char tag[2 + 2 * QD_DIGEST_BYTES + 1];
    char policy[512];
};

/* ---- The page ----------------------------------------------------------------------------- */

/* Returns the part of the text that begins after the first `mark`. */
static struct qd_part behind(struct qd_part text, const char *mark)
{
    const char *found = memmem(text.bytes, text.count, mark, strlen(mark));
    if (found == NULL)
        abort(); /* the built-in index.html lacks the mark: a mistake in the source, which each
                    start with the console shows */
    const char *begin = found + strlen(mark);
    const char *end = (const char *)text.bytes + text.count;
    return (struct qd_part){begin, (size_t)(end - begin)};
}

static struct qd_part before(struct qd_part text, struct qd_part rest)
{
    return (struct qd_part){text.bytes, text.count - rest.count};
}

static char *append(char *at, struct qd_part part)
{
    memcpy(at, part.bytes, part.count);
    return at + part.count;
}

static void print_base64(const struct qd_digest *digest, char text[HASH_BYTES + 1])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < QD_DIGEST_BYTES; i += 3) {
        uint32_t bits = 0;
        for (size_t at = i; at < i + 3; at++)
            bits = bits << 8 | (at < QD_DIGEST_BYTES ? digest->bytes[at] : 0);
        for (unsigned shift = 24; shift > 0; shift -= 6)
            *text++ = digits[bits >> (shift - 6) & 63];
    }
    text[-1] = '='; /* 32 bytes are one less than a multiple of three */
    *text = '\0';
}

/* Prints the page's ETag and its Content-Security-Policy, by which a browser may run only this
 * script, show only this style, and ask only this server. Returns false if a digest cannot be
 * computed. */
static bool print_headers(struct qd_console *console, struct qd_part style, struct qd_part script)
{
    struct qd_digest of_style, of_script, of_page;
    char style_hash[HASH_BYTES + 1], script_hash[HASH_BYTES + 1];
    if (!qd_digest_of(style.bytes, style.count, &of_style) ||
        !qd_digest_of(script.bytes, script.count, &of_script) ||
        !qd_digest_of(console->page.bytes, console->page.count, &of_page))
        return false;
    print_base64(&of_style, style_hash);
    print_base64(&of_script, script_hash);
    snprintf(console->policy, sizeof(console->policy),
             "default-src 'none'; connect-src 'self'; img-src data: blob:; script-src 'sha256-%s'; "
             "style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
             "require-trusted-types-for 'script'",
             script_hash, style_hash);
    char *at = console->tag;
    *at++ = '"';
    for (size_t i = 0; i < QD_DIGEST_BYTES; i++)
        at += snprintf(at, 3, "%02x", of_page.bytes[i]);
    memcpy(at, "\"", 2);
    return true;
}

struct qd_console *qd_console_create(void)
{
    const struct qd_part scripts[SCRIPT_COUNT] = {
        QD_EMBEDDED(qd_console_dom_js),        QD_EMBEDDED(qd_console_api_js),
        QD_EMBEDDED(qd_console_metrics_js),    QD_EMBEDDED(qd_console_charts_js),
        QD_EMBEDDED(qd_console_tensor_js),     QD_EMBEDDED(qd_console_fields_js),
        QD_EMBEDDED(qd_console_playground_js), QD_EMBEDDED(qd_console_programs_js),
        QD_EMBEDDED(qd_console_answer_js),     QD_EMBEDDED(qd_console_network_js),
        QD_EMBEDDED(qd_console_server_js),     QD_EMBEDDED(qd_console_main_js)};
    const struct qd_part index = QD_EMBEDDED(qd_console_index_html);
    const struct qd_part from_style = behind(index, "<style>");
    const struct qd_part from_script = behind(index, "<script>");
    const struct qd_part style = QD_EMBEDDED(qd_console_style_css);
    struct qd_part script = {NULL, 0};
    for (size_t i = 0; i < SCRIPT_COUNT; i++)
        script.count += scripts[i].count;
    struct qd_console *console = calloc(1, sizeof(*console));
    if (console == NULL)
        return NULL;
    console->page.count = index.count + style.count + script.count;
    console->bytes = malloc(console->page.count);
    console->page.bytes = console->bytes;
    if (console->bytes != NULL) {
        char *at = append(append(console->bytes, before(index, from_style)), style);
        at = append(at, before(from_style, from_script));
        script.bytes = at;
        for (size_t i = 0; i < SCRIPT_COUNT; i++)
            at = append(at, scripts[i]);
        append(at, from_script);
        if (print_headers(console, style, script))
            return console;
    }
    qd_console_destroy(console);
    return NULL;
}

void qd_console_destroy(struct qd_console *console)
{
    if (console != NULL)
        free(console->bytes);
    free(console);
}

/* ---- A request ---------------------------------------------------------------------------- */

/* Returns true if If-None-Match, which is a list of tags, weak or not, contains the tag. */
static bool has_tag(const char *list, const char *tag)
{
    return list != NULL && (strcmp(list, "*") == 0 || strstr(list, tag) != NULL);
}

/* Adds the page's headers when the request's body has ended, so that the refusal of a body, which
 * no GET needs, does not get them. */
static bool end_page(void *context, struct qd_request *request)
{
    const struct qd_console *console = ((const struct qd_server *)context)->console;
    qd_request_add_header(request, "ETag", console->tag);
    qd_request_add_header(request, "Cache-Control", "no-cache");
    qd_request_add_header(request, "Content-Security-Policy", console->policy);
    qd_request_add_header(request, "X-Content-Type-Options", "nosniff");
    qd_request_add_header(request, "Referrer-Policy", "no-referrer");
    return true;
}

enum qd_status qd_answer_console(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    const struct qd_console *console = context->server->console;
    if (console == NULL) {
        return qd_fail(
            &request->error, QD_NOT_FOUND,
            "path: expected an endpoint's, got \"/\"; POST /v2/repository/index lists the models");
    }
    request->end = end_page;
    qd_context_answer_constant(request, QD_OK, &console->page);
    request->answer.content_type = "text/html; charset=utf-8";
    if (has_tag(context->head->if_none_match, console->tag)) {
        request->answer.http_status = 304; /* libmicrohttpd sends only the page's length */
        request->answer.content_type = NULL;
    }
    return QD_OK;
}
