#include "server/http/wire/head.h"

#include <criterion/criterion.h>

#define GZIP QD_CODING_GZIP
#define DEFLATE QD_CODING_DEFLATE
#define IDENTITY QD_CODING_IDENTITY

Test(coding, content_encoding)
{
    static const struct {
        const char *text;
        int coding; /* -1: the header is refused */
    } cases[] = {
        {NULL, IDENTITY},
        {"", IDENTITY},
        {" ", IDENTITY},
        {"identity", IDENTITY},
        {" Identity\t", IDENTITY},
        {"gzip", GZIP},
        {"GZip ", GZIP},
        {"x-gzip", GZIP},
        {"deflate", DEFLATE},
        {"\tDEFLATE", DEFLATE},
        {"gzip, gzip", -1},
        {"gzip,identity", -1},
        {"gzip deflate", -1},
        {"gzipp", -1},
        {"gzi", -1},
        {"br", -1},
        {"zstd", -1},
        {"x-deflate", -1},
        {",", -1},
        {"gzip;q=1", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        enum qd_coding coding;
        const bool read = qd_coding_read(cases[i].text, &coding);
        cr_assert_eq(read ? (int)coding : -1, cases[i].coding, "%s", cases[i].text);
    }
}

static enum qd_coding choose(const char *first, const char *second)
{
    struct qd_accepted accepted;
    qd_accepted_init(&accepted);
    if (first != NULL)
        qd_accepted_add(&accepted, first);
    if (second != NULL)
        qd_accepted_add(&accepted, second);
    return qd_accepted_choose(&accepted);
}

Test(coding, accept_encoding)
{
    static const struct {
        const char *text;
        enum qd_coding coding;
    } cases[] = {
        {NULL, IDENTITY},
        {"", IDENTITY},
        {"gzip", GZIP},
        {"deflate", DEFLATE},
        {"gzip, deflate", GZIP},
        {"deflate, gzip", GZIP},
        {"gzip, deflate, br, zstd", GZIP},
        {"GZIP;Q=0.5,Deflate;q=0.6", DEFLATE},
        {"gzip;q=0.001", GZIP},
        {"gzip;q=0", IDENTITY},
        {"gzip;q=0.000, deflate", DEFLATE},
        {"gzip ; q=0.2 , deflate\t;\tq=0.1", GZIP},
        {"*", GZIP},
        {"*;q=0", IDENTITY},
        {"gzip;q=0, *", DEFLATE},
        {"*;q=0.5, deflate", DEFLATE},
        {"br, *;q=0.1", GZIP},
        {"identity", IDENTITY},
        {"identity, gzip;q=0.5", IDENTITY},
        {"identity;q=0.5, gzip", GZIP},
        {"identity, gzip", GZIP},
        {"identity;q=0, gzip;q=0.1", GZIP},
        {"br", IDENTITY},
        {"x-gzip", GZIP},
        {"gzip;q=1.000", GZIP},
        /* Unreadable parts are ignored. */
        {"gzip;q=1.001", IDENTITY},
        {"gzip;q=0.0001", IDENTITY},
        {"gzip;q=2", IDENTITY},
        {"gzip;q=-1", IDENTITY},
        {"gzip;q=", IDENTITY},
        {"gzip;q=.5", IDENTITY},
        {"gzip;q=0,5", IDENTITY},
        {"gzip;level=9", IDENTITY},
        {"gzip;q=1;x=2", IDENTITY},
        {"gzip deflate", IDENTITY},
        {";q=1", IDENTITY},
        {", ,,gzip,", GZIP},
        {"gzip;;q=1, deflate", DEFLATE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        cr_assert_eq(choose(cases[i].text, NULL), cases[i].coding, "%s", cases[i].text);
    cr_assert_eq(choose("br", "gzip"), GZIP, "two headers are one list");
    cr_assert_eq(choose("gzip;q=0", "deflate"), DEFLATE);
}
