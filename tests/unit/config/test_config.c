#include "server/config/config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"

static struct qd_error error;

#define PARSE(config, ...)                           \
    parse(config, (char *[]){"quantd", __VA_ARGS__}, \
          (int)(sizeof((char *[]){"quantd", __VA_ARGS__}) / sizeof(char *)))

static enum qd_config_result parse(struct qd_config *config, char **argv, int argc)
{
    error.text[0] = '\0';
    return qd_config_parse(config, argc, argv, &error);
}

Test(config, defaults)
{
    struct qd_config config;
    char *argv[] = {"quantd"};
    cr_assert_eq(parse(&config, argv, 1), QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.listen_count, 1);
    cr_assert_str_eq(config.listen[0], "127.0.0.1:8000");
    cr_assert_eq(config.threads, QD_AUTO);
    cr_assert_eq(config.max_body_bytes, 256u << 20);
    cr_assert_eq(config.max_inflight_bytes, QD_AUTO);
    cr_assert_eq(config.max_queue, 1024);
    cr_assert_eq(config.max_connections, 4096);
    cr_assert_eq(config.receive_timeout_ns, 30 * QD_NS_PER_S);
    cr_assert_eq(config.idle_timeout_ns, 75 * QD_NS_PER_S);
    cr_assert_eq(config.drain_timeout_ns, 30 * QD_NS_PER_S);
    cr_assert_str_eq(config.cpu, "auto");
    cr_assert_str_eq(config.gemm, "auto");
    cr_assert_eq(config.log_level, QD_LOG_INFO);
}

Test(config, both_ways_to_give_a_value)
{
    struct qd_config config;
    cr_assert_eq(
        PARSE(&config, "--threads", "3", "--max-queue=17", "--cpu=scalar", "--log-level", "debug"),
        QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.threads, 3);
    cr_assert_eq(config.max_queue, 17);
    cr_assert_str_eq(config.cpu, "scalar");
    cr_assert_eq(config.log_level, QD_LOG_DEBUG);
    cr_assert_eq(config.log_format, QD_LINE_TEXT);
    cr_assert_eq(PARSE(&config, "--log-format", "json"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.log_format, QD_LINE_JSON);
}

Test(config, switches_have_a_short_way_off)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--log-level", "info"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert(config.console && config.measure);
    cr_assert_eq(PARSE(&config, "--no-console", "--no-measure"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert(!config.console && !config.measure);
    cr_assert_eq(PARSE(&config, "--no-console", "--console", "on"), QD_CONFIG_RUN, "%s",
                 error.text);
    cr_assert(config.console);
    static const char *const bad[] = {"--no-threads", "--no-", "--no-console=off", "--no-help",
                                      "--no-no-console"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        cr_assert_eq(PARSE(&config, (char *)bad[i]), QD_CONFIG_BAD, "%s", bad[i]);
}

Test(config, bytes_have_units)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1", 1},         {"65536", 65536},   {"64K", 65536},
                {"64KiB", 65536}, {"3M", 3u << 20},   {"3MiB", 3u << 20},
                {"1G", 1u << 30}, {"1GiB", 1u << 30}, {"1T", UINT64_C(1) << 40}};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        struct qd_config config;
        cr_assert_eq(PARSE(&config, "--max-body-bytes", (char *)good[i].text), QD_CONFIG_RUN, "%s",
                     error.text);
        cr_assert_eq(config.max_body_bytes, good[i].bytes, "%s", good[i].text);
    }
    static const char *const bad[] = {"",    "0",   "-1",  "1.5M", "M",    "1KB",
                                      "1 K", "1Ki", "1Kx", "2T",   "0x10", "18446744073709551617"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct qd_config config;
        cr_assert_eq(PARSE(&config, "--max-body-bytes", (char *)bad[i]), QD_CONFIG_BAD, "%s",
                     bad[i]);
        cr_assert(strstr(error.text, "--max-body-bytes") != NULL, "%s", error.text);
        cr_assert(strstr(error.text, bad[i]) != NULL, "%s", error.text);
    }
}

Test(config, permissions_are_octal)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--unix-owner", ":www-data"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.unix_mode, 0660);
    cr_assert_str_eq(config.unix_owner, ":www-data");
    cr_assert_eq(PARSE(&config, "--unix-mode", "0600"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.unix_mode, 0600);
    cr_assert_eq(PARSE(&config, "--unix-mode", "777"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.unix_mode, 0777);
    static const char *const bad[] = {"",
                                      "8",
                                      "0o600",
                                      "1777",
                                      "-1",
                                      " 600",
                                      "600 ",
                                      "u=rw",
                                      "0000000000000000000000002000",
                                      "77777777777777777777777777"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_eq(PARSE(&config, "--unix-mode", (char *)bad[i]), QD_CONFIG_BAD, "%s", bad[i]);
        cr_assert(strstr(error.text, "--unix-mode: expected an octal number") != NULL, "%s",
                  error.text);
    }
}

Test(config, origins)
{
    struct qd_config config;
    char *none[] = {"quantd"};
    cr_assert_eq(parse(&config, none, 1), QD_CONFIG_RUN);
    cr_assert_eq(config.cors_origin_count, 0);
    cr_assert_eq(PARSE(&config, "--cors-origin", "https://a.example,http://localhost:3000",
                       "--cors-origin", "chrome-extension://abc", "--cors-origin", "http://[::1]"),
                 QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.cors_origin_count, 4);
    cr_assert_str_eq(config.cors_origins[1], "http://localhost:3000");
    cr_assert_eq(PARSE(&config, "--cors-origin", "*"), QD_CONFIG_RUN, "%s", error.text);
    setenv("QUANTD_CORS_ORIGIN", "https://a.example,https://b.example", 1);
    cr_assert_eq(parse(&config, none, 1), QD_CONFIG_RUN);
    cr_assert_eq(config.cors_origin_count, 2);
    cr_assert_eq(PARSE(&config, "--cors-origin", "https://c.example"), QD_CONFIG_RUN);
    cr_assert_eq(config.cors_origin_count, 1);
    cr_assert_str_eq(config.cors_origins[0], "https://c.example");
    char longest[300] = "https://";
    memset(longest + 8, 'a', 280);
    const char *const bad[] = {"a.example",
                               "https://",
                               "https://a.example/",
                               "https://A.example",
                               "null",
                               "https://*.example",
                               "https://a b",
                               "**",
                               "https://a.example,",
                               ",https://a",
                               "https://a,,*",
                               "https://u@a.example",
                               "://a",
                               "https://a\r\nX: y",
                               longest};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_eq(PARSE(&config, "--cors-origin", (char *)bad[i]), QD_CONFIG_BAD, "%s", bad[i]);
        cr_assert(strstr(error.text, "--cors-origin: expected SCHEME://HOST") != NULL, "%s",
                  error.text);
    }
    char *many[2 * QD_CORS_ORIGIN_COUNT_MAX + 3] = {"quantd"};
    for (unsigned i = 0; i <= QD_CORS_ORIGIN_COUNT_MAX; i++) {
        many[1 + 2 * i] = "--cors-origin";
        many[2 + 2 * i] = "*";
    }
    cr_assert_eq(parse(&config, many, 2 * QD_CORS_ORIGIN_COUNT_MAX + 1), QD_CONFIG_RUN);
    cr_assert_eq(parse(&config, many, 2 * QD_CORS_ORIGIN_COUNT_MAX + 3), QD_CONFIG_BAD);
}

Test(config, seconds_may_have_decimals)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--receive-timeout", "0.25", "--idle-timeout=2"), QD_CONFIG_RUN);
    cr_assert_eq(config.receive_timeout_ns, QD_NS_PER_S / 4);
    cr_assert_eq(config.idle_timeout_ns, 2 * QD_NS_PER_S);
    static const char *const bad[] = {"", "0", "0.0", "-1", "1s", "1.5.2", "86401", ".5", "inf"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_eq(PARSE(&config, "--receive-timeout", (char *)bad[i]), QD_CONFIG_BAD, "%s",
                     bad[i]);
        cr_assert(strstr(error.text, "seconds") != NULL, "%s", error.text);
    }
}

Test(config, explain_takes_one_model)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--explain", "a.onnx"), QD_CONFIG_EXPLAIN);
    cr_assert_eq(PARSE(&config, "--explain", "a.onnx", "--explain=b.onnx"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--explain: expected one model, got \"b.onnx\" as well");
    cr_assert_eq(PARSE(&config, "--explain-format", "json", "--explain=a.onnx"), QD_CONFIG_EXPLAIN);
    cr_assert_eq(PARSE(&config, "--explain-format", "json"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--explain-format: expected --explain FILE as well, got none");
}

Test(config, listen_replaces_the_default_and_repeats)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--listen", "[::1]:0", "--listen", "unix:/tmp/a"), QD_CONFIG_RUN);
    cr_assert_eq(config.listen_count, 2);
    cr_assert_str_eq(config.listen[0], "[::1]:0");
    cr_assert_str_eq(config.listen[1], "unix:/tmp/a");
    cr_assert_eq(PARSE(&config, "--listen", "nowhere"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--listen", "a:1,,b:2"), QD_CONFIG_BAD);
}

Test(config, listen_addresses_are_checked)
{
    char longest[] = "unix:/" /* and 106 more */
                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char *const bad[] = {"127.0.0.1:", ":80",    "::1:80", "[]:80",
                                      "h:65536",    "h:http", "unix:",  "h:-1"};
    struct qd_config config;
    cr_assert_eq(strlen(longest), strlen("unix:") + 107);
    cr_assert_eq(PARSE(&config, "--listen", longest), QD_CONFIG_RUN, "%s", error.text);
    char longer[sizeof(longest) + 1];
    snprintf(longer, sizeof(longer), "%sa", longest);
    cr_assert_eq(PARSE(&config, "--listen", longer), QD_CONFIG_BAD);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_eq(PARSE(&config, "--listen", (char *)bad[i]), QD_CONFIG_BAD, "%s", bad[i]);
        cr_assert(strstr(error.text, bad[i]) != NULL, "%s", error.text);
    }
}

Test(config, at_most_16_listeners)
{
    struct qd_config config;
    char *argv[1 + 2 * (QD_LISTEN_COUNT_MAX + 1)] = {"quantd"};
    for (int i = 0; i <= QD_LISTEN_COUNT_MAX; i++) {
        argv[1 + 2 * i] = "--listen";
        argv[2 + 2 * i] = "127.0.0.1:0";
    }
    cr_assert_eq(parse(&config, argv, 1 + 2 * QD_LISTEN_COUNT_MAX), QD_CONFIG_RUN);
    cr_assert_eq(config.listen_count, QD_LISTEN_COUNT_MAX);
    cr_assert_eq(parse(&config, argv, 3 + 2 * QD_LISTEN_COUNT_MAX), QD_CONFIG_BAD);
}

Test(config, environment_below_the_command_line)
{
    struct qd_config config;
    setenv("QUANTD_MAX_QUEUE", "5", 1);
    setenv("QUANTD_LISTEN", "127.0.0.1:1,unix:/tmp/b", 1);
    setenv("QUANTD_THREADS", "", 1); /* equals unset */
    cr_assert_eq(PARSE(&config, "--cpu", "auto"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.max_queue, 5);
    cr_assert_eq(config.listen_count, 2);
    cr_assert_str_eq(config.listen[1], "unix:/tmp/b");
    cr_assert_eq(PARSE(&config, "--max-queue", "6", "--listen", "127.0.0.1:2"), QD_CONFIG_RUN);
    cr_assert_eq(config.max_queue, 6);
    cr_assert_eq(config.listen_count, 1);
    setenv("QUANTD_MAX_QUEUE", "many", 1);
    cr_assert_eq(PARSE(&config, "--cpu", "auto"), QD_CONFIG_BAD);
    cr_assert(strstr(error.text, "QUANTD_MAX_QUEUE") != NULL, "%s", error.text);
}

Test(config, auto_in_so_many_words)
{
    struct qd_config config;
    setenv("QUANTD_THREADS", "3", 1);
    setenv("QUANTD_MAX_INFLIGHT_BYTES", "3M", 1);
    cr_assert_eq(PARSE(&config, "--cpu", "auto"), QD_CONFIG_RUN, "%s", error.text);
    cr_assert_eq(config.threads, 3);
    cr_assert_eq(config.max_inflight_bytes, 3 << 20);
    cr_assert_eq(PARSE(&config, "--threads", "auto", "--max-inflight-bytes=auto"), QD_CONFIG_RUN);
    cr_assert_eq(config.threads, QD_AUTO);
    cr_assert_eq(config.max_inflight_bytes, QD_AUTO);
    cr_assert_eq(PARSE(&config, "--max-inflight-bytes", "half"), QD_CONFIG_BAD);
    cr_assert(strstr(error.text, "expected auto or ") != NULL, "%s", error.text);
}

Test(config, mistakes_name_the_flag)
{
    static const struct {
        const char *flag;
        const char *value;
    } bad[] = {{"--nonsense", "1"},
               {"--threads", "0"},
               {"--threads", "two"},
               {"--threads", "1025"},
               {"--cpu", "avx1024"},
               {"--gemm", "cublas"},
               {"--log-level", "loud"},
               {"--log-format", "xml"},
               {"--max-queue", "auto"},
               {"--max-body-bytes", "auto"},
               {"--threads", "automatic"},
               {"--max-queue", "1K"},
               {"-threads", "2"},
               {"threads", "2"},
               {"--help=yes", "2"},
               {"--max-inflight-bytes", "1K"},
               {"--", "x"},
               {"--max-connections", ""}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct qd_config config;
        cr_assert_eq(PARSE(&config, (char *)bad[i].flag, (char *)bad[i].value), QD_CONFIG_BAD,
                     "%s %s", bad[i].flag, bad[i].value);
        char flag[32];
        snprintf(flag, sizeof(flag), "%.*s", (int)strcspn(bad[i].flag, "="), bad[i].flag);
        cr_assert(strstr(error.text, flag) != NULL, "%s", error.text);
        cr_assert(strchr(error.text, '\n') == NULL);
    }
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--threads"), QD_CONFIG_BAD);
    cr_assert(strstr(error.text, "got nothing") != NULL, "%s", error.text);
}

Test(config, flags_that_do_not_fit_together)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--load-model", "a", "--model-repository", "d"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--load-model: expected --model-control-mode explicit, got a "
                                 "mode that loads all models");
    cr_assert_eq(PARSE(&config, "--load-model", "a", "--model-control-mode=explicit"),
                 QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--load-model: expected --model-repository as well, got none");
    cr_assert_eq(PARSE(&config, "--model-control-mode", "poll"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--model-control-mode poll: expected --model-repository as well, "
                                 "or --model, got none");
    cr_assert_eq(PARSE(&config, "--model-control-mode", "poll", "--model=a.onnx"), QD_CONFIG_RUN);
    cr_assert_eq(PARSE(&config, "--model-control-mode", "explicit"), QD_CONFIG_RUN);
    cr_assert_eq(
        PARSE(&config, "--load-model=a", "--model-control-mode=explicit", "--model-repository=d"),
        QD_CONFIG_RUN);
    cr_assert_eq(PARSE(&config, "--model-control-mode", "poll", "--help"), QD_CONFIG_HELP);
}

Test(config, help_and_version_stop_the_parsing)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--help", "--nonsense"), QD_CONFIG_HELP);
    cr_assert_eq(PARSE(&config, "--threads", "2", "--version"), QD_CONFIG_VERSION);
}

Test(config, healthcheck_reads_all_flags)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--healthcheck", "--listen", "h:1"), QD_CONFIG_HEALTHCHECK);
    cr_assert_str_eq(config.listen[0], "h:1");
    cr_assert_eq(PARSE(&config, "--healthcheck", "--nonsense"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--healthcheck=1"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--healthcheck: expected no value, got \"1\"");
    cr_assert_eq(PARSE(&config, "--healthcheck", "--help"), QD_CONFIG_HELP);
    cr_assert_eq(PARSE(&config, "--listen", "h:1"), QD_CONFIG_RUN);
}

/* As with a shell's variable that is not set. An empty variable of the environment counts as unset.
 */
Test(config, explain_takes_a_file)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--explain", "net.onnx"), QD_CONFIG_EXPLAIN);
    cr_assert_eq(PARSE(&config, "--explain", ""), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text,
                     "--explain: expected FILE, a model's folder or NAME=FILE, got \"\"");
    cr_assert_eq(PARSE(&config, "--explain="), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--model", "a.onnx", "--model", ""), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--model: expected FILE or NAME=FILE, got \"\"");
    setenv("QUANTD_EXPLAIN", "", 1);
    cr_assert_eq(PARSE(&config, "--console", "off"), QD_CONFIG_RUN);
    unsetenv("QUANTD_EXPLAIN");
}

Test(config, a_stray_word_is_no_flag)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "extra"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "expected a flag that --help lists, got \"extra\"");
    cr_assert_eq(PARSE(&config, "--extra"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "expected a flag that --help lists, got \"--extra\"");
    cr_assert_eq(PARSE(&config, "net.onnx"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "expected a flag that --help lists, got \"net.onnx\"; --model "
                                 "net.onnx serves this file");
    cr_assert_eq(PARSE(&config, "model.onnx"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "expected a flag that --help lists, got \"model.onnx\"; --model "
                                 "model.onnx serves this file");
}

Test(config, a_wrong_flag_gets_those_that_may_be_meant)
{
    static const char *const pairs[][2] = {
        {"--thread", "--threads"},
        {"--modle", "--model"},
        {"--lisen", "--listen"},
        {"-threads", "--threads"},
        {"--Threads=2", "--threads"},
        {"model", "--model"},
        {"--model_repository=x", "--model-repository"},
        {"--no-consol", "--no-console"},
        {"--max-model", "--max-model-bytes"},
        {"--tls=x", "--tls-cert, --tls-key"},
        {"--no-conso", "--no-console"},
        {"--port", "--listen"},
        {"--host=0.0.0.0", "--listen"},
        {"--workers", "--threads"},
        {"--PORT", "--listen"},
        {"--http-Port=80", "--listen"},
        {"--rest_bind_address", "--listen"},
        {"--Model_Path=x", "--model"},
        {"--NO-Consol", "--no-console"},
        {"--export-dir", NULL},
        {"--max-modl", "--max-model-bytes"},
        {"--prot", "--listen"},
        {"--max-body-size", "--max-body-bytes"},
        {"--max-batch-size", NULL},
        {"--tls-certificate", "--tls-cert"},
        {"--timeout", "--receive-timeout, --idle-timeout, --compute-timeout, --drain-timeout"},
        {"--worker", "--threads, --worker-nice"},
        {"--no-worker", NULL},
        {"--no-port", NULL},
        {"--max", "--max-connections, --max-connections-per-address, --max-queue, "
                  "--max-body-bytes, --max-inflight-bytes, --max-model-bytes, ..."},
        {"-p", "--listen"},
        {"-p8000", "--listen"},
        {"--http2-port=7", "--listen"},
        {"-w=4", "--threads"},
        {"-v", "--log-level, --version"},
        {"-m", "--model, --model-repository"},
        {"-x", NULL},
        {"8000", NULL},
        {"--no-such-flag", NULL},
        {"--", NULL},
    };
    struct qd_config config;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        char text[256];
        snprintf(text, sizeof(text), "expected a flag that --help lists%s%s, got \"%s\"",
                 pairs[i][1] == NULL ? "" : ", such as ", pairs[i][1] == NULL ? "" : pairs[i][1],
                 pairs[i][0]);
        cr_assert_eq(PARSE(&config, (char *)pairs[i][0]), QD_CONFIG_BAD);
        cr_assert_str_eq(error.text, text);
    }
}

Test(config, one_thing_instead_of_serving)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--explain", "net.onnx", "--kernels"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text,
                     "--healthcheck, --kernels and --explain: expected one of them, got more");
    cr_assert_eq(PARSE(&config, "--healthcheck", "--kernels"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--kernels", "--kernels"), QD_CONFIG_KERNELS);
}

Test(config, kernels_reads_all_flags)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--kernels", "--gemm", "scalar"), QD_CONFIG_KERNELS);
    cr_assert_str_eq(config.gemm, "scalar");
    cr_assert_eq(PARSE(&config, "--kernels", "--gemm", "mkl"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--kernels=1"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--kernels", "--help"), QD_CONFIG_HELP);
}

Test(config, worker_nice_is_what_nice_takes)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--threads", "1"), QD_CONFIG_RUN);
    cr_assert_eq(config.worker_nice, 5);
    cr_assert_eq(PARSE(&config, "--worker-nice", "0"), QD_CONFIG_RUN);
    cr_assert_eq(config.worker_nice, 0);
    cr_assert_eq(PARSE(&config, "--worker-nice", "19"), QD_CONFIG_RUN);
    cr_assert_eq(config.worker_nice, 19);
    cr_assert_eq(PARSE(&config, "--worker-nice", "20"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--worker-nice", "-1"), QD_CONFIG_BAD);
}

Test(config, io_threads_are_few)
{
    struct qd_config config;
    unsetenv("QUANTD_IO_THREADS"); /* the tests may run with several */
    cr_assert_eq(PARSE(&config, "--threads", "1"), QD_CONFIG_RUN);
    cr_assert_eq(config.io_threads, 1);
    cr_assert_eq(PARSE(&config, "--io-threads", "16"), QD_CONFIG_RUN);
    cr_assert_eq(config.io_threads, 16);
    cr_assert_eq(PARSE(&config, "--io-threads", "17"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--io-threads", "0"), QD_CONFIG_BAD);
    cr_assert_eq(PARSE(&config, "--io-threads", "auto"), QD_CONFIG_BAD);
}

Test(config, the_loop_computes_or_not)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--threads", "1"), QD_CONFIG_RUN);
    cr_assert(config.loop_computes);
    cr_assert_eq(PARSE(&config, "--loop-computes", "off"), QD_CONFIG_RUN);
    cr_assert(!config.loop_computes);
}

Test(config, measure_is_on_or_off)
{
    struct qd_config config;
    cr_assert_eq(PARSE(&config, "--threads", "1"), QD_CONFIG_RUN);
    cr_assert(config.measure);
    cr_assert_eq(PARSE(&config, "--measure", "off"), QD_CONFIG_RUN);
    cr_assert(!config.measure);
    setenv("QUANTD_MEASURE", "off", 1);
    cr_assert_eq(PARSE(&config, "--threads", "1"), QD_CONFIG_RUN);
    cr_assert(!config.measure);
    cr_assert_eq(PARSE(&config, "--measure=on"), QD_CONFIG_RUN);
    cr_assert(config.measure);
    unsetenv("QUANTD_MEASURE");
    cr_assert_eq(PARSE(&config, "--measure", "yes"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text, "--measure: expected off or on, got \"yes\"");
    cr_assert_eq(PARSE(&config, "--log-level", "verbose"), QD_CONFIG_BAD);
    cr_assert_str_eq(error.text,
                     "--log-level: expected debug, info, warn or error, got \"verbose\"");
}
