/*
 * The lower bound of "a CONNECT proxy on this kernel": one thread, epoll, splice(2) through a pipe per direction.
 *
 * It takes `CONNECT ANY:PORT`, dials 127.0.0.1:PORT, answers 200 and moves bytes without looking at them. No decision,
 * no name, no check of an address, no log, no limit: a measuring stick, not a proxy to use.
 *
 *   proxy PORT          listens on 127.0.0.1:PORT, says "ready" and runs until it is killed
 *
 * Edge-triggered: every socket is registered once, and each event drives both directions as far as they go.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 4096, EVENTS = 256, PIPE = 1 << 20, BACKLOG = 1024 };

struct half {
    int from, to;
    int pipe[2];
    size_t held;  /* bytes in the pipe */
    int ended;    /* `from` said its last word */
    int shut;     /* and `to` was told */
};

struct tunnel {
    int client, server;
    int waits;    /* for the server's connect */
    size_t have;
    struct half out, in;
    struct tunnel *next_dead;
    int dead;
    char head[HEAD];
};

static int poller;
static struct tunnel *graveyard;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Freed after the batch: an event of the same batch may still name it. */
static void bury(struct tunnel *tunnel) {
    if (tunnel->dead)
        return;
    tunnel->dead = 1;
    close(tunnel->client);
    if (tunnel->server >= 0)
        close(tunnel->server);
    for (int i = 0; i < 2; i++) {
        if (tunnel->out.pipe[i])
            close(tunnel->out.pipe[i]);
        if (tunnel->in.pipe[i])
            close(tunnel->in.pipe[i]);
    }
    tunnel->next_dead = graveyard;
    graveyard = tunnel;
}

static int watch(int fd, struct tunnel *tunnel) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = tunnel};
    return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

/* Moves until both ends would block. Returns -1 when the tunnel is over. */
static int pump(struct half *half) {
    for (;;) {
        int moved = 0;
        if (!half->ended && half->held < PIPE) {
            ssize_t got = splice(half->from, NULL, half->pipe[1], NULL, PIPE - half->held,
                                 SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
            if (got > 0) {
                half->held += (size_t)got;
                moved = 1;
            } else if (got == 0) {
                half->ended = 1;
            } else if (errno != EAGAIN) {
                return -1;
            }
        }
        if (half->held) {
            ssize_t put = splice(half->pipe[0], NULL, half->to, NULL, half->held, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
            if (put > 0) {
                half->held -= (size_t)put;
                moved = 1;
            } else if (put < 0 && errno != EAGAIN) {
                return -1;
            }
        }
        if (!moved)
            break;
    }
    if (half->ended && !half->held && !half->shut) {
        half->shut = 1;
        shutdown(half->to, SHUT_WR);
    }
    return 0;
}

static int open_half(struct half *half, int from, int to) {
    half->from = from;
    half->to = to;
    if (pipe2(half->pipe, O_NONBLOCK | O_CLOEXEC) != 0)
        return -1;
    /* Refused to an ordinary user who holds many: the small pipe works as well. */
    fcntl(half->pipe[1], F_SETPIPE_SZ, PIPE);
    return 0;
}

/* Reads the request's head; dials when it is whole. -1: over. */
static int greet(struct tunnel *tunnel) {
    ssize_t got = recv(tunnel->client, tunnel->head + tunnel->have, HEAD - 1 - tunnel->have, 0);
    if (got <= 0)
        return got < 0 && errno == EAGAIN ? 0 : -1;
    tunnel->have += (size_t)got;
    tunnel->head[tunnel->have] = 0;
    if (!strstr(tunnel->head, "\r\n\r\n"))
        return tunnel->have == HEAD - 1 ? -1 : 0;
    char *space = strncmp(tunnel->head, "CONNECT ", 8) == 0 ? strchr(tunnel->head + 8, ' ') : NULL;
    if (!space)
        return -1;
    *space = 0;
    char *colon = strrchr(tunnel->head + 8, ':');
    if (!colon)
        return -1;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(colon + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    tunnel->server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tunnel->server < 0)
        return -1;
    int one = 1;
    setsockopt(tunnel->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(tunnel->server, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS)
        return -1;
    tunnel->waits = 1;
    return watch(tunnel->server, tunnel);
}

static int connected(struct tunnel *tunnel) {
    static const char answer[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(tunnel->server, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error)
        return -1;
    struct sockaddr_in peer;
    size = sizeof peer;
    if (getpeername(tunnel->server, (struct sockaddr *)&peer, &size) != 0)
        return errno == ENOTCONN ? 0 : -1;
    tunnel->waits = 0;
    if (open_half(&tunnel->out, tunnel->client, tunnel->server) != 0 ||
        open_half(&tunnel->in, tunnel->server, tunnel->client) != 0)
        return -1;
    return send(tunnel->client, answer, sizeof answer - 1, MSG_NOSIGNAL) == sizeof answer - 1 ? 0 : -1;
}

static int drive(struct tunnel *tunnel) {
    if (tunnel->server < 0 && greet(tunnel) != 0)
        return -1;
    if (tunnel->server < 0)
        return 0;
    if (tunnel->waits && connected(tunnel) != 0)
        return -1;
    if (tunnel->waits)
        return 0;
    if (pump(&tunnel->out) != 0 || pump(&tunnel->in) != 0)
        return -1;
    return tunnel->out.shut && tunnel->in.shut ? -1 : 0;
}

static void take(int listener) {
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0)
            return;
        struct tunnel *tunnel = calloc(1, sizeof *tunnel);
        if (!tunnel)
            fail("calloc");
        int one = 1;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        tunnel->client = client;
        tunnel->server = -1;
        if (watch(client, tunnel) != 0)
            bury(tunnel);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "proxy PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)atoi(argv[1])),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) != 0 || listen(listener, BACKLOG) != 0)
        fail("listen");
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) != 0)
        fail("epoll");
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(poller, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < count; i++) {
            struct tunnel *tunnel = events[i].data.ptr;
            if (!tunnel)
                take(listener);
            else if (!tunnel->dead && drive(tunnel) != 0)
                bury(tunnel);
        }
        while (graveyard) {
            struct tunnel *dead = graveyard;
            graveyard = dead->next_dead;
            free(dead);
        }
    }
}
