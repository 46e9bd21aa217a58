/* Every fixed bound of the server, and why. What a user may want to move is a flag (config.h). */
#ifndef SERVER_BASE_LIMITS_H
#define SERVER_BASE_LIMITS_H

/* JSON without its tensor data. Ours are under 4 KiB; a tree takes up to 28 bytes for each byte of
 * its text, so this bounds it to 7 MiB, which are the request's. */
#define QD_ENVELOPE_BYTES_MAX (256u << 10)

/* The name of a loaded model's input or output. Converters join the names of all layers that they
 * fuse: 345 bytes have been seen. Requests and answers repeat the names, so that all names of a
 * model together get a quarter of QD_ENVELOPE_BYTES_MAX. The rest is for shapes and parameters, and
 * for escapes. */
#define QD_PORT_NAME_BYTES_MAX (4u << 10)
#define QD_PORT_NAMES_BYTES_MAX (64u << 10)

/* Eight elements of a tensor's data with what is around them: no piece of it that has to be
 * converted at once is much larger. */
#define QD_DATA_GAP_BYTES_MAX (1 << 20)

/* OIP nests 4 deep. */
#define QD_ENVELOPE_DEPTH_MAX 32

/* A call that brings no tensors: which models there are, to unload one, what to log. Their longest
 * meaningful body has some hundred bytes. They are read on the loop's thread, where all others wait
 * meanwhile: so many bytes take it under 1 ms at worst. */
#define QD_CONTROL_BODY_BYTES_MAX (16u << 10)

/* The C++ OIP client reads lengths into an int. */
#define QD_ANSWER_BYTES_MAX 0x7fffffffu

/* What an operator may make of a request: so many bytes, and so many for each that came. The most
 * that is no waste is FP32 from 2 bits, 16 times. A convolution's padding could make gigabytes of
 * a few hundred bytes, that then wait for a client to take them. */
#define QD_GROWTH_BYTES_MIN (64u << 20)
#define QD_GROWTH_MAX 16

/* A refused upload without Expect is read and thrown away up to here, so that a client that sends
 * everything before it reads sees the refusal and not a reset. Go's and Node's clients too report
 * the reset when they notice it first. Reading costs no memory, and --min-rate ends it. */
#define QD_DRAIN_BYTES_MAX (1u << 30)

/* The library's memory for a connection: twice as much slows small requests down by a tenth, as it
 * is cleared between two. It has the head of a request, 64 bytes for each field and each cookie,
 * the cookies a second time, what has come behind the request (all that is together 16 KiB, or 2
 * KiB beyond the head), the answer's head, 2 KiB, and where the answer's parts are, 1 KiB. */
#define QD_CONNECTION_BYTES (32u << 10)

/* A request's head, as far as that memory holds it together with all else: each field and each
 * cookie counts so many bytes more than it has, and a cookie's own count three times. */
#define QD_HEAD_BYTES_MAX (24u << 10)
#define QD_HEAD_FIELD_BYTES 128u

/* What is read of a large body at a time, into its place. With four times as much it came no faster
 * over loopback, and others wait meanwhile. */
#define QD_PLACED_BYTES_MAX (64u << 10)

/* Connections beyond --max-connections and --max-connections-per-address that are told so, at a
 * time and for each listener: enough for those that come within a moment, as each stays for two
 * seconds at most, and few beside the others. They cost a descriptor and 33 KiB each. */
#define QD_REFUSED_COUNT_MAX 64

/* So many connections that were refused are read on at a time, for a --receive-timeout at most.
 * They cost a descriptor each; beyond, the oldest is reset. */
#define QD_LINGER_COUNT_MAX 64

/* A chunk costs about as much as 16 bytes of a body, however small it is. So beyond the first of
 * them, for clients that send what they print token by token, they have so many on average. */
#define QD_CHUNKS_FREE (1u << 20)
#define QD_CHUNK_BYTES_LEAST 16u

/* What a request may have of empty lines before it, of chunks' extensions, zeros before their
 * sizes, blanks behind a length, and fields in a trailer, beyond as many bytes as its chunks bring:
 * nobody means anything by them, and they count as nothing else. */
#define QD_WASTE_BYTES_MAX (16u << 10)

/* Versions of loaded models, of all names. In /metrics each takes 1 to 2 KiB, and 12 to 30 KiB once
 * a request has asked for it, by the length of its name. */
#define QD_LOADED_VERSION_COUNT_MAX 1024u

/* Texts of metrics and statistics that are being sent, of 66 KiB of memory each, at a time, beside
 * the memory of requests: enough for the few that watch a server. Any more take that, too. */
#define QD_SCRAPE_SPARE_COUNT 16u

/* Over so long a body or an answer has to keep --min-rate on average: longer than a network's usual
 * pauses, TCP's repeats among them, and short enough for what it holds. Never longer than
 * --receive-timeout. */
#define QD_PACE_WINDOW_NS UINT64_C(10000000000)

/* With --compress-answers: fewer bytes go as they are. They fit in a packet or two anyway, and
 * deflating them takes longer than making them. */
#define QD_DEFLATED_BYTES_MIN (1u << 10)

/* SO_SNDBUF of a connection. Its kernel memory is ours, and else grows to 4 MiB over TCP for a
 * client that reads no more. Linux doubles the number: 256 KiB over TCP; a Unix socket takes 68
 * KiB. Under 64 KiB loopback stalls over TCP, its packets being as large. */
#define QD_TCP_SEND_BYTES (128u << 10)
#define QD_UNIX_SEND_BYTES (32u << 10)

/* The same while it sends a large answer. Each time that the buffer fills, the CPU switches to the
 * client and back, so on two CPUs of a Zen 4 EPYC answers of 4 and 256 MiB came over TCP a quarter
 * faster, to one client, and no faster with twice as much; over a Unix socket half of it made 256
 * MiB slower by a fifteenth. So many at a time, of 1 MiB in the kernel at most: else clients that
 * do not read could take any amount of memory that nobody counts. */
#define QD_WIDE_SEND_BYTES (512u << 10)
#define QD_WIDE_ANSWER_BYTES (1u << 20)
#define QD_WIDE_COUNT_MAX 16

/* Threads that move bytes (--io-threads). At most as many as there are wide sockets,
 * of which each thread has its part. */
#define QD_IO_THREAD_COUNT_MAX 16

/* Lines of the access log that wait to be written, and as many that are being written: some 2,000
 * lines, a tenth of a second at 20,000 requests a second. */
#define QD_LOG_FILE_BYTES_MAX (1u << 20)

#endif
