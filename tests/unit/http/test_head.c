#include "server/http/wire/head.h"

#include <criterion/criterion.h>
#include <string.h>

Test(head, what_it_understands)
{
    struct qd_head head;
    qd_head_init(&head, "POST", "/v2", "HTTP/1.1");
    qd_head_add(&head, "CONTENT-LENGTH", 14, "18446744073709551614");
    qd_head_add(&head, "inference-header-content-length", 31, "12");
    qd_head_add(&head, "Content-Encoding", 16, "gzip");
    qd_head_add(&head, "Expect", 6, "100-Continue");
    qd_head_add(&head, "X-Other", 7, "\t\xc3\xa4");
    cr_assert_eq(head.content_bytes, UINT64_MAX - 1);
    cr_assert_str_eq(head.json_bytes, "12");
    cr_assert_str_eq(head.content_encoding, "gzip");
    cr_assert(head.expects_continue);
    cr_assert_not(head.is_chunked);
    qd_head_add(&head, "Inference-Header-Content-Length", 31, NULL);
    qd_head_add(&head, "Transfer-Encoding", 17, "Chunked");
    cr_assert_eq(head.json_bytes_count, 2);
    cr_assert(head.is_chunked);
}

Test(head, targets)
{
    static const struct {
        const char *target;
        const char *path;
    } targets[] = {{"/v2", "/v2"},     {"http://q:8000/v2/models", "/v2/models"},
                   {"HTTP://q/", "/"}, {"http://q", "/"},
                   {"*", "*"},         {"v2", "v2"},
                   {"", ""},           {"/http://q/v2", "/http://q/v2"}};
    for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
        struct qd_head head;
        qd_head_init(&head, "GET", targets[i].target, "HTTP/1.1");
        cr_assert_str_eq(head.path, targets[i].path);
    }
}
