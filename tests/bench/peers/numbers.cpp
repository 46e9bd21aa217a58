// Readers and printers of numbers beside which the benchmark measures the server's own. Each takes
// part where its header is found.
#include "tests/bench/peers/numbers.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if __has_include(<yyjson.h>)
#include <yyjson.h>
#define HAS_YYJSON
#endif
#if __has_include(<simdjson.h>)
#include <simdjson.h>
#define HAS_SIMDJSON
#endif
#if __has_include(<fmt/compile.h>)
#define FMT_HEADER_ONLY
#include <fmt/compile.h>
#define HAS_FMT
#endif
#if __has_include(<dragonbox/dragonbox_to_chars.h>)
#include <dragonbox/dragonbox_to_chars.h>
#define HAS_DRAGONBOX
#endif
#if __has_include(<double-conversion/double-conversion.h>)
#include <double-conversion/double-conversion.h>
#define HAS_DOUBLE_CONVERSION
#endif
#if __has_include(<zmij.h>)
#include <zmij.h>
#define HAS_ZMIJ
#endif
#if __has_include(<ftoa.h>)
#include <ftoa.h>
#define HAS_XJB
#endif

namespace
{

constexpr size_t text_bytes_max = 32;

// ---- Reading -----------------------------------------------------------------------------------

// The next number goes to the array, whatever its type.
struct sink {
    char kind;
    void *out;
    size_t index;

    bool wants_float() const { return kind == 'f'; }
    void put(double value) { static_cast<float *>(out)[index++] = static_cast<float>(value); }
    void put(int64_t value)
    {
        if (kind == 'i')
            static_cast<int32_t *>(out)[index++] = static_cast<int32_t>(value);
        else
            static_cast<uint8_t *>(out)[index++] = static_cast<uint8_t>(value);
    }
};

#ifdef HAS_YYJSON
// Its memory is taken once, and kept.
bool read_yyjson(const char *text, size_t bytes, sink to, size_t count)
{
    static void *memory;
    static size_t memory_bytes;
    const size_t wanted = yyjson_read_max_memory_usage(bytes, 0);
    if (memory_bytes < wanted) {
        std::free(memory);
        memory_bytes = wanted;
        memory = std::malloc(wanted);
        std::memset(memory, 1, wanted);
    }
    yyjson_alc allocator;
    yyjson_alc_pool_init(&allocator, memory, memory_bytes);
    yyjson_doc *doc = yyjson_read_opts(const_cast<char *>(text), bytes, 0, &allocator, nullptr);
    if (doc == nullptr)
        return false;
    yyjson_val *inputs = yyjson_obj_get(yyjson_doc_get_root(doc), "inputs");
    yyjson_val *data = yyjson_obj_get(yyjson_arr_get_first(inputs), "data");
    if (yyjson_arr_size(data) != count)
        return false;
    size_t index, max;
    yyjson_val *value;
    if (to.wants_float()) {
        yyjson_arr_foreach(data, index, max, value) to.put(yyjson_get_num(value));
    } else {
        yyjson_arr_foreach(data, index, max, value) to.put(yyjson_get_sint(value));
    }
    return to.index == count;
}
#endif

#ifdef HAS_SIMDJSON
// What the parser has taken, it keeps. Its padding is there: BENCH_PEER_PADDING_BYTES.
template <typename Number> bool read_simdjson(const char *text, size_t bytes, sink to, size_t count)
{
    static simdjson::ondemand::parser parser;
    auto doc = parser.iterate(
        simdjson::padded_string_view(text, bytes, bytes + simdjson::SIMDJSON_PADDING));
    for (auto input : doc["inputs"].get_array()) {
        for (auto value : input["data"].get_array()) {
            Number number;
            if (to.index == count || value.get(number) != simdjson::SUCCESS)
                return false;
            to.put(number);
        }
    }
    return to.index == count;
}
#endif

// ---- Printing ----------------------------------------------------------------------------------

template <typename Print>
size_t print_all(const float *values, size_t count, char *out, Print print)
{
    char *at = out;
    for (size_t i = 0; i < count; i++) {
        at = print(values[i], at);
        *at++ = ',';
    }
    return static_cast<size_t>(at - out);
}

char *print_to_chars(float value, char *at)
{
    return std::to_chars(at, at + text_bytes_max, value).ptr;
}

char *print_scientific(float value, char *at)
{
    return std::to_chars(at, at + text_bytes_max, value, std::chars_format::scientific).ptr;
}

#ifdef HAS_FMT
char *print_fmt(float value, char *at)
{
    static constexpr auto form = FMT_COMPILE("{}");
    return fmt::format_to(at, form, value);
}
#endif

#ifdef HAS_DRAGONBOX
char *print_dragonbox(float value, char *at)
{
    return jkj::dragonbox::to_chars_n(value, at);
}
#endif

#ifdef HAS_ZMIJ
char *print_zmij(float value, char *at)
{
    return zmij::write(at, text_bytes_max, value);
}
#endif

#ifdef HAS_XJB
char *print_xjb(float value, char *at)
{
    return xjb_ftoa(value, at);
}
#endif

#ifdef HAS_DOUBLE_CONVERSION
char *print_double_conversion(float value, char *at)
{
    using namespace double_conversion;
    StringBuilder builder(at, text_bytes_max);
    DoubleToStringConverter::EcmaScriptConverter().ToShortestSingle(value, &builder);
    at += builder.position();
    builder.Finalize();
    return at;
}
#endif

} // namespace

bool bench_peer_read(const char *name, const char *text, size_t bytes, char kind, void *out,
                     size_t count)
{
    [[maybe_unused]] const sink to = {kind, out, 0};
#ifdef HAS_YYJSON
    if (std::strcmp(name, "yyjson") == 0)
        return read_yyjson(text, bytes, to, count);
#endif
#ifdef HAS_SIMDJSON
    if (std::strcmp(name, "simdjson") == 0 && kind == 'f')
        return read_simdjson<double>(text, bytes, to, count);
    if (std::strcmp(name, "simdjson") == 0)
        return read_simdjson<int64_t>(text, bytes, to, count);
#endif
    return false;
}

size_t bench_peer_print(const char *name, const float *values, size_t count, char *out)
{
    if (std::strcmp(name, "to_chars") == 0)
        return print_all(values, count, out, print_to_chars);
    if (std::strcmp(name, "scientific") == 0)
        return print_all(values, count, out, print_scientific);
#ifdef HAS_FMT
    if (std::strcmp(name, "fmt") == 0)
        return print_all(values, count, out, print_fmt);
#endif
#ifdef HAS_DRAGONBOX
    if (std::strcmp(name, "dragonbox") == 0)
        return print_all(values, count, out, print_dragonbox);
#endif
#ifdef HAS_DOUBLE_CONVERSION
    if (std::strcmp(name, "double-conversion") == 0)
        return print_all(values, count, out, print_double_conversion);
#endif
#ifdef HAS_ZMIJ
    if (std::strcmp(name, "zmij") == 0)
        return print_all(values, count, out, print_zmij);
#endif
#ifdef HAS_XJB
    if (std::strcmp(name, "xjb") == 0)
        return print_all(values, count, out, print_xjb);
#endif
    return 0;
}
