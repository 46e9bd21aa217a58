/* Every fixed bound of the server, and its reason. Bounds that a user may want to change are flags
 * (config.h). */
#pragma once

/* The size of a request's JSON without its tensor data. Typical requests have under 4 KiB. A tree
 * takes up to 28 bytes for each byte of its text, so this bounds the tree to 7 MiB, which count as
 * the request's memory. */
#define QD_ENVELOPE_BYTES_MAX (256u << 10)

/* The length of the name of a loaded model's input or output, and of all names of a model together.
 * Converters join the names of all layers that they fuse: names of 345 bytes have been seen.
 * Requests and answers repeat the names, so all names of a model get a quarter of
 * QD_ENVELOPE_BYTES_MAX. The rest is for shapes, parameters and escapes. */
#define QD_PORT_NAME_BYTES_MAX (4u << 10)
#define QD_PORT_NAMES_BYTES_MAX (64u << 10)

/* The text of eight elements of a tensor, with all spaces, commas and brackets between them. The
 * numbers are converted in pieces, and a piece can begin only after a multiple of eight elements
 * (QD_JSON_MARK_ELEMENTS). So this also bounds a piece. */
#define QD_DATA_GAP_BYTES_MAX (1 << 20)

/* How deep JSON may nest. OIP needs a depth of 4. */
#define QD_ENVELOPE_DEPTH_MAX 32

/* The body of a call without tensors, such as the index of models, an unload, or log settings. The
 * longest sensible body has a few hundred bytes. These bodies are parsed on the loop's thread,
 * while all other connections wait: parsing this many bytes takes under 1 ms at worst. */
#define QD_CONTROL_BODY_BYTES_MAX (16u << 10)

/* The size of an answer. The C++ OIP client reads lengths into an int. */
#define QD_ANSWER_BYTES_MAX 0x7fffffffu

/* The size of a built-in model's outputs: QD_GROWTH_BYTES_MIN, plus QD_GROWTH_MAX bytes for each
 * byte of the request. The largest useful growth is from 2 bits to FP32, 16 times. Without a bound,
 * the padding of a convolution could turn a few hundred bytes into gigabytes that wait for the
 * client to read them. */
#define QD_GROWTH_BYTES_MIN (64u << 20)
#define QD_GROWTH_MAX 16

/* How many bytes of a refused upload without Expect are read and discarded.
 * Without this, the kernel would reset the connection, and a client that sends its whole body
 * before it reads would see the reset and not the refusal. Clients of Go and Node also report the
 * reset if they notice it before the refusal. Discarding costs no memory, and --min-rate ends it.
 */
#define QD_DISCARD_BYTES_MAX (1u << 30)

/* libmicrohttpd's memory for a connection. Twice as much slows small requests down by a tenth,
 * because the library clears it between two requests. It holds the head of a request, 64 bytes for
 * each field and each cookie, the cookies a second time, and the bytes that have arrived after the
 * request: together 16 KiB, or 2 KiB more than the head. The head of the answer takes 2 KiB, and
 * the list of its parts 1 KiB. */
#define QD_CONNECTION_BYTES (32u << 10)

/* The size of a request's head, so that QD_CONNECTION_BYTES hold it together with everything else.
 * Each field and each cookie counts as QD_HEAD_FIELD_BYTES more than its length. A cookie's own
 * bytes count three times. */
#define QD_HEAD_BYTES_MAX (24u << 10)
#define QD_HEAD_FIELD_BYTES 128u

/* How many bytes of a large body one read takes, straight into the request's memory
 * (mhd/README.md). Four times as much was no faster over loopback, and other connections wait
 * meanwhile. */
#define QD_PLACED_BYTES_MAX (64u << 10)

/* How many connections beyond --max-connections and --max-connections-per-address may exist at a
 * time, for each listener, to get an answer that says why they are refused. Each stays for two
 * seconds at most and costs a descriptor and 33 KiB. The number is enough for a burst, and small
 * beside the connections that are admitted. */
#define QD_REFUSED_COUNT_MAX 64

/* How many connections of a loop linger at a time (QD_CONNECTION_LINGERING). Each costs a
 * descriptor. When there are more, the one with the earliest deadline is reset. */
#define QD_LINGERING_COUNT_MAX 64

/* The number of small chunks in a request body. A chunk costs about as much time as 16 bytes of a
 * body. The first QD_CHUNKS_FREE chunks may have any size, for clients that print JSON piece by
 * piece and send each number or bracket as a chunk. Beyond them, chunks must have
 * QD_CHUNK_BYTES_LEAST bytes on average. */
#define QD_CHUNKS_FREE (1u << 20)
#define QD_CHUNK_BYTES_LEAST 16u

/* The number of useless bytes in a request: empty lines before it, chunk extensions, zeros before
 * chunk sizes, blanks after a length, and trailer fields. When a chunk begins, the count falls by
 * the number of the chunk's bytes, at most to 0, so a long body may have more of them in all. No
 * other bound counts useless bytes. */
#define QD_WASTE_BYTES_MAX (16u << 10)

/* The number of versions of loaded models, of all names together. In the text of /metrics each
 * takes 1 to 2 KiB, and 12 to 30 KiB once a request has used it. The longer its name is, the more
 * it takes. */
#define QD_LOADED_VERSION_COUNT_MAX 1024u

/* How many answers with metrics and statistics may be sent at a time without using the memory of
 * requests: enough for the few monitors that watch a server. Each takes 66 KiB. Further ones use
 * the memory of requests. */
#define QD_SCRAPE_RESERVED_COUNT 16u

/* The time over which a body or an answer must average --min-rate. It is longer than the usual
 * pauses of a network, including TCP's retransmissions, and short enough because a slow client
 * holds memory. It is never longer than --receive-timeout. */
#define QD_PACE_WINDOW_NS UINT64_C(10000000000)

/* With --compress-answers, smaller answers are sent uncompressed. They fit into one or two packets
 * anyway, and compressing them takes longer than making them. */
#define QD_DEFLATED_BYTES_MIN (1u << 10)

/* SO_SNDBUF of a connection. It bounds the kernel memory that a connection uses, which would
 * otherwise grow to 4 MiB over TCP for a client that does not read. Linux doubles the number, to
 * 256 KiB over TCP; a Unix socket takes 68 KiB. Below 64 KiB, TCP over loopback stalls, because its
 * packets are that large. */
#define QD_TCP_SEND_BYTES (128u << 10)
#define QD_UNIX_SEND_BYTES (32u << 10)

/* SO_SNDBUF while a connection sends an answer of QD_WIDE_ANSWER_BYTES and more. Each time the
 * buffer fills, the CPU switches to the client and back. On two CPUs of a Zen 4 EPYC, answers of 4
 * and 256 MiB to one client over TCP were a quarter faster with this size, and no faster with twice
 * as much. Over a Unix socket, half of this size made 256 MiB slower by a fifteenth. Only
 * QD_WIDE_COUNT_MAX connections may have such a buffer at a time, of at most 1 MiB in the kernel
 * each: otherwise clients that do not read could use any amount of memory that no limit counts. */
#define QD_WIDE_SEND_BYTES (512u << 10)
#define QD_WIDE_ANSWER_BYTES (1u << 20)
#define QD_WIDE_COUNT_MAX 16

/* The number of workers (--threads). Workers beyond the number of CPUs compute nothing more, and
 * cpu_set_t, by which one worker wakes another on another CPU (pool.c), holds 1024 CPUs. */
#define QD_THREAD_COUNT_MAX 1024

/* The number of threads that move bytes (--io-threads). It is not more than the number of wide send
 * buffers, because each thread gets its part of these. */
#define QD_IO_THREAD_COUNT_MAX 16

/* How many bytes of log lines may wait to be written, and as many again may be being written. That
 * is some 2,000 lines, a tenth of a second at 20,000 requests a second. */
#define QD_LOG_FILE_BYTES_MAX (1u << 20)
