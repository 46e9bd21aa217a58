/* The inputs and outputs of a model. Decoding, metadata and answers read nothing else about a
 * model. They therefore treat built-in models, which are versions of operators, like loaded models,
 * which keep their constants. Pure. */
#pragma once

#include "kernels/qk.h"
#include "server/base/limits.h"
#include "server/base/status.h"
#include "server/oip/labels.h"

#define QD_DIM_FREE (-1)

/* An input or an output. */
struct qd_port {
    const char *name;
    uint32_t types; /* the types that it may have, as QK_BIT()s; exactly one for a loaded model */
    bool optional;
    const char
        *shape_text; /* what an operator's definition says of the shape, for people; NULL: none */
    bool shaped;     /* the rank is known */
    uint32_t rank;
    int64_t dims[QK_RANK_MAX];          /* QD_DIM_FREE: each request chooses the size */
    const struct qk_attribute *strides; /* the layout of a loaded model's input; NULL: dense */
    const struct qd_labels *labels;     /* the names of an output's classes; NULL: none */
    const char *label_file;             /* label_filename of the configuration; NULL: none */
};

/* Everything is borrowed. */
struct qd_signature {
    const char *name;
    const char *platform; /* OIP platform string */
    const char *about;    /* one line for people */
    uint64_t version;
    const struct qd_port *inputs;
    size_t input_count; /* at most 32, like outputs, because they are bits of a uint32_t */
    const struct qd_port *outputs;
    size_t output_count;
    const char *version_policy; /* of a loaded model, as JSON; NULL: all versions are served */
    const char *file_name;      /* default_model_filename of the configuration; NULL: none */
    /* Where the configuration cuts the ONNX file, for answers that repeat the configuration. */
    const char *const *cut_inputs;
    size_t cut_input_count;
    const char *const *cut_outputs;
    size_t cut_output_count;
    uint64_t batch_max; /* the upper bound of the inputs' first dimension, the batch; 0: there is no
                           batch */
    /* The operator of a built-in model, whose parameters are the operator's attributes. A loaded
     * model has none. */
    const struct qk_operator *op; /* NULL: the model is loaded */
    const struct qk_version *row; /* which of its versions; NULL as `op` is */
};

/* Fills a built-in model's signature and its ports, which are the operator's inputs followed by its
 * outputs. The signature points at them. */
void qd_signature_init(struct qd_signature *signature, const struct qk_operator *op,
                       const struct qk_version *row, struct qd_port *ports);

/* A built-in model's signature with room for the ports of any operator. The struct points into
 * itself and may not be moved. */
struct qd_builtin {
    struct qd_signature signature;
    struct qd_port ports[QK_INPUT_COUNT_MAX + QK_OUTPUT_COUNT_MAX];
};

void qd_builtin_init(struct qd_builtin *builtin, const struct qk_operator *op,
                     const struct qk_version *row);

/* Checks that a loaded model's signature keeps the bounds of limits.h on the number of ports and on
 * the lengths of their names, and that all names differ. */
enum qd_status qd_signature_check(const struct qd_signature *signature, struct qd_error *error);

/* Returns whether the port accepts a tensor of this rank and these dims. */
bool qd_port_takes(const struct qd_port *port, const struct qk_tensor *tensor);

/* Makes the tensor of a loaded model's input, without data. A free dimension gets `size`, or
 * `axis_size` if it is on axis `axis`. Returns false if the tensor would be too large. */
bool qd_port_make_tensor(const struct qd_port *port, size_t size, uint32_t axis, size_t axis_size,
                         struct qk_tensor *tensor);

/* Refuses the datatype `got` that `field` gives for an input. The error names the types that the
 * model or operator takes. */
enum qd_status qd_refuse_type(const char *name, uint64_t version, uint32_t types, const char *field,
                              const char *got, struct qd_error *error);
