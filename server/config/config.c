#define _GNU_SOURCE
#include "server/config/config.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/qk.h"
#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/config/address.h"

enum kind {
    KIND_ACTION, /* takes no value; `min` is what quantd does in place of serving */
    KIND_LISTEN,
    KIND_ORIGIN,
    KIND_COUNT,
    KIND_PERMISSIONS,
    KIND_BYTES,
    KIND_SECONDS,
    KIND_CPU,
    KIND_GEMM,
    KIND_SWITCH,
    KIND_LEVEL,
    KIND_PATH,
    KIND_NAMES,
    KIND_FILES,
    KIND_MODE,
    KIND_FORMAT
};

struct flag {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct qd_config; of a list, its count */
    const char *initial;
    uint64_t min; /* of times, in seconds */
    uint64_t max;
    const char *value; /* as the help prints it */
    const char *about;
};

#define AT(field) offsetof(struct qd_config, field)

/* A row without a name starts a group of the help. */
static const struct flag flags[] = {
    {.about = "Where to listen"},
    {"listen", KIND_LISTEN, AT(listen_count), "127.0.0.1:8000", 0, 0, "ADDR:PORT",
     "or [ADDR6]:PORT or unix:PATH; repeatable; port 0 picks a free port"},
    {"unix-mode", KIND_PERMISSIONS, AT(unix_mode), "0660", 0, 0777, "OCTAL",
     "mode of Unix sockets: users with write permission may connect"},
    {"unix-owner", KIND_PATH, AT(unix_owner), "", 0, 0, "USER:GROUP",
     "owner of Unix sockets: USER, USER:GROUP or :GROUP, as names or numbers"},
    {.about = "Access"},
    {"tls-cert", KIND_PATH, AT(tls_cert), "", 0, 0, "FILE",
     "certificate chain (PEM): serves HTTPS over TCP; SIGHUP reads the file again"},
    {"tls-key", KIND_PATH, AT(tls_key), "", 0, 0, "FILE",
     "the certificate's private key (PEM, not encrypted)"},
    {"token-file", KIND_PATH, AT(token_file), "", 0, 0, "FILE",
     "bearer tokens, one per line: TOKEN [NAME]; SIGHUP reads the file again"},
    {"cors-origin", KIND_ORIGIN, AT(cors_origin_count), "", 0, 0, "ORIGIN",
     "origin of allowed web pages: https://app.example; repeatable; '*': any"},
    {"allow-shared-memory", KIND_PATH, AT(shared_memory_prefix), "", 0, 0, "PREFIX",
     "allow POSIX shared memory whose key begins with PREFIX; '*': any key"},
    {.about = "Sizes"},
    {"threads", KIND_COUNT, AT(threads), "auto", 1, QD_THREAD_COUNT_MAX, "N",
     "worker threads; auto: one for each CPU that quantd may use"},
    {"io-threads", KIND_COUNT, AT(io_threads), "1", 1, QD_IO_THREAD_COUNT_MAX, "N",
     "I/O threads, each with its own connections; at most 16"},
    {"max-connections", KIND_COUNT, AT(max_connections), "4096", 1, 1000000, "N",
     "open connections for each listening address; more get a 503"},
    {"max-connections-per-address", KIND_COUNT, AT(max_connections_per_address), "0", 0, 1000000,
     "N", "open connections for each client address or IPv6 /64; 0: no bound"},
    {"max-queue", KIND_COUNT, AT(max_queue), "1024", 1, 1000000, "N",
     "requests that wait for a worker; more get a 503"},
    {"max-body-bytes", KIND_BYTES, AT(max_body_bytes), "256M", 1, UINT64_C(1) << 40, "BYTES",
     "largest request body; a larger one gets a 413"},
    {"max-inflight-bytes", KIND_BYTES, AT(max_inflight_bytes), "auto", 1 << 20, UINT64_C(1) << 46,
     "BYTES", "memory of all requests (else 503); auto: half of memory, at most 2G"},
    {"max-model-bytes", KIND_BYTES, AT(max_model_bytes), "auto", 1 << 20, UINT64_C(1) << 46,
     "BYTES", "memory of loaded models and of loading; auto: a quarter of memory"},
    {"max-shared-bytes", KIND_BYTES, AT(max_shared_bytes), "auto", 4 << 10, UINT64_C(1) << 46,
     "BYTES", "size of all shared memory regions; auto: half of memory"},
    {"compress-answers", KIND_SWITCH, AT(compress_answers), "off", 0, 0, "SWITCH",
     "on or off: compress inferences' answers for clients that ask for it"},
    {.about = "Times"},
    {"receive-timeout", KIND_SECONDS, AT(receive_timeout_ns), "30", 0, 86400, "SECONDS",
     "time for a request's head to arrive (else 408)"},
    {"min-rate", KIND_BYTES, AT(min_rate_bytes), "64K", 0, UINT64_C(1) << 40, "BYTES",
     "least bytes per second of a body (else 408) or an answer; 0: just not silent"},
    {"idle-timeout", KIND_SECONDS, AT(idle_timeout_ns), "75", 0, 86400, "SECONDS",
     "time from an answer to the connection's next request"},
    {"compute-timeout", KIND_SECONDS, AT(compute_timeout_ns), "60", 0, 86400, "SECONDS",
     "time from a request's last byte, or a load's start, to its answer (else 503)"},
    {"drain-timeout", KIND_SECONDS, AT(drain_timeout_ns), "30", 0, 86400, "SECONDS",
     "time to answer the accepted requests after SIGTERM"},
    {.about = "Loaded models"},
    {"model", KIND_FILES, AT(model_count), "", 0, 0, "FILE",
     "serve this ONNX file: FILE or NAME=FILE, with commas; repeatable"},
    {"model-repository", KIND_PATH, AT(model_repository), "", 0, 0, "DIR",
     "folder with NAME/VERSION/model.onnx, NAME/model.onnx or NAME.onnx"},
    {"model-control-mode", KIND_MODE, AT(model_control_mode), "none", 0, 0, "MODE",
     "none: load all at start; explicit: load by calls; poll: follow changes"},
    {"load-model", KIND_NAMES, AT(load_model_count), "", 0, 0, "NAMES",
     "models to load at start in mode explicit, with commas; repeatable; '*': all"},
    {"repository-poll-secs", KIND_SECONDS, AT(repository_poll_ns), "15", 0, 86400, "SECONDS",
     "time between two scans of the repository in mode poll"},
    {"exit-on-error", KIND_SWITCH, AT(exit_on_error), "on", 0, 0, "SWITCH",
     "on or off: exit if a model cannot be loaded at start"},
    {"allow-repository-links", KIND_SWITCH, AT(allow_repository_links), "off", 0, 0, "SWITCH",
     "on or off: links may lead out of the folder that contains them"},
    {.about = "Other"},
    {"cpu", KIND_CPU, AT(cpu), "auto", 0, 0, "TIER", "kernels: "}, /* print_names adds the names */
    {"gemm", KIND_GEMM, AT(gemm), "auto", 0, 0, "BACKEND", "convolutions: "},
    {"worker-nice", KIND_COUNT, AT(worker_nice), "5", 0, 19, "N",
     "niceness of workers relative to the event loop"},
    {"loop-computes", KIND_SWITCH, AT(loop_computes), "on", 0, 0, "SWITCH",
     "on or off: the event loop itself computes requests of up to some 40 us"},
    {"measure", KIND_SWITCH, AT(measure), "on", 0, 0, "SWITCH",
     "on or off: measure the speed of kernels and memory at start, for some ms"},
    {"console", KIND_SWITCH, AT(console), "on", 0, 0, "SWITCH",
     "on or off: the web console at /; --no-console turns it off"},
    {"log-level", KIND_LEVEL, AT(log_level), "info", 0, 0, "LEVEL",
     "debug, info, warn or error; debug has a line for each answer"},
    {"access-log", KIND_PATH, AT(access_log), "off", 0, 0, "FILE",
     "write a line for each request to FILE; -: standard error; off: nowhere"},
    {"log-format", KIND_FORMAT, AT(log_format), "text", 0, 0, "FORMAT",
     "format of log lines: text (key=value) or json"},
    {"healthcheck", KIND_ACTION, 0, NULL, QD_CONFIG_HEALTHCHECK, 0, NULL,
     "ask the server that runs with these flags whether it is ready, and exit"},
    {"kernels", KIND_ACTION, 0, NULL, QD_CONFIG_KERNELS, 0, NULL,
     "print this machine's features and the kernels that these flags choose, and exit"},
    {"explain", KIND_PATH, AT(explain), "", 0, 0, "FILE",
     "print what would become of an ONNX file, or of a model's folder, and exit"},
    {"explain-format", KIND_FORMAT, AT(explain_format), "text", 0, 0, "FORMAT",
     "format of --explain: text or json"},
    {"version", KIND_ACTION, 0, NULL, QD_CONFIG_VERSION, 0, NULL, "print the version and exit"},
    {"help", KIND_ACTION, 0, NULL, QD_CONFIG_HELP, 0, NULL, "print this text and exit; also -h"},
};

/* The values of kinds that have few, each list in the order of its enum. */
enum { CHOICE_COUNT_MAX = 5 };
static const char *const choices[][CHOICE_COUNT_MAX] = {
    [KIND_SWITCH] = {"off", "on"},
    [KIND_LEVEL] = {"debug", "info", "warn", "error"},
    [KIND_MODE] = {"none", "explicit", "poll"},
    [KIND_FORMAT] = {"text", "json"},
};

enum { FLAG_COUNT = sizeof(flags) / sizeof(*flags), ENVIRONMENT_NAME_BYTES = 64 };

static bool takes_value(const struct flag *flag)
{
    return flag->kind != KIND_ACTION;
}

static bool may_be_auto(const struct flag *flag)
{
    return strcmp(flag->initial, "auto") == 0;
}

static bool parse_auto(const struct flag *flag, const char *text, uint64_t *number)
{
    *number = QD_AUTO;
    return may_be_auto(flag) && strcmp(text, "auto") == 0;
}

static bool parse_count(const struct flag *flag, const char *text, uint64_t *number)
{
    return qd_read_decimal(text, number) && *number >= flag->min && *number <= flag->max;
}

static bool parse_permissions(const struct flag *flag, const char *text, uint64_t *mode)
{
    *mode = 0;
    size_t digits = strspn(text, "01234567");
    for (size_t i = 0; i < digits && *mode <= flag->max; i++)
        *mode = *mode * 8 + (uint64_t)(text[i] - '0');
    return digits > 0 && text[digits] == '\0' && *mode <= flag->max;
}

static bool parse_bytes(const struct flag *flag, const char *text, uint64_t *number)
{
    text = qd_scan_decimal(text, number);
    if (text == NULL)
        return false;
    static const char units[] = "KMGT";
    const char *unit = *text == '\0' ? NULL : strchr(units, *text);
    if (unit != NULL) {
        uint64_t scale = UINT64_C(1) << (10 * (unit - units + 1));
        if (__builtin_mul_overflow(*number, scale, number))
            return false;
        text += strcmp(text + 1, "iB") == 0 ? 3 : 1;
    }
    return *text == '\0' && *number >= flag->min && *number <= flag->max;
}

static bool parse_seconds(const struct flag *flag, const char *text, uint64_t *ns)
{
    uint64_t seconds;
    text = qd_scan_decimal(text, &seconds);
    if (text == NULL || seconds > flag->max)
        return false;
    *ns = seconds * QD_NS_PER_S;
    if (*text == '.') {
        text++;
        for (uint64_t digit = QD_NS_PER_S / 10; isdigit((unsigned char)*text); digit /= 10)
            *ns += (uint64_t)(*text++ - '0') * digit;
    }
    return *text == '\0' && *ns > 0;
}

/* Finds a text among the values of a kind, and sets *index to its place in the list. `index` may
 * point to an enum, which is an unsigned to gcc and clang. */
static bool parse_choice(enum kind kind, const char *text, unsigned *index)
{
    for (unsigned i = 0; choices[kind][i] != NULL; i++)
        if (strcmp(choices[kind][i], text) == 0) {
            *index = i;
            return true;
        }
    return false;
}

/* Appends texts with commas between to a list of arrays of item_bytes each. */
static bool parse_list(char *list, size_t item_bytes, size_t *count, size_t count_max,
                       const char *text, bool (*is_valid)(const char *item))
{
    do {
        const size_t bytes = strcspn(text, ",");
        if (bytes >= item_bytes || *count == count_max)
            return false;
        char *item = list + item_bytes * (*count)++;
        memcpy(item, text, bytes);
        item[bytes] = '\0';
        if (!is_valid(item))
            return false;
        text += bytes;
    } while (*text++ == ',');
    return true;
}

/* Returns whether the text is an origin as browsers write it: SCHEME://HOST or SCHEME://HOST:PORT,
 * in small letters, without a slash at the end. */
static bool is_origin(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.";
    size_t scheme = strspn(text, letters);
    if (scheme == 0 || strncmp(text + scheme, "://", 3) != 0)
        return strcmp(text, "*") == 0;
    const char *host = text + scheme + 3;
    size_t bytes = strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-._[]:");
    return bytes > 0 && host[bytes] == '\0';
}

/* Parses "auto" or a name of libqk's list. */
static bool parse_name(const char *(*name_at)(size_t index), const char *text, const char **name)
{
    *name = "auto";
    for (size_t i = 0; *name != NULL && strcmp(*name, text) != 0; i++)
        *name = name_at(i);
    return *name != NULL;
}

/* Appends a text to a list. An empty text adds nothing. */
static bool append(const char **list, size_t *count, size_t count_max, const char *text)
{
    if (*text == '\0')
        return true;
    if (*count == count_max)
        return false;
    list[(*count)++] = text;
    return true;
}

static bool parse_value(const struct flag *flag, const char *text, struct qd_config *config)
{
    void *field = (char *)config + flag->offset;
    unsigned choice;
    switch (flag->kind) {
    case KIND_LISTEN:
        return parse_list(*config->listen, QD_LISTEN_BYTES_MAX, field, QD_LISTEN_COUNT_MAX, text,
                          qd_address_valid);
    case KIND_ORIGIN:
        return *text == '\0' || parse_list(*config->cors_origins, QD_CORS_ORIGIN_BYTES_MAX, field,
                                           QD_CORS_ORIGIN_COUNT_MAX, text, is_origin);
    case KIND_COUNT:
        return parse_auto(flag, text, field) || parse_count(flag, text, field);
    case KIND_PERMISSIONS:
        return parse_permissions(flag, text, field);
    case KIND_BYTES:
        return parse_auto(flag, text, field) || parse_bytes(flag, text, field);
    case KIND_SECONDS:
        return parse_seconds(flag, text, field);
    case KIND_CPU:
        return parse_name(qk_tier_name, text, field);
    case KIND_GEMM:
        return parse_name(qk_gemm_name, text, field);
    case KIND_SWITCH:
        if (!parse_choice(flag->kind, text, &choice))
            return false;
        *(bool *)field = choice != 0;
        return true;
    case KIND_LEVEL:
    case KIND_MODE:
    case KIND_FORMAT:
        return parse_choice(flag->kind, text, field);
    case KIND_PATH:
        *(const char **)field = text;
        return true;
    case KIND_NAMES:
        return append(config->load_models, field, QD_LOAD_MODEL_COUNT_MAX, text);
    case KIND_FILES:
        return append(config->models, field, QD_MODEL_FLAG_COUNT_MAX, text);
    case KIND_ACTION:
        break;
    }
    return false;
}

/* Prints the names that a flag takes, from the lists that define them. */
static void print_names(const struct flag *flag, char *text, size_t bytes)
{
    *text = '\0';
    if (flag->kind == KIND_CPU)
        qk_tier_names(text, bytes);
    else if (flag->kind == KIND_GEMM)
        qk_gemm_names(text, bytes);
}

static void print_expected(const struct flag *flag, char *text, size_t bytes)
{
    switch (flag->kind) {
    case KIND_COUNT:
        snprintf(text, bytes, "%sa number from %llu to %llu", may_be_auto(flag) ? "auto or " : "",
                 (unsigned long long)flag->min, (unsigned long long)flag->max);
        return;
    case KIND_BYTES:
        snprintf(text, bytes, "%s%llu to %llu bytes, as in 65536, 64K, 64KiB, 256M, 2G or 1T",
                 may_be_auto(flag) ? "auto or " : "", (unsigned long long)flag->min,
                 (unsigned long long)flag->max);
        return;
    case KIND_PERMISSIONS:
        snprintf(text, bytes, "an octal number from 0 to %llo, as in 0660",
                 (unsigned long long)flag->max);
        return;
    case KIND_SECONDS:
        snprintf(text, bytes, "seconds above 0 and up to %llu, as in 30 or 0.5",
                 (unsigned long long)flag->max);
        return;
    case KIND_LISTEN:
        snprintf(text, bytes,
                 "ADDR:PORT (such as 127.0.0.1:8000), [ADDR6]:PORT or unix:PATH (at most %d bytes, "
                 "no @NAME), at most %d of them, with commas between",
                 QD_UNIX_PATH_BYTES - 1, QD_LISTEN_COUNT_MAX);
        return;
    case KIND_ORIGIN:
        snprintf(text, bytes,
                 "SCHEME://HOST[:PORT] in lower case, or *; at most %d, with commas between",
                 QD_CORS_ORIGIN_COUNT_MAX);
        return;
    case KIND_CPU:
    case KIND_GEMM:
        print_names(flag, text, bytes);
        return;
    case KIND_SWITCH:
    case KIND_LEVEL:
    case KIND_MODE:
    case KIND_FORMAT:
        *text = '\0';
        for (const char *const *choice = choices[flag->kind]; *choice != NULL; choice++)
            snprintf(text + strlen(text), bytes - strlen(text), "%s%s",
                     *text == '\0'       ? ""
                     : choice[1] == NULL ? " or "
                                         : ", ",
                     *choice);
        return;
    case KIND_NAMES:
        snprintf(text, bytes, "at most %d names", QD_LOAD_MODEL_COUNT_MAX);
        return;
    case KIND_FILES:
        snprintf(text, bytes, "at most %d files", QD_MODEL_FLAG_COUNT_MAX);
        return;
    default:
        snprintf(text, bytes, "%s", flag->about);
    }
}

static void environment_name(const struct flag *flag, char name[ENVIRONMENT_NAME_BYTES])
{
    int count = snprintf(name, ENVIRONMENT_NAME_BYTES, "QUANTD_%s", flag->name);
    assert(count < ENVIRONMENT_NAME_BYTES);
    for (; *name != '\0'; name++)
        *name = *name == '-' ? '_' : (char)toupper((unsigned char)*name);
}

/* Fills the error, and is QD_CONFIG_BAD. */
#define BAD(error, ...) (qd_fail_startup(error, __VA_ARGS__), QD_CONFIG_BAD)

/* Sets a flag. `source` is the flag or the variable, as the user wrote it. */
static enum qd_config_result take(const struct flag *flag, const char *source, const char *text,
                                  struct qd_config *config, struct qd_error *error)
{
    if (parse_value(flag, text, config))
        return QD_CONFIG_RUN;
    char expected[160];
    print_expected(flag, expected, sizeof(expected));
    return BAD(error, "%s: expected %s, got \"%.100s\"", source, expected, text);
}

static const struct flag *find_flag(const char *name, size_t count)
{
    for (size_t i = 0; i < FLAG_COUNT; i++)
        if (flags[i].name != NULL && strlen(flags[i].name) == count &&
            memcmp(flags[i].name, name, count) == 0)
            return &flags[i];
    return NULL;
}

/* Finds the switch that no-NAME turns off. Returns NULL if there is none. */
static const struct flag *find_switch_off(const char *name)
{
    const struct flag *flag =
        strncmp(name, "no-", 3) == 0 ? find_flag(name + 3, strlen(name + 3)) : NULL;
    return flag != NULL && flag->kind == KIND_SWITCH ? flag : NULL;
}

/* Returns how well a word fits one of `words`, which have dashes between them: 2 if both are equal
 * but for case, 1 if the word is misspelt or cut short, or has more letters at its end, otherwise
 * 0. */
static unsigned fit_word(const char *word, const char *words)
{
    enum { LETTERS_MIN = 3 };
    unsigned best = 0;
    for (size_t count; *words != '\0'; words += count + (words[count] == '-')) {
        char known[ENVIRONMENT_NAME_BYTES];
        count = strcspn(words, "-");
        snprintf(known, sizeof(known), "%.*s", (int)count, words);
        const size_t common = count < strlen(word) ? count : strlen(word);
        if (strcasecmp(known, word) == 0)
            return 2;
        if (qd_is_near(word, known) ||
            (common >= LETTERS_MIN && strncasecmp(known, word, common) == 0))
            best = 1;
    }
    return best;
}

/* Returns how well the flag fits a wrong name: UINT_MAX if the name is the flag's, misspelt.
 * Otherwise returns the sum of fit_word over the words of the name, or 0 if the sum is less than
 * the number of words. */
static unsigned fit_name(const struct flag *flag, const char *name)
{
    /* Words and letters that other servers have for a flag. They are appended to its name. */
    static const char *const foreign[][2] = {
        {"listen", "-port-host-addr-address-bind-p-b-l"},
        {"threads", "-worker-workers-w-j-t"},
        {"model", "-path-m"},
        {"model-repository", "-store-r-m"},
        {"log-level", "-verbose-v-l"},
        {"version", "-v"},
    };
    char words[2 * ENVIRONMENT_NAME_BYTES];
    char left[ENVIRONMENT_NAME_BYTES];
    unsigned count = 0, fit = 0;
    if (qd_is_near(flag->name, name))
        return UINT_MAX;
    snprintf(words, sizeof(words), "%s", flag->name);
    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++)
        if (strcmp(flag->name, foreign[i][0]) == 0)
            strcat(words, foreign[i][1]);
    snprintf(left, sizeof(left), "%s", name);
    char *rest = left;
    for (const char *word; (word = strsep(&rest, "-")) != NULL; count++)
        fit += fit_word(word, words);
    return fit >= count ? fit : 0;
}

/* Refuses an argument that is no flag. Names the flags that fit it best. */
static enum qd_config_result refuse_argument(const char *argument, struct qd_error *error)
{
    const char *point = strrchr(argument, '.');
    if (*argument != '-' && point != NULL && strcmp(point, ".onnx") == 0)
        return BAD(error,
                   "expected a flag that --help lists, got \"%.100s\"; --model %.100s serves "
                   "this file",
                   argument, argument);
    char name[ENVIRONMENT_NAME_BYTES];
    char near[2 * ENVIRONMENT_NAME_BYTES] = "";
    const char *begin = argument + strspn(argument, "-");
    /* -p8000 is -p with a value. Digits of longer names, such as --http2-port, belong to them. */
    const bool has_digits = begin == argument + 1 && *begin != '\0' && isdigit((uint8_t)begin[1]);
    snprintf(name, sizeof(name), "%.*s", has_digits ? 1 : (int)strcspn(begin, "="), begin);
    for (char *at = name; (at = strchr(at, '_')) != NULL;)
        *at = '-';
    const bool is_off = strncasecmp(name, "no-", 3) == 0;
    unsigned best = 1;
    for (const struct flag *flag = flags; flag < flags + FLAG_COUNT; flag++) {
        char shown[ENVIRONMENT_NAME_BYTES];
        if (flag->name == NULL || (is_off && flag->kind != KIND_SWITCH))
            continue;
        const unsigned fit = fit_name(flag, name + (is_off ? 3 : 0));
        if (fit < best)
            continue;
        if (fit > best)
            *near = '\0';
        best = fit;
        snprintf(shown, sizeof(shown), "--%s%s", is_off ? "no-" : "", flag->name);
        qd_list_name(near, sizeof(near), shown);
    }
    return BAD(error, "expected a flag that --help lists%s%s, got \"%.100s\"",
               *near == '\0' ? "" : ", such as ", near, argument);
}

/* Takes the flag at argv[*index]: --name VALUE, --name=VALUE, or --no-name of a switch. */
static enum qd_config_result take_argument(struct qd_config *config, int argc, char *const *argv,
                                           int *index, bool *given, struct qd_error *error)
{
    const char *argument = argv[*index];
    if (strcmp(argument, "-h") == 0)
        return QD_CONFIG_HELP;
    const char *name = strncmp(argument, "--", 2) == 0 ? argument + 2 : "";
    size_t count = strcspn(name, "=");
    const struct flag *flag = find_flag(name, count);
    const char *text = name[count] == '=' ? name + count + 1 : NULL;
    if (flag == NULL && (flag = find_switch_off(name)) != NULL)
        text = "off";
    if (flag == NULL)
        return refuse_argument(argument, error);
    if (!takes_value(flag)) {
        const enum qd_config_result action = (enum qd_config_result)flag->min;
        if (text != NULL)
            return BAD(error, "--%s: expected no value, got \"%.100s\"", flag->name, text);
        config->healthcheck |= action == QD_CONFIG_HEALTHCHECK;
        config->kernels |= action == QD_CONFIG_KERNELS;
        return action == QD_CONFIG_HELP || action == QD_CONFIG_VERSION ? action : QD_CONFIG_RUN;
    }
    if (text == NULL && *index + 1 < argc)
        text = argv[++*index];
    if (text == NULL)
        return BAD(error, "--%s: expected %s after it, got nothing", flag->name, flag->value);
    const bool is_explain = flag->kind == KIND_PATH && flag->offset == AT(explain);
    /* A variable of a shell that is not set must not start a server without its model. */
    if ((is_explain || flag->kind == KIND_FILES) && *text == '\0')
        return BAD(error, "--%s: expected FILE%s or NAME=FILE, got \"\"", flag->name,
                   is_explain ? ", a model's folder" : "");
    if (is_explain && given[flag - flags])
        return BAD(error, "--explain: expected one model, got \"%.100s\" as well", text);
    const bool is_list = flag->kind == KIND_LISTEN || flag->kind == KIND_ORIGIN ||
                         flag->kind == KIND_NAMES || flag->kind == KIND_FILES;
    if (is_list && !given[flag - flags])
        *(size_t *)(void *)((char *)config + flag->offset) = 0; /* a flag overrides its variable */
    given[flag - flags] = true;
    char source[ENVIRONMENT_NAME_BYTES];
    snprintf(source, sizeof(source), "--%s", flag->name);
    return take(flag, source, text, config, error);
}

/* Sets the defaults, then what the environment overrides. */
static enum qd_config_result take_environment(struct qd_config *config, struct qd_error *error)
{
    for (const struct flag *flag = flags; flag < flags + FLAG_COUNT; flag++) {
        if (flag->name == NULL || !takes_value(flag))
            continue;
        char name[ENVIRONMENT_NAME_BYTES];
        environment_name(flag, name);
        const char *text = getenv(name);
        /* An empty variable counts as unset, because manifests cannot unset one. */
        if (text == NULL || *text == '\0')
            text = flag->initial;
        const enum qd_config_result result = take(flag, name, text, config, error);
        if (result != QD_CONFIG_RUN)
            return result;
    }
    return QD_CONFIG_RUN;
}

/* Refuses flags that have no effect together with the others. */
static enum qd_config_result check_together(const struct qd_config *config, const bool *given,
                                            struct qd_error *error)
{
    bool has_repository = config->model_repository[0] != '\0';
    const char *prefix = config->shared_memory_prefix;
    const char *text = NULL;
    if (config->load_model_count > 0 && config->model_control_mode != QD_CONTROL_EXPLICIT)
        text = "--load-model: expected --model-control-mode explicit, got a mode that loads all "
               "models";
    else if (config->load_model_count > 0 && !has_repository)
        text = "--load-model: expected --model-repository as well, got none";
    else if (config->model_control_mode == QD_CONTROL_POLL && !has_repository &&
             config->model_count == 0)
        text = "--model-control-mode poll: expected --model-repository as well, or --model, got "
               "none";
    else if ((config->tls_cert[0] == '\0') != (config->tls_key[0] == '\0'))
        text = "--tls-cert and --tls-key: expected both or none, got one";
    else if (config->healthcheck + config->kernels + (config->explain[0] != '\0') > 1)
        text = "--healthcheck, --kernels and --explain: expected one of them, got more";
    else if (config->explain[0] == '\0' &&
             given[find_flag("explain-format", strlen("explain-format")) - flags])
        text = "--explain-format: expected --explain FILE as well, got none";
    else if (strchr(prefix + strspn(prefix, "/"), '/') != NULL)
        text = "--allow-shared-memory: expected a prefix with no slash after its first character, "
               "got one";
    return text == NULL ? QD_CONFIG_RUN : BAD(error, "%s", text);
}

enum qd_config_result qd_config_parse(struct qd_config *config, int argc, char *const *argv,
                                      struct qd_error *error)
{
    *config = (struct qd_config){.listen_count = 0};
    bool given[FLAG_COUNT] = {false};
    enum qd_config_result result = take_environment(config, error);
    for (int i = 1; result == QD_CONFIG_RUN && i < argc; i++)
        result = take_argument(config, argc, argv, &i, given, error);
    if (result == QD_CONFIG_RUN)
        result = check_together(config, given, error);
    if (result != QD_CONFIG_RUN)
        return result;
    return config->healthcheck        ? QD_CONFIG_HEALTHCHECK
           : config->kernels          ? QD_CONFIG_KERNELS
           : *config->explain != '\0' ? QD_CONFIG_EXPLAIN
                                      : QD_CONFIG_RUN;
}

/* Prints the help in the form that help2man reads. */
void qd_config_print_help(FILE *file)
{
    fputs("Usage: quantd [FLAG [VALUE]]...\n\n"
          "Computes quantized networks and operators over HTTP, in the Open Inference Protocol.\n"
          "After SIGTERM or SIGINT quantd answers the requests that it has accepted, and\n"
          "exits. After SIGHUP it reads tokens, certificate and key again, and opens the\n"
          "access log again.\n",
          file);
    for (const struct flag *flag = flags; flag < flags + FLAG_COUNT; flag++) {
        if (flag->name == NULL) {
            fprintf(file, "\n%s:\n", flag->about);
            continue;
        }
        char left[64];
        snprintf(left, sizeof(left), "--%s %s", flag->name, takes_value(flag) ? flag->value : "");
        char names[QK_NAMES_BYTES];
        print_names(flag, names, sizeof(names));
        fprintf(file, "  %-30s  %s%s", left, flag->about, names);
        fprintf(file, takes_value(flag) && *flag->initial != '\0' ? " [%s]\n" : "\n",
                flag->initial);
    }
    fputs("\n[] holds the default. K, M, G and T are powers of 1024. SECONDS may have decimals.\n"
          "--no-NAME turns a SWITCH off. auto heeds a container's limits as far as libuv\n"
          "reads them: memory, and CPU quotas of cgroup v2, on Debian 13; memory of cgroup\n"
          "v1 on Debian 12.\n"
          "\nExit status:\n"
          "  0  success; --healthcheck: the server is ready; --explain: the file can be served\n"
          "  1  quantd could not start, or got a second SIGTERM or SIGINT; --healthcheck:\n"
          "     the server is not ready; --explain: the file is refused\n"
          "  2  a flag or an environment variable is wrong\n"
          "\nEnvironment:\n"
          "Each flag with a value is also a variable: --max-queue is QUANTD_MAX_QUEUE. A flag\n"
          "overrides its variable. In QUANTD_LISTEN, commas separate several addresses.\n",
          file);
}

void qd_config_print_limits(const struct qd_config *config, struct qd_text *text)
{
    for (const struct flag *flag = flags; flag < flags + FLAG_COUNT; flag++) {
        const void *field = (const char *)config + flag->offset;
        if (flag->name == NULL)
            continue;
        if (flag->kind == KIND_COUNT || flag->kind == KIND_BYTES)
            qd_text_format(text, ",\"%s\":\"%" PRIu64 "\"", flag->name, *(const uint64_t *)field);
        else if (flag->kind == KIND_SECONDS)
            qd_text_format(text, ",\"%s\":\"%g\"", flag->name,
                           (double)*(const uint64_t *)field / (double)QD_NS_PER_S);
        else if (flag->kind == KIND_SWITCH || flag->kind == KIND_MODE)
            qd_text_format(
                text, ",\"%s\":\"%s\"", flag->name,
                choices[flag->kind][flag->kind == KIND_SWITCH ? *(const bool *)field
                                                              : *(const unsigned *)field]);
    }
}
