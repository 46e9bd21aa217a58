/* Prints the profile of the machine and the choice that was made for it, for people. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/argmax/argmax.h"
#include "kernels/cast/cast.h"
#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/dispatch.h"

/* The text so far. What does not fit is left out. */
struct text {
    char *at;
    size_t left;
};

static void print(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void print(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int printed = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    if (printed < 0)
        return;
    const size_t count = (size_t)printed < text->left ? (size_t)printed : text->left - 1;
    text->at += count;
    text->left -= count;
}

static void print_features(struct text *text, uint32_t cpu_flags)
{
    char names[QK_CPU_FLAGS_BYTES];
    qk_cpu_print_flags(cpu_flags, names, sizeof(names));
    print(text, "  %-18s%s\n", "features", names[0] ? names : "none that kernels use");
}

/* Returns the name of the backend that multiplies with this product on this CPU: the last one that
 * the CPU can run, since "vnni_novbmi" and "vnni" have the same product. */
static const char *product_name(enum qk_product product, uint32_t cpu_flags)
{
    size_t count;
    const struct qk_conv_backend *backends = qk_conv_backends(&count);
    if (product == QK_PRODUCT_AVX2_WORDS)
        return "avx2 words";
    for (size_t left = count; left > 0; left--) {
        const struct qk_conv_backend *backend = &backends[left - 1];
        if (backend->product == product && !(backend->cpu_flags & ~cpu_flags))
            return backend->name;
    }
    return "sgemm";
}

static void print_products(struct text *text, const struct qk_profile *profile)
{
    if (!profile->measured) {
        print(text, "  %-18s%s\n", "products", "not measured");
        return;
    }
    print(text, "  %-18s", "products");
    const char *between = "";
    for (enum qk_product p = 0; p < QK_PRODUCT_COUNT; p++)
        if (profile->product_ops_per_ns[p] > 0) {
            print(text, profile->product_ops_per_ns[p] < 10 ? "%s%s %.1f" : "%s%s %.0f", between,
                  product_name(p, profile->cpu_flags), profile->product_ops_per_ns[p]);
            between = ", ";
        }
    print(text, " Gop/s of one thread\n");
}

static void print_profile(struct text *text, const struct qk_profile *profile)
{
    const char *how = profile->measured ? "measured" : "assumed";
    print(text, "This machine\n");
    print(text, "  %-18s%s, family %u, model %u\n", "CPU",
          profile->name[0] ? profile->name : "unknown", profile->family, profile->model);
    if (profile->mask)
        print(text, "  %-18s%s, by " QK_CPU_VARIABLE "\n", "mask", profile->mask->name);
    print_features(text, profile->cpu_flags);
    print(text, "  %-18s%zu KiB, %zu KiB, %zu KiB\n", "caches", profile->l1_bytes / 1024,
          profile->l2_bytes / 1024, profile->l3_bytes / 1024);
    print(text, "  %-18s%.1f GHz, %s\n", "clock", profile->cycles_per_ns, how);
    print(text, "  %-18s%.1f GB/s of one thread, %s\n", "copy", profile->copy_bytes_per_ns, how);
    print_products(text, profile);
}

static void print_blas(struct text *text, const struct qk_kernels *kernels)
{
    if (kernels->openblas.library)
        print(text, "  %-18score %s\n", "OpenBLAS", kernels->openblas.core);
    else
        print(text, "  %-18snot loaded\n", "OpenBLAS");
}

static const char *kernel_of(const struct qk_conv_backend *backend)
{
    return backend ? backend->kernel : "conv_sgemm";
}

static void print_convolution(struct text *text, const struct qk_kernels *kernels)
{
    const struct qk_conv_tuning *conv = &kernels->choice.conv;
    print(text, "  %-18s%s\n", "convolutions", kernel_of(conv->main));
    print(text, "  %-18s%s\n", "few channels", kernel_of(conv->small_tile));
    print(text, "  %-18s%s\n", "depthwise",
          conv->depthwise ? conv->depthwise->depthwise->kernel : "conv_sgemm");
    print_blas(text, kernels);
    print(text, "  %-18sof at most %.0f us\n", "units", (double)conv->unit_ns / 1000);
    print(text, "  %-18sslabs %zu KiB, sums %zu KiB, one position's input %zu KiB, sgemm %zu KiB\n",
          "blocks", conv->quads_bytes / 1024, conv->sums_bytes / 1024, conv->dot_bytes / 1024,
          conv->sgemm_floats * sizeof(float) / 1024);
}

/* The kernels of operators that mostly networks have. */
static void print_others(struct text *text, const struct qk_kernels *kernels)
{
    print(text, "  %-18s%s\n", "matrix products", kernels->choice.matmul->matmul_kernel);
    print(text, "  %-18s%s, %s\n", "sums, products", kernels->binary->add_name,
          kernels->binary->multiply_name);
    print(text, "  %-18s%s\n", "tables", kernels->lookup->name);
    print(text, "  %-18s%s\n", "pooling", kernels->pool.name);
    print(text, "  %-18s%s, %s, %s\n", "others", kernels->floats->name, kernels->cast->name,
          kernels->argmax->name);
}

void qk_kernels_describe(const struct qk_kernels *kernels, char *text, size_t bytes)
{
    struct text to = {text, bytes};
    print_profile(&to, &kernels->profile);
    print(&to, "What was chosen\n");
    print(&to, "  %-18s%s\n", "tier", kernels->choice.tier);
    print(&to, "  %-18s%s, past the caches from %zu MiB on\n", "dequantizing",
          kernels->dequantize.name, kernels->choice.elementwise.stream_bytes >> 20);
    print(&to, "  %-18s%s\n", "quantizing", kernels->quantize.name);
    print_convolution(&to, kernels);
    print_others(&to, kernels);
}
