/* Fuzzes the reader that finds where requests begin and end. The result must not depend on how the
 * bytes of a connection are cut into pieces, and the bytes that the reader leaves must read the
 * same again. run.sh builds and runs this target.
 *
 * An input is a byte that says how the bytes are cut, followed by the bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/wire/framing.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

struct reading {
    struct qd_framing framing;
    char *left;
    size_t left_count;
};

/* Reads the bytes in pieces of at most `cut` bytes, or in one piece if `cut` is 0. Each piece has
 * its own block, so that the sanitizer sees reads beyond its end. */
static struct reading read_all(const char *bytes, size_t count, size_t cut)
{
    struct reading reading = {.framing = {.body_bytes_max = 1 << 20}, .left = malloc(count + 1)};
    assert(reading.left != NULL);
    for (size_t at = 0; at < count && reading.framing.fault == QD_FAULT_NONE;) {
        size_t piece = cut == 0 ? count : 1 + (at * 7 + cut) % cut;
        piece = piece < count - at ? piece : count - at;
        char *copy = malloc(piece);
        assert(copy != NULL);
        memcpy(copy, bytes + at, piece);
        size_t begun = piece;
        const size_t kept = qd_framing_read(&reading.framing, copy, piece, &begun);
        assert(kept <= piece && begun <= piece);
        memcpy(reading.left + reading.left_count, copy, kept);
        reading.left_count += kept;
        at += piece;
        free(copy);
    }
    return reading;
}

static void assert_same(const struct reading *one, const struct reading *other)
{
    assert(one->framing.fault == other->framing.fault);
    assert(one->framing.done_count == other->framing.done_count);
    if (one->framing.fault != QD_FAULT_NONE)
        return;
    assert(one->framing.state == other->framing.state);
    assert(one->left_count == other->left_count);
    assert(memcmp(one->left, other->left, one->left_count) == 0);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    struct reading whole = read_all((const char *)data + 1, bytes - 1, 0);
    struct reading cut = read_all((const char *)data + 1, bytes - 1, 1 + data[0]);
    assert_same(&whole, &cut);
    if (whole.framing.fault != QD_FAULT_NONE) {
        struct qd_error error;
        assert(qd_framing_explain(&whole.framing, &error) != QD_OK && error.text[0] != '\0');
    } else {
        struct reading again = read_all(whole.left, whole.left_count, 0);
        assert(again.framing.done_count == whole.framing.done_count);
        assert(again.left_count == whole.left_count);
        assert(memcmp(again.left, whole.left, whole.left_count) == 0);
        free(again.left);
    }
    free(whole.left);
    free(cut.left);
    return 0;
}
