/* What a model takes and gives. Decoding, metadata and answers read nothing else about a model, and
 * so know no difference between one that is built in, an operator's version, and one that was
 * loaded and keeps its constants. Pure. */
#ifndef SERVER_OIP_SIGNATURE_H
#define SERVER_OIP_SIGNATURE_H

#include "kernels/qk.h"
#include "server/base/limits.h"
#include "server/base/status.h"

#define QD_DIM_FREE (-1)

/* An input or an output. */
struct qd_port {
    const char *name;
    uint32_t types; /* QK_BIT()s; of a loaded model's port one */
    bool optional;
    const char *shape_text; /* for people; NULL: there is none */
    bool shaped;            /* the rank is known */
    uint32_t rank;
    int64_t dims[QK_RANK_MAX]; /* QD_DIM_FREE: known with each request */
    const struct qk_attribute
        *strides; /* how a loaded model's input lies in its data; NULL: dense */
};

/* All borrowed. */
struct qd_signature {
    const char *name;
    const char *platform; /* OIP platform string */
    const char *about;    /* one line for people */
    uint64_t version;
    const struct qd_port *inputs;
    size_t input_count; /* at most 32, and outputs too: bits of a uint32_t */
    const struct qd_port *outputs;
    size_t output_count;
    const char *version_policy; /* a loaded model's, as JSON; NULL: all versions are there */
    const char *file_name; /* its configuration's default_model_filename; NULL: it names none */
    uint64_t batch_max; /* the most that an input's first dimension may be; 0: it is like others */
    /* A built-in model's, whose parameters are the operator's attributes; a loaded one has none. */
    const struct qk_operator *op; /* NULL: it is loaded */
    const struct qk_version *row;
};

/* A built-in model's signature with its ports. It points into itself: it may not be moved. */
struct qd_builtin {
    struct qd_signature signature;
    struct qd_port inputs[QK_INPUT_COUNT_MAX];
    struct qd_port outputs[QK_OUTPUT_COUNT_MAX];
};

void qd_builtin_init(struct qd_builtin *builtin, const struct qk_operator *op,
                     const struct qk_version *row);

/* "[1,3,-1,-1]"; "[]" for a scalar. Cut where the text has no room. */
void qd_port_print_shape(const struct qd_port *port, char *text, size_t size);

/* Checks that a loaded model's signature keeps the bounds of limits.h: of the number of its ports,
 * and of the bytes of their names, each and together. The names differ from one another. */
enum qd_status qd_signature_check(const struct qd_signature *signature, struct qd_error *error);

/* Whether a tensor of this rank and these dims may come to the port. */
bool qd_port_takes(const struct qd_port *port, const struct qk_tensor *tensor);

/* Refuses the datatype that `field` gives for an input of a model or an operator: it takes others,
 * which the text names. */
enum qd_status qd_refuse_type(const char *name, uint64_t version, uint32_t types, const char *field,
                              const char *got, struct qd_error *error);

#endif
