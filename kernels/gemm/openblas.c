#include "kernels/gemm/openblas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "kernels/cpu.h"

#define LIBRARY "libopenblas.so.0"

/* For cores that need more than qk_cpu_flags can tell (BF16, AMX, FMA4, 3DNow!) and therefore never
 * fit. The cores of AArch64 that are not listed need SVE and never fit, either. */
#define MORE UINT32_MAX

struct core {
    const char *name;
    uint32_t cpu_flags; /* the features that it needs */
};

/* The cores of OpenBLAS for x86-64, and some for AArch64 (corename in its driver/others/dynamic.c
 * and dynamic_arm64.c). */
static const struct core cores[] = {
    {"SapphireRapids", MORE},    {"Cooperlake", MORE},
    {"SkylakeX", QK_CPU_AVX512}, {"Zen", QK_CPU_AVX2},
    {"Haswell", QK_CPU_AVX2},    {"Sandybridge", QK_CPU_AVX},
    {"Nehalem", QK_CPU_SSE42},   {"Dunnington", QK_CPU_SSE42},
    {"Penryn", QK_CPU_SSE42},    {"Core2", QK_CPU_SSE42},
    {"Atom", QK_CPU_SSE42},      {"Nano", QK_CPU_SSE42},
    {"Prescott", QK_CPU_SSE42},  {"Bobcat", MORE},
    {"Excavator", MORE},         {"Steamroller", MORE},
    {"Piledriver", MORE},        {"Bulldozer", MORE},
    {"Barcelona", MORE},         {"Opteron_SSE3", MORE},
    {"Opteron", MORE},           {"Athlon", MORE},
    {"armv8", QK_CPU_NEON},      {"cortexa53", QK_CPU_NEON},
    {"cortexa57", QK_CPU_NEON},  {"cortexa72", QK_CPU_NEON},
    {"cortexa73", QK_CPU_NEON},  {"neoversen1", QK_CPU_FP16},
};

/* Finds a core by its name. Ignores case, as OpenBLAS does. Returns NULL if the table lacks the
 * name. */
static const struct core *find_core(const char *name)
{
    for (size_t i = 0; i < sizeof(cores) / sizeof(cores[0]); i++)
        if (strcasecmp(cores[i].name, name) == 0)
            return &cores[i];
    return NULL;
}

const char *qk_openblas_core(uint32_t cpu_flags, const char *wanted)
{
    const struct core *known = wanted ? find_core(wanted) : NULL;
    if (known && !(known->cpu_flags & ~cpu_flags))
        return wanted;
    if (cpu_flags & QK_CPU_AVX512)
        return "SkylakeX";
    if (cpu_flags & QK_CPU_AVX2)
        return cpu_flags & QK_CPU_AMD ? "Zen" : "Haswell";
    if (cpu_flags & QK_CPU_AVX)
        return "Sandybridge";
    if (cpu_flags & QK_CPU_SSE42)
        return "Nehalem";
    /* On AArch64, OpenBLAS chooses by itself unless the wanted core fits. On other machines, a name
     * that the table lacks may still be a core. */
    return known || cpu_flags & QK_CPU_NEON ? NULL : wanted;
}

/* Looks up `name` and stores its address in `function`, which is a pointer to a pointer to a
 * function. ISO C has no cast for this, but POSIX says that the bytes are the same. Fails with
 * QK_UNAVAILABLE if the library lacks the name. */
static enum qk_status find_symbol(void *library, const char *name, void *function,
                                  struct qk_error *error)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        return qk_fail(error, QK_UNAVAILABLE, "%s has no %s: install libopenblas0", LIBRARY, name);
    memcpy(function, &symbol, sizeof(symbol));
    return QK_OK;
}

/* ---- Buffers ----------------------------------------------------------------------------- */

#define BUFFER_MIB 128
#define BUFFER_BYTES ((size_t)BUFFER_MIB << 20)

/* Address space for the library and its dependencies: 38 MiB in Debian 12, 41 MiB in Debian 13. */
#define LIBRARY_BYTES ((size_t)64 << 20)

/* Returns true if `count` more buffers can be mapped. Maps them, as OpenBLAS does, and unmaps them
 * again. `buffers` has room for `count` pointers. */
static bool has_room(void **buffers, size_t count)
{
    size_t mapped = 0;
    while (mapped < count) {
        void *buffer =
            mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (buffer == MAP_FAILED)
            break;
        buffers[mapped++] = buffer;
    }
    for (size_t i = 0; i < mapped; i++)
        munmap(buffers[i], BUFFER_BYTES);
    return mapped == count;
}

static enum qk_status no_room(size_t count, struct qk_error *error)
{
    return qk_fail(error, QK_UNAVAILABLE,
                   "OpenBLAS: expected %d MiB of address space for each of %zu threads, which "
                   "the limit on it (ulimit -v) or memory does not allow",
                   BUFFER_MIB, count);
}

/* Checks for room before OpenBLAS is loaded: version 0.3.29 maps a buffer while it loads, and
 * retries forever if there is no room for one. */
static enum qk_status check_room_to_load(void **buffers, size_t count, struct qk_error *error)
{
    void *library = mmap(NULL, LIBRARY_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (library == MAP_FAILED)
        return no_room(count, error);
    const bool fits = has_room(buffers, count);
    munmap(library, LIBRARY_BYTES);
    return fits ? QK_OK : no_room(count, error);
}

/* Fails if OpenBLAS has fewer buffers than `count`. It has two for each thread that it was built
 * for, and at least 50 (NUM_BUFFERS in its driver/others/memory.c). Beyond them it complains
 * itself: to stderr, and beyond 512 more to stdout. Its text of the configuration names the
 * threads, but not if it was built for one. */
static enum qk_status check_buffer_count(const struct qk_openblas *openblas, size_t count,
                                         struct qk_error *error)
{
    __typeof__(openblas_get_config) *get_config = NULL;
    const enum qk_status status =
        find_symbol(openblas->library, "openblas_get_config", &get_config, error);
    if (status != QK_OK)
        return status;
    static const char word[] = "MAX_THREADS=";
    const char *threads = strstr(get_config(), word);
    const size_t doubled = threads ? 2 * strtoul(threads + sizeof(word) - 1, NULL, 10) : 0;
    const size_t buffer_count = doubled > 50 ? doubled : 50;
    if (count > buffer_count)
        return qk_fail(error, QK_UNAVAILABLE,
                       "gemm: blas: expected at most %zu threads (--threads), one for each buffer "
                       "of OpenBLAS, got %zu",
                       buffer_count, count);
    return QK_OK;
}

/* Takes a buffer from OpenBLAS for each thread, and gives all of them back. OpenBLAS keeps them
 * mapped. */
static enum qk_status map_buffers(const struct qk_openblas *openblas, void **buffers, size_t count,
                                  struct qk_error *error)
{
    void *(*take)(int procpos) = NULL;
    void (*give_back)(void *buffer) = NULL;
    enum qk_status status = find_symbol(openblas->library, "blas_memory_alloc", &take, error);
    if (status == QK_OK)
        status = find_symbol(openblas->library, "blas_memory_free", &give_back, error);
    if (status != QK_OK)
        return status;
    if (!has_room(buffers, count))
        return no_room(count, error);
    size_t taken = 0;
    while (taken < count && (buffers[taken] = take(0)))
        taken++;
    for (size_t i = 0; i < taken; i++)
        give_back(buffers[i]);
    if (taken < count)
        return qk_fail(error, QK_UNAVAILABLE, "OpenBLAS: expected at most %zu threads, got %zu",
                       taken, count);
    return QK_OK;
}

/* ---- Load -------------------------------------------------------------------------------- */

static enum qk_status load(struct qk_openblas *openblas, struct qk_error *error)
{
    openblas->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!openblas->library)
        return qk_fail(error, QK_UNAVAILABLE, "OpenBLAS: %s: install libopenblas0", dlerror());
    __typeof__(openblas_get_corename) *get_corename = NULL;
    __typeof__(openblas_set_num_threads) *set_num_threads = NULL;
    enum qk_status status = find_symbol(openblas->library, "cblas_sgemm", &openblas->sgemm, error);
    if (status == QK_OK)
        status = find_symbol(openblas->library, "openblas_get_corename", &get_corename, error);
    if (status == QK_OK)
        status =
            find_symbol(openblas->library, "openblas_set_num_threads", &set_num_threads, error);
    if (status != QK_OK)
        return status;
    set_num_threads(1);
    snprintf(openblas->core, sizeof(openblas->core), "%s", get_corename());
    return QK_OK;
}

enum qk_status qk_openblas_init(struct qk_openblas *openblas, uint32_t cpu_flags, size_t threads,
                                struct qk_error *error)
{
    *openblas = (struct qk_openblas){0};
    const char *wanted = getenv("OPENBLAS_CORETYPE");
    const char *core = qk_openblas_core(cpu_flags, wanted);
    if (wanted && !core)
        unsetenv("OPENBLAS_CORETYPE");
    if ((core != wanted && core && setenv("OPENBLAS_CORETYPE", core, 1)) ||
        setenv("OPENBLAS_NUM_THREADS", "1", 1))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for the environment of OpenBLAS");

    void **buffers = calloc(threads, sizeof(*buffers));
    enum qk_status status = buffers ? check_room_to_load(buffers, threads, error)
                                    : qk_fail(error, QK_NO_MEMORY, "out of memory for OpenBLAS");
    if (status == QK_OK)
        status = load(openblas, error);
    if (status == QK_OK)
        status = check_buffer_count(openblas, threads, error);
    if (status == QK_OK)
        status = map_buffers(openblas, buffers, threads, error);
    free(buffers);
    if (status != QK_OK)
        qk_openblas_deinit(openblas);
    return status;
}

void qk_openblas_deinit(struct qk_openblas *openblas)
{
    if (openblas->library)
        dlclose(openblas->library);
    *openblas = (struct qk_openblas){0};
}

void qk_openblas_sgemm(const struct qk_openblas *openblas, const struct qk_sgemm_args *args)
{
    __typeof__(cblas_sgemm) *sgemm;
    memcpy(&sgemm, &openblas->sgemm, sizeof(sgemm));
    sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, args->m, args->n, args->k, 1.0F, args->a,
          args->lda, args->b, args->ldb, 0.0F, args->c, args->ldc);
}
