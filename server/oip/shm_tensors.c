#include "server/oip/shm_tensors.h"

#include <string.h>

#include "server/memory/arena.h"
#include "server/oip/inputs.h"

static const char region_key[] = "shared_memory_region";
static const char bytes_key[] = "shared_memory_byte_size";
static const char offset_key[] = "shared_memory_offset";

enum { OUTPUT_ALIGNMENT = 64 }; /* kernels/qk.h */

/* Fails with the path of a field of a tensor's parameters. */
#define FAIL(decoder, path, key, format, ...)                                                      \
    qd_fail((decoder)->error, QD_INVALID, "%s[%zu]%s%s: " format, (path)->array, (path)->position, \
            (path)->tail, key, __VA_ARGS__)

static struct qd_shm_tensor *output_tensor(const struct qd_oip_asked *asked, size_t output)
{
    return asked->shm_tensors == NULL ? NULL
                                      : &asked->shm_tensors[asked->signature->input_count + output];
}

static size_t shm_tensor_count(const struct qd_oip_asked *asked)
{
    return asked->shm_tensors == NULL
               ? 0
               : asked->signature->input_count + asked->signature->output_count;
}

/* ---- Reading ------------------------------------------------------------------------------ */

static enum qd_status hold_region(const struct qd_oip_decoder *decoder,
                                  const struct qd_json_path *path,
                                  const struct qd_json_value *value, struct qd_shm_tensor *tensor)
{
    const char *name = qd_json_string(value);
    if (decoder->regions == NULL) {
        return FAIL(decoder, path, region_key, "%s",
                    "this server takes no shared memory here (--allow-shared-memory)");
    }
    if (name == NULL)
        return qd_json_expected(path, region_key, "a string", value, decoder->error);
    tensor->region = qd_regions_hold(decoder->regions, name);
    if (tensor->region == NULL) {
        return FAIL(decoder, path, region_key, "expected one that is registered, got %s",
                    qd_show_string(name).text);
    }
    return qd_shm_tensors_refuse_loss(decoder->asked, decoder->error);
}

static enum qd_status read_place(const struct qd_oip_decoder *decoder,
                                 const struct qd_json_path *path,
                                 const struct qd_json_value *parameters,
                                 struct qd_shm_tensor *tensor)
{
    const size_t count = tensor->region->mapping.count;
    uint64_t bytes = 0, offset = 0;
    const struct qd_json_member members[] = {
        {bytes_key, QD_JSON_NEEDED + QD_JSON_TAKES_COUNT, &bytes},
        {offset_key, QD_JSON_TAKES_COUNT, &offset},
    };
    if (qd_json_read_members(parameters, path, members, 2, decoder->error) != QD_OK)
        return decoder->error->status;
    if (offset > count || bytes > count - offset) {
        return FAIL(decoder, path, bytes_key,
                    "expected it and %s within the region's %zu bytes, got %llu and %llu",
                    offset_key, count, (unsigned long long)bytes, (unsigned long long)offset);
    }
    tensor->bytes = tensor->region->mapping.bytes + offset;
    tensor->count = (size_t)bytes;
    return QD_OK;
}

enum qd_status qd_shm_tensor_read(const struct qd_oip_decoder *decoder,
                                  const struct qd_json_value *parameters,
                                  const struct qd_json_path *path, bool is_output, size_t index,
                                  const struct qd_shm_tensor **tensor)
{
    struct qd_oip_asked *asked = decoder->asked;
    const struct qd_signature *signature = asked->signature;
    const struct qd_json_value *region;
    *tensor = NULL;
    enum qd_status status = qd_json_field(parameters, path, region_key, &region, decoder->error);
    if (status != QD_OK || region == NULL)
        return status;
    if (asked->shm_tensors == NULL)
        asked->shm_tensors =
            qd_arena_calloc(decoder->arena, signature->input_count + signature->output_count,
                            sizeof(*asked->shm_tensors));
    if (asked->shm_tensors == NULL)
        return qd_refuse_memory(decoder->arena, "the request", decoder->error);
    struct qd_shm_tensor *made =
        &asked->shm_tensors[index + (is_output ? signature->input_count : 0)];
    made->position = path->position;
    *tensor = made;
    status = hold_region(decoder, path, region, made);
    return status == QD_OK ? read_place(decoder, path, parameters, made) : status;
}

static bool overlap(const struct qd_shm_tensor *a, const struct qd_shm_tensor *b)
{
    const struct qd_mapping *of_a = &a->region->mapping;
    const struct qd_mapping *of_b = &b->region->mapping;
    const uint64_t a_begin = of_a->offset + (uint64_t)(a->bytes - of_a->bytes);
    const uint64_t b_begin = of_b->offset + (uint64_t)(b->bytes - of_b->bytes);
    return a->count > 0 && b->count > 0 && of_a->device == of_b->device &&
           of_a->inode == of_b->inode && a_begin < b_begin + b->count &&
           b_begin < a_begin + a->count;
}

enum qd_status qd_shm_tensors_check(const struct qd_oip_asked *asked, struct qd_error *error)
{
    const size_t input_count = asked->signature->input_count;
    for (size_t i = input_count; i < shm_tensor_count(asked); i++) {
        const struct qd_shm_tensor *output = &asked->shm_tensors[i];
        for (size_t j = 0; output->region != NULL && j < i; j++) {
            const struct qd_shm_tensor *other = &asked->shm_tensors[j];
            if (other->region == NULL || !overlap(output, other))
                continue;
            return qd_fail(error, QD_INVALID,
                           "outputs[%zu].parameters.%s: expected bytes of its own, got some that "
                           "%s[%zu] has as well",
                           output->position, region_key, j < input_count ? "inputs" : "outputs",
                           other->position);
        }
    }
    return QD_OK;
}

/* ---- Using -------------------------------------------------------------------------------- */

size_t qd_shm_tensors_input_bytes(const struct qd_oip_asked *asked)
{
    size_t bytes = 0;
    for (size_t i = 0; asked->shm_tensors != NULL && i < asked->signature->input_count; i++)
        bytes += asked->shm_tensors[i]
                     .count; /* cannot overflow: each is less than half of the address space */
    return bytes;
}

enum qd_status qd_shm_tensors_copy_inputs(const struct qd_oip_asked *asked, uint32_t inputs,
                                          struct qd_arena *arena, struct qd_error *error)
{
    for (size_t i = 0; asked->shm_tensors != NULL && i < asked->signature->input_count; i++) {
        const struct qd_shm_tensor *tensor = &asked->shm_tensors[i];
        const bool is_in_place =
            asked->inputs[i].data == tensor->bytes; /* BOOL is a copy already */
        if (tensor->region == NULL || (inputs >> i & 1) == 0 || !is_in_place)
            continue;
        void *copy = qd_arena_alloc(arena, tensor->count);
        if (copy == NULL)
            return qd_refuse_memory(arena, "an input in shared memory", error);
        asked->inputs[i].data = memcpy(copy, tensor->bytes, tensor->count);
    }
    return qd_shm_tensors_refuse_loss(asked, error);
}

bool qd_shm_tensors_has_output(const struct qd_oip_asked *asked, size_t output)
{
    const struct qd_shm_tensor *tensor = output_tensor(asked, output);
    return tensor != NULL && tensor->region != NULL;
}

enum qd_status qd_shm_tensors_place_output(const struct qd_oip_asked *asked, size_t output,
                                           size_t bytes, void **place, struct qd_error *error)
{
    const struct qd_shm_tensor *tensor = output_tensor(asked, output);
    if (bytes > tensor->count) {
        return qd_fail(
            error, QD_INVALID, "outputs[%zu].parameters.%s (%s): expected at least %zu, got %zu",
            tensor->position, bytes_key,
            qd_show_string(asked->signature->outputs[output].name).text, bytes, tensor->count);
    }
    *place = (uintptr_t)tensor->bytes % OUTPUT_ALIGNMENT == 0 ? tensor->bytes : NULL;
    return QD_OK;
}

void qd_shm_tensors_copy_output(const struct qd_oip_asked *asked, size_t output, const void *from,
                                size_t bytes, size_t begin, size_t end)
{
    const size_t first = begin * QD_SHM_TENSOR_UNIT_BYTES;
    const size_t left = bytes - first;
    const size_t wanted = (end - begin) * QD_SHM_TENSOR_UNIT_BYTES;
    if (!qd_shm_tensors_are_lost(asked))
        memcpy(output_tensor(asked, output)->bytes + first, (const char *)from + first,
               wanted < left ? wanted : left);
}

/* ---- Losing ------------------------------------------------------------------------------- */

static const struct qd_shm_tensor *find_lost(const struct qd_oip_asked *asked)
{
    for (size_t i = 0; i < shm_tensor_count(asked); i++) {
        const struct qd_shm_tensor *tensor = &asked->shm_tensors[i];
        if (tensor->region != NULL && qd_mapping_is_lost(&tensor->region->mapping))
            return tensor;
    }
    return NULL;
}

bool qd_shm_tensors_are_lost(const struct qd_oip_asked *asked)
{
    return find_lost(asked) != NULL;
}

enum qd_status qd_shm_tensors_refuse_loss(const struct qd_oip_asked *asked, struct qd_error *error)
{
    const struct qd_shm_tensor *tensor = find_lost(asked);
    if (tensor == NULL)
        return QD_OK;
    return qd_fail(error, QD_INVALID,
                   "%s[%zu].parameters.%s: expected all of region %s, got less: its object was "
                   "made smaller, or the system has no memory left for it; register it again",
                   tensor < asked->shm_tensors + asked->signature->input_count ? "inputs"
                                                                               : "outputs",
                   tensor->position, region_key, qd_show_string(tensor->region->name).text);
}

void qd_shm_tensors_release(struct qd_oip_asked *asked)
{
    for (size_t i = 0; i < shm_tensor_count(asked); i++)
        if (asked->shm_tensors[i].region != NULL)
            qd_region_release(asked->shm_tensors[i].region);
    asked->shm_tensors = NULL;
}
