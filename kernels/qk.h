/* libqk: the quantized operators, as pure compute. The only kernels header that server/ includes.
 *
 * One call goes create -> plan -> run:
 *
 * - qk_create checks the call against the registry and the operator's rules, and packs constant
 *   inputs.
 * - qk_plan works out the output's shape, the workspace and the number of independent units.
 * - qk_run computes units [begin, end) into the output; several threads may share one plan.
 *
 * Nothing here does I/O, keeps globals, prints, or aborts on input. Memory comes from the caller's
 * qk_memory and lives as long as that does. Every function is safe on any thread; objects are
 * immutable once made, and share nothing.
 */
#ifndef KERNELS_QK_H
#define KERNELS_QK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Status and errors ------------------------------------------------------------------- */

enum qk_status {
    QK_OK = 0,
    QK_INVALID,    /* the call breaks a rule; the text names the field, the rule and what came */
    QK_NO_MEMORY,  /* qk_memory had none left; the same call may succeed later */
    QK_UNAVAILABLE /* this machine lacks something: a CPU tier, the OpenBLAS library */
};

/* `text` is formatted in place, so that reporting an error never needs memory. */
struct qk_error {
    enum qk_status status;
    char text[320];
};

/* Fills `error` and returns `status`, so that `return qk_fail(...)` reads as one step. */
enum qk_status qk_fail(struct qk_error *error, enum qk_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Element types ----------------------------------------------------------------------- */

enum qk_type {
    QK_NONE,
    QK_UINT8,
    QK_INT8,
    QK_UINT16,
    QK_INT16,
    QK_UINT32,
    QK_INT32,
    QK_FP16,
    QK_BF16,
    QK_FP32,
    QK_UINT4,
    QK_INT4,
    QK_UINT2,
    QK_INT2,
    QK_FP4E2M1,
    QK_FP8E4M3FN,
    QK_FP8E4M3FNUZ,
    QK_FP8E5M2,
    QK_FP8E5M2FNUZ,
    QK_FP8E8M0,
    QK_TYPE_COUNT
};

enum qk_type_kind { QK_KIND_UNSIGNED, QK_KIND_SIGNED, QK_KIND_FLOAT };

/* One row of the element type table (kernels/element/element.c): the codec, the kernels, the
 * metadata and the error texts all read it. */
struct qk_type_info {
    const char *name; /* as on the wire: "UINT8" */
    enum qk_type_kind kind;
    uint8_t bits;
    uint8_t onnx; /* TensorProto.DataType number, onnx/onnx.proto */
    int64_t min;  /* integers: the range; 0, 0 for floats */
    int64_t max;
};

/* One element as its bits: `bits` of them, the lowest first. Sub-byte elements are packed as in
 * ONNX: element 0 in the lowest bits of byte 0, no alignment of rows (onnx docs, int4/float4/int2).
 * `data` has no alignment. */
uint32_t qk_element_load(enum qk_type type, const void *data, size_t index);

/* The value of a float type's bits: FP32 holds each exactly. NaN is 0x7fc00000, with the sign of
 * bit 7 for the float8 types (ONNX Runtime's float8.h); FP16, BF16 and FP32 keep their payload. */
float qk_float_decode(enum qk_type type, uint32_t bits);

/* The bits nearest to a value, ties to even, subnormals and infinities as IEEE; NaN becomes
 * 0x7e00|sign and 0x7fc0|sign. */
uint16_t qk_fp16_round(float value);
uint16_t qk_bf16_round(float value);

const struct qk_type_info *qk_type_info(enum qk_type type); /* type: not QK_NONE */
enum qk_type qk_type_by_name(const char *name);             /* QK_NONE: no such type */

/* A set of types, one bit each. */
#define QK_BIT(type) (UINT32_C(1) << (type))

/* ---- Tensors ----------------------------------------------------------------------------- */

/* NumPy 1 stops at the same rank; every operator here needs less. */
#define QK_RANK_MAX 32

/* A view: little-endian, row-major, borrowed. `data` has no alignment (it may point into the middle
 * of a request body), so kernels load through memcpy or unaligned intrinsics. */
struct qk_tensor {
    enum qk_type type; /* QK_NONE: absent */
    uint32_t rank;     /* 0: a scalar, one element */
    size_t dims[QK_RANK_MAX];
    size_t count;  /* product of dims; 1 for rank 0 */
    size_t stored; /* elements that `data` holds, or more: `count`, or what strides reach */
    const void *data;
};

/* *product = a * b; false: it does not fit. */
bool qk_mul_size(size_t a, size_t b, size_t *product);

/* Sets tensor->count and tensor->stored from rank and dims; false: overflow. The dims of an empty
 * tensor must fit too, its zeros left out, so that no product of some dims of a checked tensor can
 * overflow. */
bool qk_tensor_set_count(struct qk_tensor *tensor);

/* Sets tensor->stored, after qk_tensor_set_count, for a layout with strides, in elements, one for
 * each dim: up to the farthest element, 0 for an empty tensor. `data` may be longer; DirectML
 * rounds buffers up to 4 bytes. False: a stride is negative, their number is not the rank, or it
 * overflows. */
bool qk_tensor_set_strides(struct qk_tensor *tensor, const int64_t *strides, size_t stride_count);

/* Bytes of `count` packed elements; false: overflow. */
bool qk_type_bytes(enum qk_type type, size_t count, size_t *bytes);

/* ---- The operator registry --------------------------------------------------------------- */

#define QK_INPUT_COUNT_MAX 9     /* QLinearConv: x, w, y, each with scale and zero point, and B */
#define QK_ATTRIBUTE_COUNT_MAX 8 /* QLinearConv has 6 */

enum qk_attribute_kind {
    QK_ATTRIBUTE_INT,
    QK_ATTRIBUTE_INTS,
    QK_ATTRIBUTE_STRING,
    QK_ATTRIBUTE_BOOL,
    QK_ATTRIBUTE_TYPE,   /* a TensorProto.DataType number, or the name of an element type */
    QK_ATTRIBUTE_STRIDES /* integers: how an input's elements lie in its data */
};

struct qk_attribute_def {
    const char *name;
    enum qk_attribute_kind kind;
    unsigned since;    /* the first version that has it */
    unsigned input;    /* QK_ATTRIBUTE_STRIDES: the index of the input */
    const char *about; /* default and range, for the metadata: "default 1, in [-rank, rank-1]" */
};

/* What one input accepts in one version. */
struct qk_slot {
    uint32_t types; /* QK_BIT()s */
    bool optional;
};

struct qk_version {
    unsigned number; /* ONNX opset that changed the operator; DirectML 6_2 is 62 */
    struct qk_slot inputs[QK_INPUT_COUNT_MAX];
    uint32_t output_types;
};

struct qk_operator {
    const char *name;     /* the model's name on the wire: "onnx.QLinearConv" */
    const char *platform; /* OIP platform string */
    const char *about;    /* one line for people */
    const char *input_names[QK_INPUT_COUNT_MAX];
    const char *input_shapes[QK_INPUT_COUNT_MAX]; /* for people: "[N, C, D1..Dn]" */
    size_t input_count;
    const char *output_name;
    const char *output_shape; /* for people */
    const struct qk_attribute_def *attributes;
    size_t attribute_count;
    const struct qk_version *versions; /* ascending */
    size_t version_count;
    unsigned version_last; /* the newest number that means the last version */
    /* The numbers that exist, ascending, as DirectML's feature levels; NULL: all to version_last */
    const unsigned *numbers;
    size_t number_count;
    const struct qk_operator_code *code; /* private to kernels/ */
};

/* All operators, in a fixed order. */
const struct qk_operator *const *qk_operators(size_t *count);
const struct qk_operator *qk_operator_by_name(const char *name); /* NULL: unknown */

/* The newest version not above `number`, as an ONNX opset import resolves (11 means 10).
 * NULL: below the oldest, above version_last, or a number that does not exist. */
const struct qk_version *qk_operator_version(const struct qk_operator *op, uint64_t number);

/* ---- One call ---------------------------------------------------------------------------- */

struct qk_attribute {
    bool present;
    int64_t number;      /* QK_ATTRIBUTE_INT; _BOOL: 0 or 1; _TYPE: TensorProto.DataType */
    const int64_t *list; /* QK_ATTRIBUTE_INTS and _STRIDES, borrowed */
    size_t list_count;
    const char *string; /* QK_ATTRIBUTE_STRING, borrowed */
};

/* What a caller asks for. inputs[i] and attributes[i] go with op->input_names[i] and
 * op->attributes[i]. Everything is borrowed until the plan has run. */
struct qk_call {
    const struct qk_operator *op;
    const struct qk_version *version;
    struct qk_tensor inputs[QK_INPUT_COUNT_MAX];
    struct qk_attribute attributes[QK_ATTRIBUTE_COUNT_MAX];
};

/* Where create and plan take memory: 64-byte aligned, never given back one by one.
 * NULL makes the call end with QK_NO_MEMORY. */
struct qk_memory {
    void *(*alloc)(void *context, size_t bytes);
    void *context;
};

/* ---- Create, plan, run ------------------------------------------------------------------- */

struct qk_kernels;  /* the chosen kernels: qk_kernels_create */
struct qk_instance; /* an operator with its attributes and constant inputs, checked and packed */

struct qk_plan {
    const char *kernel;      /* the code path that will run: "dequantize_avx2", "conv_sgemm" */
    struct qk_tensor output; /* type, dims, count; data is NULL */
    size_t output_bytes;
    size_t workspace_bytes; /* for each concurrent qk_run; may be 0 */
    size_t unit_count;      /* may be 0: an empty output */
    uint64_t unit_cost_ns;  /* a rough guess for one unit on one core, for the scheduler */
    void (*run)(const struct qk_plan *plan, void *output, void *workspace, size_t begin,
                size_t end);
    const void *state; /* the operator's own */
};

/* Checks types, required inputs, attributes and the operator's rules; packs what is constant. */
enum qk_status qk_create(const struct qk_kernels *kernels, const struct qk_call *call,
                         struct qk_memory memory, const struct qk_instance **instance,
                         struct qk_error *error);

/* Fits the instance to the call's variable input, x, the first one, which has the type that it had
 * for create, and any shape, with the strides that the call's attributes give it. */
enum qk_status qk_plan(const struct qk_instance *instance, const struct qk_call *call,
                       struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);

/* Computes units [begin, end). `output` holds plan->output_bytes, 64-byte aligned, and may be
 * shared by threads that run disjoint units; `workspace` holds plan->workspace_bytes, 64-byte
 * aligned, and may not. No allocation, no failure. */
void qk_run(const struct qk_plan *plan, void *output, void *workspace, size_t begin, size_t end);

/* ---- Kernels for this CPU ---------------------------------------------------------------- */

/* The tiers, from the slowest to the fastest: "scalar", "avx2", "avx512"; NULL behind the last. */
const char *qk_tier_name(size_t index);

/* "auto, scalar, avx2 or avx512", for people; 64 bytes are enough. */
void qk_tier_names(char *text, size_t bytes);

/* What multiplies the integers of convolutions, from the slowest to the fastest: "blas" and this
 * machine's others; NULL behind the last. */
const char *qk_gemm_name(size_t index);

/* "auto, blas, avx2, avxvnni, vnni or amx", for people; 64 bytes are enough. */
void qk_gemm_names(char *text, size_t bytes);

/* Picks the fastest kernels that the CPU has, or those of one tier, and opens OpenBLAS on a core
 * that the CPU has. Call it once, before any other thread starts: it sets OPENBLAS_* in the
 * environment, which OpenBLAS reads while it loads.
 * `tier`: "auto" or a name of the tiers; `gemm`: "auto", which is the fastest that the CPU has, or
 * a lesser tier alone, or a name of that list; QK_UNAVAILABLE when this CPU lacks it. Destroy frees
 * it; NULL is fine. */
enum qk_status qk_kernels_create(const char *tier, const char *gemm, struct qk_kernels **kernels,
                                 struct qk_error *error);
void qk_kernels_destroy(struct qk_kernels *kernels);

const char *qk_kernels_tier(const struct qk_kernels *kernels); /* as in the lists */
const char *qk_kernels_gemm(const struct qk_kernels *kernels);
const char *qk_kernels_blas_core(const struct qk_kernels *kernels); /* "SkylakeX", "Haswell", ... */

#endif
