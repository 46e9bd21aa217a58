#define _GNU_SOURCE
#include "server/http/api/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/digest.h"
#include "server/http/api/embed.h"
#include "server/http/api/handlers.h"

#define SCRIPT(name) QD_FILE("server/console/" name ".js")

QD_EMBED(qd_console_index_html, QD_FILE("server/console/index.html"));
QD_EMBED(qd_console_style_css, QD_FILE("server/console/style.css"));
QD_EMBED(qd_console_script,
         SCRIPT("dom") SCRIPT("api") SCRIPT("metrics") SCRIPT("charts") SCRIPT("tensor")
             SCRIPT("fields") SCRIPT("playground") SCRIPT("programs") SCRIPT("answer")
                 SCRIPT("network") SCRIPT("server") SCRIPT("main"));

enum { HASH_BYTES = 44 /* SHA-256 as base64 */ };

struct qd_console {
    struct qd_part page;
    char tag[2 + HASH_BYTES + 1];
    char policy[512];
    char bytes[]; /* of the page */
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

/* Prints a digest as base64. Returns false if it cannot be computed. */
static bool print_hash(struct qd_part part, char text[HASH_BYTES + 1])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct qd_digest digest;
    if (!qd_digest_of(part.bytes, part.count, &digest))
        return false;
    for (size_t i = 0; i < QD_DIGEST_BYTES; i += 3) {
        uint32_t bits = 0;
        for (size_t at = i; at < i + 3; at++)
            bits = bits << 8 | (at < QD_DIGEST_BYTES ? digest.bytes[at] : 0);
        for (unsigned shift = 24; shift > 0; shift -= 6)
            *text++ = digits[bits >> (shift - 6) & 63];
    }
    text[-1] = '='; /* 32 bytes are one less than a multiple of three */
    *text = '\0';
    return true;
}

/* Prints the page's ETag and its Content-Security-Policy, by which a browser may run only this
 * script, show only this style, and ask only this server. Returns false if a digest cannot be
 * computed. */
static bool print_headers(struct qd_console *console, struct qd_part style, struct qd_part script)
{
    char style_hash[HASH_BYTES + 1], script_hash[HASH_BYTES + 1], page_hash[HASH_BYTES + 1];
    if (!print_hash(style, style_hash) || !print_hash(script, script_hash) ||
        !print_hash(console->page, page_hash))
        return false;
    snprintf(console->policy, sizeof(console->policy),
             "default-src 'none'; connect-src 'self'; img-src data: blob:; script-src 'sha256-%s'; "
             "style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
             "require-trusted-types-for 'script'",
             script_hash, style_hash);
    snprintf(console->tag, sizeof(console->tag), "\"%s\"", page_hash);
    return true;
}

struct qd_console *qd_console_create(void)
{
    const struct qd_part index = QD_EMBEDDED(qd_console_index_html);
    const struct qd_part from_style = behind(index, "<style>");
    const struct qd_part from_script = behind(index, "<script>");
    const struct qd_part style = QD_EMBEDDED(qd_console_style_css);
    const struct qd_part script = QD_EMBEDDED(qd_console_script);
    const size_t count = index.count + style.count + script.count;
    struct qd_console *console = malloc(sizeof(*console) + count);
    if (console == NULL)
        return NULL;
    console->page = (struct qd_part){console->bytes, count};
    char *at = append(append(console->bytes, before(index, from_style)), style);
    at = append(append(at, before(from_style, from_script)), script);
    append(at, from_script);
    if (print_headers(console, style, script))
        return console;
    free(console);
    return NULL;
}

/* ---- A request ---------------------------------------------------------------------------- */

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
    if (console == NULL)
        return qd_path_refuse("/", &request->error);
    request->end = end_page;
    qd_context_answer_constant(request, QD_OK, &console->page);
    request->answer.content_type = "text/html; charset=utf-8";
    const char *tags = context->head->if_none_match; /* a list of tags, weak or not */
    if (tags != NULL && (strcmp(tags, "*") == 0 || strstr(tags, console->tag) != NULL)) {
        request->answer.http_status = 304; /* libmicrohttpd sends only the page's length */
        request->answer.content_type = NULL;
    }
    return QD_OK;
}
