/* Keeps the open connections of a loop: what the client or the server has to do next on each, and
 * until when.
 *
 * libmicrohttpd only knows how long a peer has been silent. A peer that sends one byte a second
 * would stay for ever. We therefore enforce all timeouts ourselves. A head must arrive within
 * --receive-timeout. If its first line is complete by then but the head is not, the client gets a
 * 408. If not even the first line is complete, the connection is cut off without an answer. A body
 * or an answer of any size must average --min-rate in each window (QD_PACE_WINDOW_NS).
 *
 * A client that is refused may still be sending. If a socket is closed with unread bytes in it, or
 * if bytes arrive afterwards, the kernel sends a reset, and the client's kernel throws away the
 * answer. After such an answer the connection therefore lingers: it keeps a duplicate of its
 * descriptor, which the library does not know, and reads and discards what the client sends, until
 * the client closes its end, sends less in a --receive-timeout than --min-rate asks for in a
 * window, or has sent QD_DISCARD_BYTES_MAX.
 *
 * Idle connections cost no system calls. All connections in one state wait equally long. In a list
 * in the order in which they entered the state, the earliest deadline is therefore always in front.
 * An epoll instance of our own reports clients that hang up. We need it because libmicrohttpd does
 * not watch a socket while the request is computed, and because 0.9.75 misses an end that arrives
 * together with the last bytes. A connection is added to the epoll once, and only if it lives
 * longer than 250 ms, which most connections of clients without keep-alive do not.
 *
 * All functions run on the connection's loop's thread. */
#pragma once

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
    QD_CONNECTION_NEW,        /* accepted, no first line yet: --receive-timeout */
    QD_CONNECTION_IDLE,       /* between two requests: --idle-timeout */
    QD_CONNECTION_HEAD,       /* the first line has arrived: --receive-timeout */
    QD_CONNECTION_BODY,       /* the head has arrived: --min-rate */
    QD_CONNECTION_PROCESSING, /* the body has arrived, the library is suspended: the client has no
                                 deadline */
    QD_CONNECTION_ANSWER,     /* the client reads the answer: --min-rate */
    QD_CONNECTION_CLOSING,    /* over: the library still has to close it */
    QD_CONNECTION_LINGERING,  /* the library has closed it; what the client sends is discarded */
};

/* What we know about the client's end of the connection. */
enum qd_peer {
    QD_PEER_SENDS, /* it sends, or may send */
    QD_PEER_ENDED, /* it sends nothing more: it has left, or it waits for its answer */
    QD_PEER_ASKED, /* like ENDED, and on_doubt was called for this request to find out which */
    QD_PEER_GONE,  /* it has left */
};

/* An answer after which the connection is closed although the client may still send. */
enum qd_last_answer {
    QD_LAST_NONE,
    QD_LAST_DELIVERED, /* sent straight to the socket, past the library (direct_response.h) */
    QD_LAST_LOST,      /* like DELIVERED, but the socket did not take all of it */
};

struct qd_link {
    struct qd_link *next, *previous;
};

/* A queue of connections in order of arrival, which is the order of their deadlines. It is a ring:
 * ends.next is the first connection, ends.previous the last. */
struct qd_links {
    struct qd_link ends;
};

/* The queues. All connections in one queue wait equally long: */
enum qd_wait {
    QD_WAIT_RECEIVE, /* --receive-timeout */
    QD_WAIT_IDLE,    /* --idle-timeout */
    QD_WAIT_PACE,    /* one window of the pace */
    QD_WAIT_CLOSING, /* 2 s: to be closed by the library, or to send a head that will be refused */
    QD_WAIT_LINGER,  /* --receive-timeout */
    QD_WAIT_COMPUTE, /* PROCESSING: no deadline */
    QD_WAIT_COUNT
};

struct MHD_Connection;
struct qd_connection;

struct qd_connections {
    const struct qd_config *config;
    /* Is called when a connection in HEAD, BODY or ANSWER is too slow. Moves it to CLOSING. */
    void (*on_slow)(struct qd_connection *connection);
    /* Is called when a connection is in BODY and the memory of its body has been taken away. Moves
     * it to CLOSING. */
    void (*on_lost)(struct qd_connection *connection);
    /* Is called when the client of a connection in PROCESSING has gone for good. May be called more
     * than once. */
    void (*on_gone)(struct qd_connection *connection);
    /* Is called once for each request, if the connection is PROCESSING over TCP and the client has
     * sent nothing more for a while. TCP does not tell whether such a client has gone. */
    void (*on_doubt)(struct qd_connection *connection);
    /* Is called when the client's bytes cannot be read (`framing` has the fault) and all requests
     * before them have been answered. Moves the connection to CLOSING. */
    void (*on_fault)(struct qd_connection *connection);
    /* Returns how many bytes GnuTLS has decrypted that the library has not read. NULL: no
     * connection has TLS. */
    size_t (*decrypted_bytes)(const struct qd_connection *connection);
    /* Tells the client, over TLS, that no more bytes come. NULL: no connection has TLS. */
    void (*end_session)(const struct qd_connection *connection);
    uint64_t window_ns; /* the window of the pace */
    uint64_t window_bytes;
    struct qd_links waits[QD_WAIT_COUNT];
    struct qd_links fresh; /* not on the epoll yet, in the order of their accept */
    struct qd_links ended; /* the client sends nothing more */
    int hangups;           /* the epoll; becomes readable when a client hangs up, or sends something
                              while its connection is LINGERING */
    /* Numbers the calls of qd_connections_look_for_stalled, from 1 on. The number rises by 2, and
     * not by 1, if the library has rested since the call before, so two calls with a rest between
     * them never have numbers that follow each other. */
    uint64_t look;
    atomic_size_t count; /* of connections; may be read on any thread */
    size_t lingering_count;
    /* The connections that have a wide send buffer, or had one. A place is free again if it is
     * NULL, or if its connection has a normal buffer again and the bytes that the client has yet to
     * read fit into that. */
    struct qd_connection *wide[QD_WIDE_COUNT_MAX];
    size_t wide_max; /* this loop's share of the places */
    bool draining;   /* no new connection is accepted, and idle ones are closed */
    bool cutting;    /* all other connections are closed, too */
};

/* The state of the I/O hooks for one connection (mhd/hooks.h). */
struct qd_connection_io {
    bool is_hooked;        /* the hooks see its bytes; otherwise it ends after one answer */
    bool library_read_end; /* the library has read the end of the client's bytes, and will close */
    size_t placed_bytes;   /* bytes of the body that are in their place but not taken yet */
    size_t untold_bytes;   /* how many of these, at their end, the library does not know of yet */
    /* How many bytes, at the end of a "100 Continue", the socket has not taken. Over TLS, any
     * number but 0 means that GnuTLS keeps a record with them. interim_left counts the bytes of our
     * own interim answer, which are sent before all other bytes. continue_left counts those of the
     * library's, which the library sends itself. */
    uint8_t interim_left;
    uint8_t continue_left;
    struct qd_part outgoing; /* the rest of an answer that we send in place of the library's */
};

/* How fast a body arrives, or an answer leaves (--min-rate). */
struct qd_connection_pace {
    uint64_t moved_bytes; /* bytes of the body or the answer moved before the window began */
    /* The last call of qd_connections_look_for_stalled at which bytes of this body waited to be
     * read. 0 if there was none. */
    uint64_t waited_look;
    uint64_t waited_bytes;    /* how many bytes of the body had been read at that call */
    bool is_stalled;          /* qd_connections_look_for_stalled has found this body */
    uint64_t discarded_bytes; /* in LINGERING */
    uint64_t freed_bytes;     /* how many bytes left the socket's buffer since measuring began */
    bool measured;            /* a window has begun in which the answer's progress is measured */
    bool counts_room; /* measured by the room in the socket's buffer: mostly for Unix sockets */
};

/* The socket, and what was set on it. */
struct qd_connection_socket {
    int fd; /* the library's; in LINGERING, our own duplicate */
    bool is_unix;
    bool is_wide;    /* its send buffer is large, for this answer */
    bool is_watched; /* is on the epoll */
};

/* The TLS session (tls.h, mhd/tls_hooks.c). Without TLS, all are 0. */
struct qd_connection_tls {
    bool handshake_done;
    bool leaves_decrypted; /* the library had not read all decrypted bytes at the end of the last
                              answer; later there is no session to ask */
    struct qd_tls_identity *identity; /* the identity that the session holds; NULL: none */
};

/* What the listener has to know of the current request beyond struct qd_request, from the request's
 * first line on. Between two requests, first_line_ns is 0, is_held and has_own_timeout are false,
 * and the other members are left over from the request before. */
struct qd_connection_current {
    uint64_t first_line_ns; /* when the first line was complete; 0: between requests */
    uint64_t chunks;        /* in how many pieces the library passed on its body */
    bool is_head;           /* it is a HEAD */
    bool is_http_1_1;
    bool closes_after_answer; /* the client wants that, or the connection is over quota */
    /* The connection is suspended until pages of the body are prefaulted. This is not a state of
     * its own, because the connection may be cut meanwhile: it is then held in CLOSING, and has to
     * be resumed so that the library closes it. */
    bool is_held;
    bool has_own_timeout; /* the library's timeout for this connection differs from the daemon's */
};

struct qd_connection {
    struct qd_connections *all;
    struct MHD_Connection *http; /* only for files that include the library's header; NULL in
                                    LINGERING */
    struct qd_quota_share share;
    struct qd_connection_socket socket;
    struct qd_connection_tls tls;

    enum qd_connection_state state;
    uint64_t accepted_ns;
    uint64_t since_ns;    /* when the connection entered its state */
    uint64_t deadline_ns; /* UINT64_MAX: none */
    struct qd_link wait;  /* in one of all->waits */
    struct qd_link watch; /* in all->fresh, in all->ended, or in neither */

    enum qd_peer peer;
    uint64_t ended_ns; /* when the client's end was noticed; not set while the peer SENDS */
    enum qd_last_answer final_answer;

    struct qd_framing framing;  /* of all bytes that have arrived */
    uint64_t done_count;        /* how many requests have been answered */
    struct qd_request *request; /* NULL between requests */
    struct qd_connection_current current;
    struct qd_connection_io io;
    struct qd_connection_pace pace;
};

/* Sets up an empty set of connections. Returns false if the epoll cannot be created, because
 * descriptors or memory ran out. `config` is borrowed. */
bool qd_connections_init(struct qd_connections *all, const struct qd_config *config);
void qd_connections_deinit(struct qd_connections *all);

/* Creates a connection in NEW. Returns NULL if malloc failed. */
struct qd_connection *qd_connection_open(struct qd_connections *all, int fd, bool is_unix,
                                         struct MHD_Connection *http);
/* Ends the connection, whose descriptor the library closes afterwards. After a last answer, or if
 * the client has pipelined more requests behind its last one, moves it to LINGERING. Otherwise
 * frees it. NULL is fine. */
void qd_connection_close(struct qd_connection *connection);

/* Moves the connection to another state. This is the only way to change the state. Asserts that
 * connection.c's table has the step, and sets since_ns and the deadline. */
void qd_connection_advance(struct qd_connection *connection, enum qd_connection_state to);

/* Like qd_connection_advance, for a caller that already has the time. */
void qd_connection_advance_at(struct qd_connection *connection, enum qd_connection_state to,
                              uint64_t now_ns);

/* Gives the client of a connection in NEW only 2 s for its first head (QD_WAIT_CLOSING), because
 * the connection will be refused. */
void qd_connection_hurry(struct qd_connection *connection);

/* Gives the socket a wide send buffer, if answer_bytes is large enough and not too many connections
 * have one. The connection has it until it leaves ANSWER. */
void qd_connection_widen(struct qd_connection *connection, size_t answer_bytes);

/* Makes the send buffer wide for a last answer, so that the socket takes the answer although the
 * client has not read earlier bytes. */
void qd_connection_make_room(struct qd_connection *connection);

/* Moves the connection to CLOSING and shuts down both directions of its socket. The library takes
 * this for the peer's end. Over TLS, tells the client first, if no request has begun: otherwise an
 * answer that is cut off could look whole. Frees a connection in LINGERING. */
void qd_connection_cut(struct qd_connection *connection);

/* Handles the epoll's events. Call it when `hangups` is readable. */
void qd_connections_on_hangups(struct qd_connections *all);

/* Handles the connections whose deadline is over, whose client has left, or that a drain closes.
 * Adds connections that have lived long enough to the epoll. */
void qd_connections_sweep(struct qd_connections *all);
/* Returns when the next sweep is due. UINT64_MAX: not before a new connection arrives. */
uint64_t qd_connections_next_ns(const struct qd_connections *all);

/* Finds bodies that have stalled in the library, and calls on_slow for each. This can happen if the
 * line of a chunk's size fills the library's buffer: the library then reads nothing more, but wants
 * to be run again at once, for ever. The caller calls this function each time that the library has
 * wanted that for QD_RESTLESS_NS. `rested` is true if the library has had nothing to do at some
 * time since the last call.
 *
 * A body counts as stalled if it has not moved between two calls, without a rest between them, and
 * bytes of it waited in the socket at both calls. It is then too slow, whatever its pace. */
#define QD_RESTLESS_NS (100 * QD_NS_PER_MS)
void qd_connections_look_for_stalled(struct qd_connections *all, bool rested);

/* Calls on_lost for each body whose memory has been taken away (arena.h). Skips a body whose pages
 * are being prefaulted, because its request notices the loss when they are there. */
void qd_connections_look_for_lost(struct qd_connections *all);
