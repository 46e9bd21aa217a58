/* libqk: quantized tensor operators as pure compute. This header is its manual, and the only one
 * that server/ includes.
 *
 * Roles. An input is constant if it is known before any run, like a weight or a scale. It is
 * variable if it comes with each run. An operator says which of its inputs are variable
 * (qk_operator.variable_inputs). A caller may fix any of them, which makes it constant, too. A
 * planned input decides shapes, like the shape of Reshape (qk_operator.planned_inputs). It is
 * constant, but in a graph it may also follow from the shapes of other values.
 *
 * Steps. An instance of an operator is made once, planned for each shape, and run for each set of
 * inputs. Packing and runs are cut into units: parts of some 5 to 50 µs, which any thread may do.
 *
 * 1. qk_prepare checks a call, allocates all memory that the instance will ever have, and says how
 *    many units of packing are left to do.
 * 2. qk_pack does some of these units. qk_create is qk_prepare and all units of packing.
 * 3. qk_plan takes the shapes of the variable inputs. It says which outputs a run makes, how much
 *    workspace a thread needs, and how many units the work has.
 * 4. qk_run computes some of the units: it reads the data of inputs and writes the data of outputs.
 *
 * Graphs. Operators that read the outputs of other operators form a graph. A graph goes through the
 * same steps: qk_graph_prepare, qk_graph_pack, qk_graph_plan, qk_graph_run. All that is said here
 * about an instance and its plans also holds for a graph and its plans.
 *
 * Lifetimes. Nothing is freed here: objects live in the memory that the caller gave for them.
 *
 * - The registry is static. The kernels outlive every instance made with them.
 * - The data of constant inputs is borrowed until the last unit of packing is done. Everything else
 *   that a call holds or points at is read only while qk_prepare runs. With constants_stay, the
 *   caller lends the data of constant inputs and the lists of attributes for the instance's whole
 *   life. Data that needs no packing is then not copied.
 * - An instance outlives its plans. A plan holds no data of a run, and may be kept and copied.
 * - Inputs and outputs of a run are borrowed until qk_run returns.
 *
 * Threads. Every function but qk_kernels_create may be called on any thread. An instance whose
 * packing is done, and every plan, are never written to again, so any number of threads may share
 * them. Several threads may do units of packing at the same time, or units of a run. A plan may be
 * made before packing is done. A run may begin only after all units of packing are done, and its
 * thread must see their results (a lock or a queue between the threads takes care of that).
 *
 * Errors. Functions that return enum qk_status may fail, such as qk_prepare, qk_create, qk_plan and
 * qk_kernels_create. They give a text that names the field, the rule that it breaks, and the value
 * that came. A call may come from an untrusted client: sizes are checked before memory is
 * allocated. qk_pack and qk_run allocate no memory and cannot fail. Arguments that are not part of
 * a call, such as the index of a unit or a workspace, are not checked.
 *
 * Nothing here does I/O, keeps globals, prints, or aborts on input. The exception is
 * qk_kernels_create, which asks the system what machine this is. It may also set OPENBLAS_* in the
 * environment and load OpenBLAS. */
#pragma once

/* Kernels read tensors where they lie, and tensors are little-endian on the wire. Sizes are
 * computed with 64 bits. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "quantd needs a little-endian machine, such as x86-64 or AArch64; this one is big-endian"
#elif __SIZEOF_POINTER__ != 8
#error "quantd needs a 64-bit machine, such as x86-64 or AArch64; pointers of this one have 32 bits"
#endif

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
    uint32_t node;   /* the node that is refused, as errors print it; QK_VALUE_NONE: not one node */
    bool is_of_rank; /* a tensor has a wrong rank, so that no other sizes would do */
    char text[448];
};

/* Stands for an optional input that is absent, for an output that nothing reads, and for no node.
 */
#define QK_VALUE_NONE UINT32_MAX

/* Fills `error` and returns `status`, so that `return qk_fail(...)` reads as one step. */
enum qk_status qk_fail(struct qk_error *error, enum qk_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Like qk_fail with QK_INVALID, for a tensor of a wrong rank. */
enum qk_status qk_fail_of_rank(struct qk_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

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
    QK_INT64,
    QK_BOOL, /* a byte, 0 or 1 */
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

/* Returns one element as its bits: the lowest bits of the result, as many as the type has. The type
 * has at most 32 bits. Elements
 * of less than 8 bits are packed as in ONNX: element 0 in the lowest bits of byte 0, and rows are
 * not aligned (onnx docs, int4/float4/int2). `data` has no alignment. */
uint32_t qk_element_load(enum qk_type type, const void *data, size_t index);

/* Returns the value of a float type's bits. FP32 holds every such value exactly. A NaN of FP16,
 * BF16 or FP32 keeps its payload. A NaN of a smaller type becomes 0x7fc00000, with the sign of bit
 * 7, but without a sign if the type is FP8E8M0 (ONNX Runtime's float8.h). */
float qk_float_decode(enum qk_type type, uint32_t bits);

/* Round a value to the nearest FP16 or BF16, ties to even, and return its bits. Subnormals and
 * infinities are those of IEEE 754. A NaN becomes 0x7e00 or 0x7fc0, with its sign. */
uint16_t qk_fp16_round(float value);
uint16_t qk_bf16_round(float value);

const struct qk_type_info *qk_type_info(enum qk_type type); /* type: not QK_NONE */
enum qk_type qk_type_by_name(const char *name);             /* QK_NONE: no such type */

/* Prints a set of QK_BIT()s as "UINT8, INT8". What does not fit is cut off. */
void qk_print_types(uint32_t set, char *text, size_t size);

/* A set of types, one bit each. */
#define QK_BIT(type) (UINT32_C(1) << (type))

/* ---- Tensors ----------------------------------------------------------------------------- */

/* The most axes of a tensor. NumPy 1 has the same limit. No operator here needs that many. */
#define QK_RANK_MAX 32

/* The largest length of an axis or a block that an attribute may name. A process on x86-64 can
 * address 2^47 bytes, so no tensor has a longer axis. */
#define QK_LENGTH_MAX ((INT64_C(1) << 47) - 1)

/* The largest stride. DirectML's strides have the type UINT (DML_BUFFER_TENSOR_DESC). */
#define QK_STRIDE_MAX ((int64_t)UINT32_MAX)

/* A view: little-endian, row-major, borrowed. `data` has no alignment (it may point into the middle
 * of a request body), so kernels load through memcpy or unaligned intrinsics. */
struct qk_tensor {
    enum qk_type type; /* QK_NONE: absent */
    uint32_t rank;     /* 0: a scalar, one element */
    size_t dims[QK_RANK_MAX];
    size_t count;  /* product of dims; 1 for rank 0 */
    size_t stored; /* `data` has at least this many elements: `count` or, with strides, all up to
                      the farthest one */
    const void *data;
};

/* Like an assignment, but copies only the first `rank` dims: most tensors have few. */
static inline void qk_tensor_copy(struct qk_tensor *to, const struct qk_tensor *from)
{
    to->type = from->type;
    to->rank = from->rank;
    for (uint32_t i = 0; i < from->rank; i++)
        to->dims[i] = from->dims[i];
    to->count = from->count;
    to->stored = from->stored;
    to->data = from->data;
}

/* Sets *product to a * b. Returns false if that overflows. */
bool qk_mul_size(size_t a, size_t b, size_t *product);

/* Sets tensor->count and tensor->stored from rank and dims. Returns false if the product of all
 * dims but those of 0 overflows. Later code may therefore multiply any dims of a tensor without a
 * check, even if the tensor is empty. */
bool qk_tensor_set_count(struct qk_tensor *tensor);

/* Sets tensor->stored for a layout with strides, after qk_tensor_set_count. Strides are in
 * elements, one for each dim. `stored` then counts the elements up to the farthest one, 0 for an
 * empty tensor. `data` may be longer, because DirectML rounds buffers up to 4 bytes. Returns false
 * if a stride is negative or above QK_STRIDE_MAX, if there are not `rank` strides, or if the index
 * of the farthest element overflows. */
bool qk_tensor_set_strides(struct qk_tensor *tensor, const int64_t *strides, size_t stride_count);

/* Sets *bytes to the size of `count` packed elements. Returns false if that overflows. */
bool qk_type_bytes(enum qk_type type, size_t count, size_t *bytes);

/* ---- The operator registry --------------------------------------------------------------- */

#define QK_INPUT_COUNT_MAX 32     /* Concat has as many inputs as a mask of inputs has bits */
#define QK_OUTPUT_COUNT_MAX 8     /* of Split; a plan has some 300 bytes for each */
#define QK_ATTRIBUTE_COUNT_MAX 10 /* Resize has 9 */

enum qk_attribute_kind {
    QK_ATTRIBUTE_INT,
    QK_ATTRIBUTE_INTS,
    QK_ATTRIBUTE_FLOAT,
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
struct qk_input_def {
    uint32_t types; /* QK_BIT()s */
    bool optional;
};

struct qk_version {
    unsigned number; /* the ONNX opset that changed the operator, or DirectML's feature level: 62
                        for 6_2 */
    struct qk_input_def inputs[QK_INPUT_COUNT_MAX];
    uint32_t output_types[QK_OUTPUT_COUNT_MAX]; /* QK_BIT()s */
};

/* An input or an output. */
struct qk_port {
    const char *name;
    const char *shape; /* for people: "[N, C, D1..Dn]" */
};

struct qk_operator {
    const char *name;     /* the model's name on the wire: "onnx.QLinearConv" */
    const char *platform; /* OIP platform string */
    const char *about;    /* one line for people */
    struct qk_port inputs[QK_INPUT_COUNT_MAX];
    size_t input_count;
    /* True: the inputs from list_begin on are a list of tensors. Behind each come list_begin inputs
     * that describe it as the first inputs describe output 0, such as a scale and a zero point. The
     * operator of a list gives the same as the operator of the results for parts of the list, so a
     * node of a file with a longer list becomes several nodes. */
    bool joins_list;
    size_t list_begin;
    uint32_t variable_inputs; /* bit i: input i comes with each run, unless a caller fixes it */
    uint32_t planned_inputs;  /* bit i: plans read the data of input i, such as Reshape's shape. It
                                 is constant, or a planned value of a graph. None is variable. */
    struct qk_port outputs[QK_OUTPUT_COUNT_MAX];
    size_t output_count;
    size_t uncomputed_output_count; /* how many outputs ONNX has behind these: a node of a file may
                                       name them, but nothing may read them */
    const struct qk_attribute_def *attributes;
    size_t attribute_count;
    const struct qk_version *versions; /* ascending */
    size_t version_count;
    unsigned version_last; /* the largest number that a caller may name; it stands for the last
                              version */
    /* The numbers that a caller may name, ascending, if there are gaps between them, as between
     * DirectML's feature levels. NULL: every number up to version_last. */
    const unsigned *numbers;
    size_t number_count;
    /* True: a plan has tables as long as axes of its outputs, so planning may take some 20 ms
     * however small the call is. Other operators take microseconds, and longer only to read large
     * constants. */
    bool plans_tables;
    bool is_table; /* True: looks elements up in a table, which may stand for several nodes */
    const struct qk_operator_code *code; /* private to kernels/ */
};

/* Returns all operators, always in the same order. */
const struct qk_operator *const *qk_operators(size_t *count);
const struct qk_operator *qk_operator_by_name(const char *name); /* NULL: unknown */

/* Like qk_operator_by_name. Also finds operators that qk_operators does not list, because only
 * graphs use them. */
const struct qk_operator *qk_graph_operator_by_name(const char *name);

/* Finds the operator of an ONNX node. `name` is "onnx." and the node's op_type, or the node's
 * domain, a dot and its op_type. *number is the version of the domain that the file imports. It is
 * replaced if the operator is one of another domain: "com.microsoft.QuantizeLinear" of version 1 is
 * onnx.QuantizeLinear of opset 21. */
const struct qk_operator *qk_graph_operator(const char *name, uint64_t *number);

/* Returns the newest version whose number is not above `number`. ONNX resolves an opset import in
 * the same way: if opset 10 and 13 changed an operator, 11 means 10. Returns NULL if `number` is
 * below the oldest version or above version_last, or is not one of op->numbers. */
const struct qk_version *qk_operator_version(const struct qk_operator *op, uint64_t number);

/* ---- One call ---------------------------------------------------------------------------- */

struct qk_attribute {
    bool present;
    int64_t number;      /* QK_ATTRIBUTE_INT; _BOOL: 0 or 1; _TYPE: TensorProto.DataType */
    const int64_t *list; /* QK_ATTRIBUTE_INTS and _STRIDES */
    size_t list_count;
    const char *string; /* QK_ATTRIBUTE_STRING */
    float real;         /* QK_ATTRIBUTE_FLOAT */
};

/* An operator with the attributes and inputs of a caller. inputs[i] and attributes[i] belong to
 * op->inputs[i] and op->attributes[i]. The top of this file says how long pointers are
 * borrowed. */
struct qk_call {
    const struct qk_operator *op;
    const struct qk_version *version;
    /* Bit i: input i comes with each run, or, if it is one of op->planned_inputs, with each plan.
     * Only bits of op->variable_inputs and op->planned_inputs may be set. If one of these bits is
     * not set here, the input is fixed: inputs[i] is its value in all plans and runs. */
    uint32_t variable;
    /* True if the data of constant inputs and the lists of attributes outlive the instance, which
     * may then point at them. False: the instance copies or packs all that it keeps. */
    bool constants_stay;
    /* How many outputs a node of a file names, which says into how many parts onnx.Split cuts its
     * input. 0: no file says it. */
    size_t output_count;
    struct qk_attribute attributes[QK_ATTRIBUTE_COUNT_MAX];
    /* The operator's inputs. Only the type of a variable input is read; QK_NONE says that it is
     * absent. This is the last member, so that callers need not clear inputs that the operator does
     * not have. */
    struct qk_tensor inputs[QK_INPUT_COUNT_MAX];
};

/* An allocator of the caller's. Memory is aligned to 64 bytes and need not be zeroed. libqk frees
 * no block: the caller frees all of them when the instance, graph or plan in them is no longer
 * used. If alloc returns NULL, the function that called it fails with QK_NO_MEMORY. */
struct qk_memory {
    void *(*alloc)(void *context, size_t bytes);
    void *context;
};

struct qk_kernels; /* the chosen kernels: qk_kernels_create */

/* ---- Prepare and pack -------------------------------------------------------------------- */

/* An operator with its attributes and constant inputs, checked and packed. All units of packing
 * take about the same time. */
struct qk_instance {
    const struct qk_operator *op;
    const struct qk_version *version;
    size_t packed_bytes;                            /* how many bytes qk_memory gave for it */
    size_t pack_unit_count;                         /* 0: qk_prepare has packed everything */
    uint64_t pack_unit_cost_ns;                     /* a rough guess for one unit on one core */
    enum qk_type output_types[QK_OUTPUT_COUNT_MAX]; /* of every plan's outputs */

    /* Private to kernels/. */
    const struct qk_kernels *kernels;
    uint32_t variable;                      /* as in the call */
    enum qk_type types[QK_INPUT_COUNT_MAX]; /* as in the call */
    const struct qk_tensor *fixed;          /* [op->input_count]; NULL: no input is fixed */
    const struct qk_attribute *strides;     /* [op->input_count], by input; NULL: there are none */
};

/* Checks the call against the registry and the operator's rules, and allocates the instance. On
 * failure *instance is not set, and the caller may free what `memory` gave. */
enum qk_status qk_prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                          struct qk_memory memory, struct qk_instance **instance,
                          struct qk_error *error);

/* Packs units [begin, end) of the instance's pack_unit_count. Each must be packed exactly once, in
 * any order, on any threads at once. */
void qk_pack(struct qk_instance *instance, size_t begin, size_t end);

/* Calls qk_prepare, then qk_pack for all units. */
enum qk_status qk_create(const struct qk_kernels *kernels, const struct qk_call *call,
                         struct qk_memory memory, const struct qk_instance **instance,
                         struct qk_error *error);

/* ---- Plan and run ------------------------------------------------------------------------ */

/* How an instance computes inputs of given shapes. */
struct qk_plan {
    const struct qk_instance *instance;
    const char *kernel; /* the name of the code path that will run, for people */
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX]; /* type, dims and count; data is NULL */
    size_t output_bytes[QK_OUTPUT_COUNT_MAX];
    size_t output_count;      /* Split may have less than its operator; the others are empty then */
    size_t workspace_bytes;   /* for each concurrent qk_run; may be 0 */
    size_t unit_count;        /* may be 0: an empty output */
    uint64_t unit_cost_ns;    /* a rough guess for one unit on one core, for the scheduler */
    uint64_t multiplications; /* of convolutions and matrix products; 0 for other operators */
    /* True if output 0 has the bytes of input 0, in the same order. A caller that places both at
     * one address need not run the plan. If it runs the plan, they must not overlap. */
    bool is_alias;
    /* True if output 0 has the bytes of the operator's list of inputs (qk_operator.joins_list), one
     * tensor behind the other. A caller that places each of them where its bytes are in the output
     * need not run the plan. */
    bool joins;
    /* True if input 0 has the bytes of the outputs, one tensor behind the other. A caller that
     * places each of them where its bytes are in the input need not run the plan. */
    bool cuts;

    /* Private to kernels/. */
    void (*run)(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end);
    const void *state;
};

/* Plans the instance for inputs of these shapes. inputs[i] belongs to op->inputs[i].
 * Everything but the data of a variable input is read, and its type must be that of the call. Of
 * planned inputs, the data is read, too. An operator may refuse data of other inputs that it knows
 * to be wrong, so their data is either right or NULL. Inputs that are not variable are not read, so
 * `inputs` may be NULL if none is. The instance need not be packed yet. */
enum qk_status qk_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                       struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);

/* Computes units [begin, end) of the plan's unit_count. inputs[i] is the data of variable input i:
 * little-endian, laid out as the plan's tensor was, with any alignment. Planned inputs and inputs
 * that are not variable are not read, so `inputs` may be NULL if no other is there. outputs[i] has
 * plan->output_bytes[i] bytes, aligned to 64. Threads that run disjoint units share the outputs.
 * `workspace` has plan->workspace_bytes bytes, aligned to 64, and belongs to one thread. */
void qk_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
            void *workspace, size_t begin, size_t end);

/* ---- Graphs ------------------------------------------------------------------------------ */

#define QK_GRAPH_NODE_COUNT_MAX 4096 /* networks have 2,500; a load takes 55 KB for each */
#define QK_GRAPH_PORT_COUNT_MAX 32   /* the most inputs of a graph, and the most outputs */
/* As many values as QK_GRAPH_NODE_COUNT_MAX nodes can make, and the graph's inputs. */
#define QK_GRAPH_VALUE_COUNT_MAX \
    (QK_GRAPH_NODE_COUNT_MAX * QK_OUTPUT_COUNT_MAX + QK_GRAPH_PORT_COUNT_MAX)

/* Planned values. Networks compute shapes from other shapes, for example by Shape, Gather, Concat
 * and Reshape, so that a file serves batches of any size. A value that follows from the shapes of
 * other values alone is computed while a plan is made, by the operators themselves, if another plan
 * depends on it: if a planned input reads it, or another planned value is computed from it. It may
 * have at most QK_PLANNED_COUNT_MAX elements, and all planned values of a graph together
 * QK_PLANNED_ALL_MAX. A shape has at most 32 elements; the longest planned values are lists of
 * indices. Each element takes up to 8 bytes of every plan that a caller keeps.
 *
 * The maker of a planned value runs only if one of its outputs leaves the graph. Nodes whose
 * results no run reads never run, such as a DequantizeLinear that only Shape reads. */
#define QK_PLANNED_COUNT_MAX ((size_t)4096)
#define QK_PLANNED_ALL_MAX ((size_t)1 << 16)

/* One operator of a graph. Its variable inputs are values, and so are its outputs. */
struct qk_node {
    /* For people; "" if the node has no name. NULL: errors do not mention the node, because the
     * graph was made for a single operator. */
    const char *name;
    uint32_t number; /* for people: the node's index in its file, plus 1; 0: its index in `nodes` */
    uint32_t inputs[QK_INPUT_COUNT_MAX]; /* the number of the value that each variable input reads;
                                            entries of other inputs are not read */
    uint32_t outputs[QK_OUTPUT_COUNT_MAX]; /* the number of the value that each output makes */
    /* As for qk_prepare, but the graph finds the types of variable inputs, so they are not read
     * here. This is the last member, because its last member is long and mostly unused. */
    struct qk_call call;
};

/* Returns how many bytes of a node of this operator are used: most operators have few inputs. */
size_t qk_node_bytes(const struct qk_operator *op);

struct qk_graph_input {
    uint32_t value;
    enum qk_type type;
};

/* What qk_graph_lower did with a node of a file, for people. A node that others replace may still
 * be there: if the graph has a node of its number, its fate does not count. A node may also have
 * become several nodes, such as a DequantizeLinear that several nodes read. If all have gone, the
 * first fate counts. */
enum qk_fate_kind {
    QK_FATE_KEPT,
    QK_FATE_FOLDED,    /* it depends on constants alone, and was computed once */
    QK_FATE_FUSED,     /* it is a part of node `into` */
    QK_FATE_TABLE,     /* it is a part of the table that has the place of node `into` */
    QK_FATE_CANCELLED, /* it undoes what node `into` does */
    QK_FATE_REMOVED    /* nothing reads it any more */
};
struct qk_fate {
    enum qk_fate_kind kind;
    uint32_t into; /* index of a node in the file; QK_VALUE_NONE: none */
};

/* What operators compute while a file is loaded, over all graphs that are made of it. A loader may
 * make several graphs of one file, for example to find the types of its inputs. */
struct qk_graph_work {
    uint64_t cost_ns; /* of everything that was computed, as plans guess it */
    bool is_refused;  /* something was not computed, because it would have exceeded the bound */
};

/* The memory that passes take for what they compute of one graph. The first pass sets the bound, by
 * the constants of the graph that it is given, because later passes find the results of earlier
 * ones among the constants. */
struct qk_graph_memory {
    size_t bytes;     /* taken so far */
    size_t bytes_max; /* 0: no pass has set it */
};

/* A graph of operators. A value is a tensor that is an input of the graph or is made by one node.
 * Values are numbered from 0. A value need not be read by any node. */
struct qk_graph_call {
    const struct qk_node *nodes; /* in any order that has no cycle */
    size_t node_count;
    /* How many nodes the memory of `nodes` has room for, if passes may change nodes where they are.
     * Passes set it, and qk_graph_lower sets it to 0. A caller that does not read its nodes again
     * sets it, and gives room for the nodes that passes add: a pass without enough room copies all
     * nodes. After qk_graph_lower_once, `nodes` may be an array of its own, with room for
     * node_count nodes. 0: nodes are copied before they are changed. */
    size_t node_room;
    size_t value_count;
    const char *const *value_names; /* for people, one for each value; NULL: they have none */
    struct qk_graph_input inputs[QK_GRAPH_PORT_COUNT_MAX];
    size_t input_count;
    uint32_t outputs[QK_GRAPH_PORT_COUNT_MAX]; /* values that nodes make; other nodes may read them
                                                  too */
    size_t output_count;
    /* Counts what qk_graph_lower and its parts compute. One bound holds for all calls that share
     * it (network/compute.h). NULL: each pass counts alone. */
    struct qk_graph_work *work;
    /* Counts the memory of qk_graph_lower and its parts. It begins as {0}. NULL: qk_graph_lower
     * counts that of its passes together, and its parts count alone. */
    struct qk_graph_memory *memory;
    /* fates[i] is that of node i of the file: qk_node.number says which node that is. Zeroed by the
     * caller, and filled by qk_graph_lower and its parts. NULL: nobody asks. */
    struct qk_fate *fates;
    size_t fate_count;
};

/* Computes, once, what nodes compute from constants alone, and removes these nodes: their results
 * become constants of the nodes that read them. A node that makes an output of the graph stays. The
 * call's nodes, and the new constants, then lie in `memory`. (*origins)[i] is the index that node i
 * had before.
 *
 * Before this call, a node may read any of its inputs from another node. A call fails if a node
 * then still reads an input that must be constant (no bit of op->variable_inputs or
 * op->planned_inputs) from another node. It also fails if folding would take longer than some
 * seconds, or much more memory than the graph's constants (network/compute.h). Nodes are not folded
 * if the data of one of their constants is NULL, because it is not known yet. What is wrong with
 * the graph otherwise, qk_graph_prepare says. */
enum qk_status qk_graph_fold(const struct qk_kernels *kernels, struct qk_graph_call *call,
                             struct qk_memory memory, const uint32_t **origins,
                             struct qk_error *error);

/* Does the part of qk_graph_lower that is the same whatever the types of the graph's inputs are. A
 * caller that tries several types calls it once before the tries. */
enum qk_status qk_graph_lower_once(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                   struct qk_memory memory, const uint32_t **origins,
                                   struct qk_error *error);

/* Makes operators on codes, such as onnx.QLinearConv, from operators on floats that lie between
 * DequantizeLinear and QuantizeLinear (network/fuse.c lists them). First moves DequantizeLinear
 * behind, and QuantizeLinear before, what only moves elements (network/moves.c). Must be called
 * before the DequantizeLinear of constants are folded. Nodes without a match stay. The call's nodes
 * and values then lie in `memory`, and some are new: (*origins)[i] is the node that node i was, or
 * of which it is a copy. */
enum qk_status qk_graph_fuse(const struct qk_kernels *kernels, struct qk_graph_call *call,
                             struct qk_memory memory, const uint32_t **origins,
                             struct qk_error *error);

/* Makes a table of each chain of float functions, such as onnx.HardSigmoid, between a
 * DequantizeLinear and a QuantizeLinear of 8 bits: one node of the operator quantd.Lookup. Both
 * have one scale, and a value between nodes of the chain has no other reader and does not leave the
 * graph. A DequantizeLinear that others read, too, stays for them. Chains stay if a constant's data
 * is NULL. If operands are constants for each index of one axis that is not the last, such as the
 * slopes of onnx.PRelu, the node has a table for each index. The call's nodes, the tables and
 * (*origins) are as after qk_graph_fold; a table has the place of its QuantizeLinear. */
enum qk_status qk_graph_tabulate(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                 struct qk_memory memory, const uint32_t **origins,
                                 struct qk_error *error);

/* Does what a graph from a file needs before it is prepared: folds all but DequantizeLinear, fuses,
 * folds, makes tables. (*origins)[i] is as after qk_graph_fuse. A node with a constant whose data
 * is NULL stays, and keeps its inputs. */
enum qk_status qk_graph_lower(const struct qk_kernels *kernels, struct qk_graph_call *call,
                              struct qk_memory memory, const uint32_t **origins,
                              struct qk_error *error);

/* Returns whether a node of a lowered graph is an operator that quantd has only on quantized
 * values, but computes floats there, so that qk_graph_prepare refuses it. `error` then has the
 * reason, without the node. */
bool qk_node_is_unfused(const struct qk_node *node, struct qk_error *error);

/* A graph, checked and packed. Its nodes are ordered: each comes after the nodes whose outputs it
 * reads. */
struct qk_graph {
    size_t node_count;
    size_t input_count;
    size_t output_count;
    enum qk_type output_types[QK_GRAPH_PORT_COUNT_MAX];
    size_t packed_bytes;    /* how many bytes qk_memory gave for it */
    size_t pack_unit_count; /* of all nodes */
    uint64_t
        pack_unit_cost_ns; /* a rough guess for one unit on one core, the mean over all units */
    bool plans_tables;     /* true if that of any operator is */

    /* Private to kernels/. */
    struct qk_graph_node *nodes;
    struct qk_graph_value *values; /* NULL: the only node has the graph's inputs and outputs */
    size_t value_count;
    size_t planned_count; /* how many of them are planned values */
    uint32_t outputs[QK_GRAPH_PORT_COUNT_MAX];
};

/* Checks the graph and each of its calls, and allocates all instances. Each node's call is borrowed
 * as qk_prepare borrows it (the top of this file, and constants_stay). Everything else is only read
 * here. An error begins with the node that it is about: 'node 3 ("conv1", onnx.QLinearConv): x:
 * ...'. */
enum qk_status qk_graph_prepare(const struct qk_kernels *kernels, const struct qk_graph_call *call,
                                struct qk_memory memory, struct qk_graph **graph,
                                struct qk_error *error);

/* Makes a graph whose only node is this instance. The graph's inputs and outputs are the
 * operator's, in the same order; constant inputs are not read. Packing the graph packs the
 * instance, so do only one of the two. Errors of qk_graph_plan are then those of qk_plan, without
 * the node's name before them. */
enum qk_status qk_graph_of(struct qk_instance *instance, struct qk_memory memory,
                           struct qk_graph **graph, struct qk_error *error);

/* Like qk_pack. */
void qk_graph_pack(struct qk_graph *graph, size_t begin, size_t end);

/* Units of packing, from `begin` to before `end`. */
struct qk_pack_range {
    size_t begin, end;
};

/* Sets ranges[i] to the units that pack node i of the call from which qk_graph_prepare made the
 * graph, for each of its node_count nodes. Once these units are done, the constants of the node are
 * not read any more, unless they stay (qk_call.constants_stay). */
void qk_graph_pack_ranges(const struct qk_graph *graph, struct qk_pack_range *ranges);

/* Where a node reads an input, or writes an output. Private to kernels/. */
enum qk_placement_kind {
    QK_PLACEMENT_NONE,
    QK_PLACEMENT_INPUT,
    QK_PLACEMENT_OUTPUT,
    QK_PLACEMENT_SCRATCH,
    QK_PLACEMENT_PLANNED
};
struct qk_placement {
    enum qk_placement_kind kind;
    uint32_t port; /* index of the graph's input or output, or of the planned value */
    size_t at;     /* in bytes, from where that value or the scratch begins */
};

/* The plan of one node of a graph. */
struct qk_node_plan {
    struct qk_plan plan; /* its unit_count and unit_cost_ns are what a scheduler needs */

    /* Private to kernels/. */
    struct qk_placement *inputs;  /* [op->input_count] */
    struct qk_placement *outputs; /* [op->output_count] */
};

/* How a graph computes inputs of given shapes: node by node. */
struct qk_graph_plan {
    const struct qk_graph *graph;
    const char *kernel; /* the kernels of the first QK_GRAPH_KERNELS_MAX nodes that run, joined by
                           '+' */
    const struct qk_tensor *outputs; /* type, dims and count; data is NULL */
    const size_t *output_bytes;
    size_t output_count;              /* of the graph or, if it has one node, of the node's plan */
    size_t scratch_bytes;             /* for each run: memory for all values between nodes */
    size_t workspace_bytes;           /* for each thread of a run: the most that any node needs */
    const struct qk_node_plan *nodes; /* in the order in which they run */
    size_t node_count;

    /* Private to kernels/. */
    const void *const *planned; /* [graph->planned_count]: the data of planned values */
};
#define QK_GRAPH_KERNELS_MAX 16

/* Plans the graph, like qk_plan. inputs[i] is the graph's input i. Everything but its data is read;
 * an input that no node reads is not read at all. The plan points into `memory`.
 *
 * If output 0 of a node has the bytes of input 0, both lie at one place, and the node has no units.
 * Only between an input and an output of the graph, or two outputs, the node copies. If a node
 * joins or cuts tensors, the parts lie in the whole where possible, and the node has no units. A
 * node that does not run has no units either.
 *
 * Values between nodes share the scratch. A value is alive from the node that makes it to the last
 * node that reads it. Two values may share bytes unless both are alive at some node. The largest
 * value is placed first, and each at the lowest offset that is free; or in another order, if that
 * takes less. */
enum qk_status qk_graph_plan(const struct qk_graph *graph, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_graph_plan *plan,
                             struct qk_error *error);

/* What a node of a graph does in a run. */
enum qk_node_role {
    QK_NODE_RUNS,
    QK_NODE_MOVES_NOTHING, /* its outputs lie where its inputs lie */
    QK_NODE_IN_PLAN,       /* plans compute it, because shapes depend on it */
    QK_NODE_UNUSED         /* no run needs it */
};

/* A node of a graph, for people. Borrowed from the graph and the plan. */
struct qk_node_report {
    uint32_t index;   /* of the node in its file */
    const char *name; /* "" if it has none */
    const struct qk_operator *op;
    const char *kernel; /* NULL without a plan */
    enum qk_node_role role;
    uint64_t multiplications; /* of one run */
};

/* Describes node `node` of the graph, which plan->nodes[node] runs. Without a plan, which is then
 * NULL, less is known. */
void qk_graph_report(const struct qk_graph *graph, const struct qk_graph_plan *plan, size_t node,
                     struct qk_node_report *report);

/* Computes units [begin, end) of one node. The caller runs the nodes in order, each after all units
 * of the node before it are done. The units of a node may run on several threads at once. `inputs`
 * and `outputs` are those of the graph. Apart from that, they and `workspace` are as for qk_run.
 * `scratch` has plan->scratch_bytes bytes, aligned to 64. It belongs to one run, and all nodes of
 * the run get the same. */
void qk_graph_run(const struct qk_graph_plan *plan, size_t node, const void *const *inputs,
                  void *const *outputs, void *scratch, void *workspace, size_t begin, size_t end);

/* ---- Kernels for this CPU ---------------------------------------------------------------- */

/* Returns the name of tier number `index`, or NULL after the last. A tier is a set of instructions
 * that kernels may use. Tiers are sorted from the slowest to the fastest. On x86-64 they are
 * "scalar", "avx2" and "avx512". "avx2" uses Haswell's features and nothing beyond them. "avx512"
 * needs Skylake-X's features and uses everything that the CPU has. On ARM they are "scalar" and
 * "neon", which uses everything that the CPU has. */
const char *qk_tier_name(size_t index);

/* The size of a buffer in which qk_tier_names and qk_gemm_names have room for their lists, and for
 * some names to come. */
#define QK_NAMES_BYTES 128

/* Prints "auto, scalar, avx2 or avx512", for people. Cuts it off after `bytes`. */
void qk_tier_names(char *text, size_t bytes);

/* Returns the name of backend number `index`, or NULL after the last. A backend is the code that
 * multiplies in convolutions. The first is "blas", which multiplies floats by OpenBLAS. The others
 * multiply integers: those of this architecture, from the slowest to the fastest. */
const char *qk_gemm_name(size_t index);

/* Prints the backends: "auto, blas, scalar, avx2, avxvnni, vnni_novbmi, vnni or amx", or on ARM
 * "auto, blas, scalar, neon, dotprod or i8mm". */
void qk_gemm_names(char *text, size_t bytes);

/* Reads the profile of this machine and chooses the fastest kernels, or those that the caller
 * names. Call it once, before any other thread starts: if it loads OpenBLAS, it sets OPENBLAS_* in
 * the environment, which OpenBLAS reads while it loads.
 *
 * `tier` is "auto" or the name of a tier. `gemm` is "auto" or the name of a backend; "auto" chooses
 * the fastest backend that the CPU has and the tier allows. `measure` says whether to measure the
 * machine's speed for a few milliseconds; otherwise it is guessed. `threads` is how many threads
 * may run at once, at least 1.
 *
 * OpenBLAS is loaded if it is named, or if its floats may be faster than this CPU's integers. It
 * stays loaded if it is chosen, and takes 128 MiB of address space for each thread.
 *
 * Fails with QK_UNAVAILABLE if this CPU lacks the tier or backend that is named, or if OpenBLAS is
 * named and missing or lacks address space. qk_kernels_destroy frees the kernels; NULL is fine. */
enum qk_status qk_kernels_create(const char *tier, const char *gemm, bool measure, size_t threads,
                                 struct qk_kernels **kernels, struct qk_error *error);
void qk_kernels_destroy(struct qk_kernels *kernels);

const char *qk_kernels_tier(const struct qk_kernels *kernels); /* one of qk_tier_name's */
const char *qk_kernels_gemm(const struct qk_kernels *kernels); /* one of qk_gemm_name's */
/* Returns the machine that the environment variable QK_CPU makes this one imitate (kernels/cpu.h),
 * or "none". */
const char *qk_kernels_mask(const struct qk_kernels *kernels);
/* Returns the core that OpenBLAS chose, such as "SkylakeX" or "Haswell", or "none" if OpenBLAS is
 * not loaded. */
const char *qk_kernels_blas_core(const struct qk_kernels *kernels);

/* Prints, for people, which machine this is and which kernels were chosen for each kind of work.
 * QK_KERNELS_TEXT_BYTES are always enough. */
void qk_kernels_describe(const struct qk_kernels *kernels, char *text, size_t bytes);
#define QK_KERNELS_TEXT_BYTES 4096
