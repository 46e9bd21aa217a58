#include "server/work/stream.h"

#include <assert.h>
#include <string.h>

bool qd_stream_fill(struct qd_stream *stream)
{
    if (stream->begin < stream->end)
        return true;
    stream->begin = stream->end = 0;
    while (!stream->ended) {
        struct qd_text text;
        qd_text_init_in(&text, stream->room + stream->end, QD_STREAM_BYTES - stream->end);
        const bool more = stream->print(stream, &text);
        if (text.failed)
            break;
        stream->end += text.bytes;
        stream->ended = !more;
    }
    assert(stream->ended || stream->end > 0); /* otherwise a unit is larger than the buffer */
    return stream->begin < stream->end;
}

size_t qd_stream_read(struct qd_stream *stream, char *bytes, size_t count)
{
    size_t read = 0;
    while (read < count && qd_stream_fill(stream)) {
        const size_t there = stream->end - stream->begin;
        const size_t some = there < count - read ? there : count - read;
        memcpy(bytes + read, stream->room + stream->begin, some);
        stream->begin += some;
        read += some;
    }
    return read;
}
