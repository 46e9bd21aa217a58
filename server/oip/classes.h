/* Triton's classification extension: instead of all elements of an output, the answer has the K
 * greatest of each row, as strings "VALUE:INDEX" or "VALUE:INDEX:LABEL". Pure.
 *
 * What a row is: if the first dimension counts the items of a batch, each item is a row of all its
 * elements, and the shape is [items, K]. Otherwise the whole output is one row, and the shape is
 * [K]. The first dimension is a batch if the model has a max_batch_size, or if there are two
 * dimensions or more and the model does not say that the first one is 1.
 *
 * Elements come in descending order, equal ones in the order of their index, NaN last. VALUE is
 * printed as Triton prints it: integers in decimal, floats with six digits behind the point. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/oip/decode.h"
#include "server/oip/labels.h"

/* How many classes of a row an answer may have. A client that wants more can have the output
 * itself. One thread finds and prints those of a row without a break, and printing takes about a
 * millisecond. */
#define QD_CLASS_COUNT_MAX 2048
/* The elements of a row, as in Triton. One thread looks at all of them without a break. That takes
 * 1 to 3 ms, in any order of the elements. */
#define QD_CLASS_ROW_ELEMENTS_MAX 1000000

/* About how long one thread takes to look at an element of a row, in most orders, and to sort and
 * print a class. */
#define QD_CLASS_ELEMENT_NS 2
#define QD_CLASS_STRING_NS 200

/* Returns how many classes the request wants of an output; 0: the output itself. */
static inline uint32_t qd_classes_wanted(const struct qd_oip_asked *asked, size_t output)
{
    return asked->class_counts == NULL ? 0 : asked->class_counts[output];
}

/* An output of which the answer has classes. */
struct qd_classes {
    const struct qk_tensor *tensor; /* borrowed; needs no data until qd_classes_find */
    const struct qd_labels *labels; /* NULL: none */
    bool is_batch;                  /* the shape is [row_count, kept], else [kept] */
    bool is_binary; /* each string has its length before it, in 4 bytes, little-endian. Otherwise it
                       is JSON, with a comma behind each but the tensor's last */
    size_t row_count;
    size_t row_elements;
    size_t kept; /* how many classes of each row */
};

void qd_classes_init(struct qd_classes *classes, const struct qd_oip_asked *asked, size_t output,
                     const struct qk_tensor *tensor);

/* Refuses outputs that cannot be classified or are too large, before they are computed. */
enum qd_status qd_classes_check(const struct qd_oip_asked *asked, const struct qk_tensor *outputs,
                                size_t count, struct qd_error *error);

/* An element of a row. */
struct qd_class {
    int64_t key; /* grows with the element, and is least for NaN; an integer is its own key */
    size_t index;
};

/* Finds the row's greatest elements, in order. `found` has room for classes->kept. */
void qd_classes_find(const struct qd_classes *classes, size_t row, struct qd_class *found);

/* Returns an upper bound for the bytes of the strings of the row's elements, some tens of bytes too
 * large for each. */
size_t qd_classes_bytes_max(const struct qd_classes *classes, const struct qd_class *found);

/* Prints the strings of the row's elements. Returns the end. */
char *qd_classes_print(const struct qd_classes *classes, size_t row, const struct qd_class *found,
                       char *out);
