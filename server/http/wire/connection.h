/* Who is connected, what the client or we have to do next, and until when.
 *
 * The HTTP library only knows how long a peer has been silent: one that sends a byte a second would
 * stay for ever. We therefore enforce all timeouts ourselves. A head has to be there in
 * --receive-timeout. A body or an answer has to move on: whatever its size, in each window
 * (QD_PACE_WINDOW_NS) at --min-rate.
 *
 * Nothing is asked of the system for those who do nothing. Connections of one state wait for one
 * time, so a list in the order in which they came to it has those that are late in front. Who has
 * hung up is told by an epoll of our own, on which a connection is put once, and only if it lives
 * longer than most: the library looks away while a request is computed, and 0.9.75 misses an end
 * that comes together with the last bytes. */
#ifndef SERVER_HTTP_WIRE_CONNECTION_H
#define SERVER_HTTP_WIRE_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/config/config.h"
#include "server/http/wire/framing.h"
#include "server/http/wire/quota.h"
#include "server/work/request.h"

enum qd_connection_state {
    QD_CONNECTION_NEW,        /* accepted, and no first line yet: --receive-timeout */
    QD_CONNECTION_IDLE,       /* between two requests: --idle-timeout */
    QD_CONNECTION_HEAD,       /* a first line is there: --receive-timeout */
    QD_CONNECTION_BODY,       /* the head is there: --min-rate */
    QD_CONNECTION_PROCESSING, /* all is there, the library is suspended: no bound for the client */
    QD_CONNECTION_ANSWER,     /* the client takes the answer: --min-rate */
    QD_CONNECTION_CLOSING,    /* over: what is left is to be closed by the library */
    QD_CONNECTION_STATE_COUNT
};

/* What is known of the client's side. */
enum qd_peer {
    QD_PEER_SENDS, /* or may */
    QD_PEER_ENDED, /* it sends nothing more: it has left, or waits for its answer */
    QD_PEER_ASKED, /* and was asked which of the two, for the request at hand */
    QD_PEER_GONE,  /* it has left */
};

/* An answer behind which the connection is closed, although the client may still send. */
enum qd_last_answer {
    QD_LAST_NONE,
    QD_LAST_REFUSAL,    /* the library sends it */
    QD_LAST_UNREADABLE, /* the same, to what the library could not read: when it has sent it, it
                         * reports an error all the same */
    QD_LAST_DELIVERED,  /* sent straight to the socket, past the library (direct_response.h) */
    QD_LAST_LOST,       /* was to be, but the socket did not take all of it */
};

struct qd_link {
    struct qd_link *next, *previous;
};

/* A line, as of people at a counter: in the order in which they came, which is that of their
 * deadlines. It is a ring: behind `ends` stands the first, before it the last. */
struct qd_links {
    struct qd_link ends;
};

/* The lines. All in one line have the same time to wait: */
enum qd_wait {
    QD_WAIT_RECEIVE, /* --receive-timeout */
    QD_WAIT_IDLE,    /* --idle-timeout */
    QD_WAIT_PACE,    /* a window of the pace */
    QD_WAIT_CLOSING, /* what the library has to close them */
    QD_WAIT_COMPUTE, /* PROCESSING, for as long as that takes: any time */
    QD_WAIT_COUNT
};

struct MHD_Connection;
struct qd_connection;

struct qd_connections {
    const struct qd_config *config;
    /* In a sweep: in HEAD, BODY or ANSWER, and too slow. It moves it on to CLOSING. */
    void (*on_slow)(struct qd_connection *connection);
    /* In BODY, and what came of it has lost its memory. It moves it on to CLOSING. */
    void (*on_lost)(struct qd_connection *connection);
    /* The client of one that is PROCESSING has gone, for good. Perhaps more than once. */
    void (*on_gone)(struct qd_connection *connection);
    /* It sends nothing more, for a while already, and is PROCESSING over TCP: that tells not
     * whether it has gone. Once for each request. */
    void (*on_doubt)(struct qd_connection *connection);
    /* What it sends cannot be read (its `framing`), and all before that is answered. Moves it on to
     * CLOSING. */
    void (*on_fault)(struct qd_connection *connection);
    /* Returns how many bytes GnuTLS has decrypted that the library has not read. NULL: no
     * connection has TLS. */
    size_t (*decrypted_bytes)(const struct qd_connection *connection);
    uint64_t window_ns; /* of the pace */
    uint64_t window_bytes;
    struct qd_links waits[QD_WAIT_COUNT];
    struct qd_links fresh; /* not on the epoll yet, in the order of their accept */
    struct qd_links ended; /* the client sends nothing more */
    int hangups;           /* the epoll; becomes readable when a client hangs up */
    uint64_t look;         /* for stalled connections: counts looks, from 1 on */
    atomic_size_t count;   /* read on any thread */
    struct qd_connection *wide[QD_WIDE_COUNT_MAX]; /* or were so; NULL: a free place */
    size_t wide_max;                               /* this loop's part of them */
    bool draining; /* nobody new comes: whoever asks for nothing has to go */
    bool cutting;  /* and now everybody else, too */
};

/* What the I/O hooks keep of a connection (io_hooks.h). */
struct qd_connection_io {
    size_t placed_bytes; /* of the body: are in their place, and not taken yet */
    size_t untold_bytes; /* the last of these: the library does not know of them yet */
    /* Bytes of "100 Continue" that the socket has not taken: their last ones. Over TLS, not 0:
     * GnuTLS keeps a record with it. The first are ours, and go before whatever is sent next. The
     * others are the library's, which sends them itself. */
    uint8_t interim_left;
    uint8_t continue_left;
    struct qd_part outgoing; /* of the answer, what is left to go out in the library's stead */
};

/* How fast its body comes, or its answer goes (--min-rate). */
struct qd_connection_pace {
    uint64_t moved_bytes;   /* of body or answer, when the window began */
    uint64_t waited_look;   /* the last at which some of this body waited to be read; 0: none */
    uint64_t waited_bytes;  /* what had been read by then */
    uint64_t drained_bytes; /* of the socket's buffer, since they are counted */
    bool measured;          /* a window has begun in which the answer's way is counted */
    bool counts_room;       /* by the room in the socket's buffer: a Unix socket's, mostly */
};

struct qd_connection {
    struct qd_connections *all;
    enum qd_connection_state state;
    struct qd_link wait;        /* of one of all->waits */
    struct qd_link watch;       /* of all->fresh, of all->ended, or of itself alone */
    struct qd_request *request; /* NULL between requests */
    uint64_t accepted_ns;
    uint64_t first_byte_ns; /* when the request's first line was there; 0: between requests */
    uint64_t since_ns;      /* when it came into its state */
    uint64_t deadline_ns;   /* UINT64_MAX: none */
    uint64_t ended_ns;
    uint64_t chunks; /* of the body: pieces in which it came */
    struct qd_connection_io io;
    struct qd_connection_pace pace;
    struct qd_framing framing; /* of all that has come */
    uint64_t done_count;       /* requests that are answered */
    size_t target_bytes;       /* of the request's first line */
    int fd;
    enum qd_peer peer;
    enum qd_last_answer last;
    bool is_unix;
    bool handshake_done; /* TLS's */
    bool wide;           /* its socket's buffer is, for this answer */
    bool watched;        /* is on the epoll */
    bool is_head;        /* the request is a HEAD */
    bool held;           /* in BODY, until there are pages for what the library has read of it */
    bool is_http_1_1;
    bool has_ended; /* the library has read the end of what the client sends, and will close */
    bool is_last;   /* the connection ends with the request's answer, as the client wants it */
    bool has_own_timeout; /* the library's for it, until the request ends, is not all others' */
    struct qd_quota_share share;
    struct MHD_Connection *http;      /* for those who know the library */
    struct qd_tls_identity *identity; /* that its TLS session holds; NULL: none */
};

/* False: no descriptor, or no memory. config is borrowed. */
bool qd_connections_init(struct qd_connections *all, const struct qd_config *config);
void qd_connections_deinit(struct qd_connections *all);

/* In NEW. NULL: malloc failed. */
struct qd_connection *qd_connection_open(struct qd_connections *all, int fd, bool is_unix,
                                         struct MHD_Connection *http);
void qd_connection_close(struct qd_connection *connection); /* NULL is fine */

/* The only way to change the state. Asserts that the step is one of those in connection.c's table,
 * and gives it its time. */
void qd_connection_advance(struct qd_connection *connection, enum qd_connection_state to);

/* The same, of somebody who has just read the clock. */
void qd_connection_advance_at(struct qd_connection *connection, enum qd_connection_state to,
                              uint64_t now_ns);

/* It is to be refused: from here on its first head has no more time than QD_WAIT_CLOSING. In NEW.
 */
void qd_connection_hurry(struct qd_connection *connection);

/* Its answer has so many bytes: its socket gets a larger buffer for a large one, until it leaves
 * ANSWER, if there are not too many that have one. */
void qd_connection_widen(struct qd_connection *connection, size_t answer_bytes);

/* It is told a last thing: its socket has room for that behind what its client has not read. */
void qd_connection_make_room(struct qd_connection *connection);

/* Its last answer is out, and said so, and requests have come behind that one's: where it was just
 * closed, the kernel would reset it. */
bool qd_connection_leaves_unread(const struct qd_connection *connection);

/* Ends it for both sides: the library sees that as the peer's end. */
void qd_connection_cut(struct qd_connection *connection);

/* `hangups` is readable. */
void qd_connections_on_hangups(struct qd_connections *all);

/* Deals with who is late or has left. */
void qd_connections_sweep(struct qd_connections *all);
/* When the next sweep is due; UINT64_MAX: only when there is somebody new. */
uint64_t qd_connections_next_ns(const struct qd_connections *all);

/* Called while the library has had no rest for QD_RESTLESS_NS, since it began to have none (rested)
 * or since the last call. It does not read on where a chunk's line fills its buffer, and yet wants
 * to be run again at once. So a body that has not moved from one call to the next, and of which
 * more waited in the socket at both, is too slow, whatever the pace: on_slow. */
#define QD_RESTLESS_NS (100 * QD_NS_PER_MS)
void qd_connections_look_for_stalled(struct qd_connections *all, bool rested);

/* Some bodies have lost their memory, perhaps some of these (arena.h): on_lost. One that is held
 * learns it when it is not any more. */
void qd_connections_look_for_lost(struct qd_connections *all);

#endif
