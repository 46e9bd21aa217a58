#include "kernels/operators/integer/integer_arithmetic.h"

#include <string.h>

#include "kernels/wrap.h"

/* ---- The functions ------------------------------------------------------------------------- */

QK_WRAPS static int64_t sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

QK_WRAPS static int64_t difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

QK_WRAPS static int64_t product(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

static int64_t quotient(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? difference(0, a) : a / b;
}

static int64_t remainder_of(int64_t a, int64_t b)
{
    const int64_t rest = b == 0 || b == -1 ? 0 : a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Defines NAME_64 and NAME_32, functions of elements. Results of 32 bits are those of 64 bits, cut
 * off. */
#define ELEMENTS(name)                                                       \
    static void name##_64(const void *const *operands, void *y, size_t size) \
    {                                                                        \
        int64_t a;                                                           \
        int64_t b;                                                           \
        (void)size;                                                          \
        memcpy(&a, operands[0], sizeof(a));                                  \
        memcpy(&b, operands[1], sizeof(b));                                  \
        a = name(a, b);                                                      \
        memcpy(y, &a, sizeof(a));                                            \
    }                                                                        \
    static void name##_32(const void *const *operands, void *y, size_t size) \
    {                                                                        \
        int32_t a;                                                           \
        int32_t b;                                                           \
        (void)size;                                                          \
        memcpy(&a, operands[0], sizeof(a));                                  \
        memcpy(&b, operands[1], sizeof(b));                                  \
        const uint32_t bits = (uint32_t)name(a, b);                          \
        memcpy(y, &bits, sizeof(bits));                                      \
    }

ELEMENTS(sum)
ELEMENTS(difference)
ELEMENTS(product)
ELEMENTS(quotient)
ELEMENTS(remainder_of)
ELEMENTS(minimum)
ELEMENTS(maximum)

static const struct {
    qk_pointwise_fn wide;
    qk_pointwise_fn narrow;
} functions[] = {
    [QK_INTEGER_ADD] = {sum_64, sum_32},
    [QK_INTEGER_SUB] = {difference_64, difference_32},
    [QK_INTEGER_MUL] = {product_64, product_32},
    [QK_INTEGER_DIV] = {quotient_64, quotient_32},
    [QK_INTEGER_MIN] = {minimum_64, minimum_32},
    [QK_INTEGER_MAX] = {maximum_64, maximum_32},
    [QK_INTEGER_MOD] = {remainder_of_64, remainder_of_32},
};

/* ---- Plans --------------------------------------------------------------------------------- */

/* Refuses a divisor of 0, if the divisors are known. */
static enum qk_status check_divisors(const struct qk_tensor *divisors, const char *name,
                                     struct qk_error *error)
{
    const size_t size = qk_type_info(divisors->type)->bits / 8U;
    static const char zero[sizeof(int64_t)];
    for (size_t i = 0; divisors->data && i < divisors->count; i++)
        if (memcmp((const char *)divisors->data + i * size, zero, size) == 0)
            return qk_fail(error, QK_INVALID, "%s: expected divisors other than 0, got 0 at %zu",
                           name, i);
    return QK_OK;
}

enum qk_status qk_integer_plan(const struct qk_instance *instance,
                               enum qk_integer_operation operation, const struct qk_tensor *inputs,
                               struct qk_memory memory, struct qk_plan *plan,
                               struct qk_error *error)
{
    const enum qk_type type = inputs[0].type;
    enum qk_status status = QK_OK;
    if (operation == QK_INTEGER_DIV || operation == QK_INTEGER_MOD)
        status = check_divisors(&inputs[1], instance->op->inputs[1].name, error);
    if (status != QK_OK)
        return status;
    return qk_pointwise_plan(
        instance, type == QK_INT64 ? functions[operation].wide : functions[operation].narrow,
        inputs, 2, type, memory, plan, error);
}
