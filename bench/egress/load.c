/*
 * The server behind the proxies and the client in front of them, for `bench egress`.
 *
 *   load server PORT DNSPORT                    answers every name with 127.0.0.1 and serves the commands below
 *   load throughput PROXY HOST PORT CONNS MS    bytes per second and bytes moved, server to client
 *   load tunnels    PROXY HOST PORT CONNS MS    whole tunnels per second: connect, ask, one byte back, close
 *   load latency    PROXY HOST PORT 1 MS        median microseconds of one byte there and back
 *   load hold       PROXY HOST PORT CONNS MS    opens them, says "held N", keeps them until standard input ends
 *
 * PROXY is the port of a CONNECT proxy on 127.0.0.1, or 0 to go straight to the server. Every tunnel begins with a
 * ClientHello that names HOST, padded to HELLO bytes: a proxy that checks it finds what it looks for, and the server
 * knows where the command begins. What follows is not TLS; nobody who passes bytes on can tell.
 * Bytes are copied in and out as ordinary programs do: no trick makes the ends cheaper than they are in life.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HELLO = 512, CHUNK = 256 * 1024, MAX_ROUNDS = 1 << 20, BACKLOG = 1024, STACK = 64 * 1024 + CHUNK };

static const char *host;
static int proxy_port, server_port, milliseconds;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int all(int fd, void *buffer, size_t size) {
    char *at = buffer;
    while (size) {
        ssize_t got = recv(fd, at, size, 0);
        if (got <= 0)
            return -1;
        at += got;
        size -= (size_t)got;
    }
    return 0;
}

static int say(int fd, const void *buffer, size_t size) {
    const char *at = buffer;
    while (size) {
        ssize_t put = send(fd, at, size, MSG_NOSIGNAL);
        if (put <= 0)
            return -1;
        at += put;
        size -= (size_t)put;
    }
    return 0;
}

static void quick(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static pthread_t begin(void *(*what)(void *), void *with) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    if (pthread_create(&thread, &attributes, what, with) != 0)
        fail("pthread_create");
    return thread;
}

/* ---- server ---- */

static void *serve(void *with) {
    int fd = (int)(intptr_t)with;
    static char zeros[CHUNK];
    char hello[HELLO + 1];
    quick(fd);
    if (all(fd, hello, sizeof hello) == 0) {
        char byte = 0;
        switch (hello[HELLO]) {
        case 'D': /* download until the client has enough */
            while (say(fd, zeros, sizeof zeros) == 0)
                ;
            break;
        case 'E': /* echo */
            while (all(fd, &byte, 1) == 0 && say(fd, &byte, 1) == 0)
                ;
            break;
        case 'C': /* one byte and good-bye */
            if (say(fd, &byte, 1) == 0)
                recv(fd, &byte, 1, 0);
            break;
        case 'H': /* stay */
            if (say(fd, &byte, 1) == 0)
                recv(fd, &byte, 1, 0);
            break;
        default:
            break;
        }
    }
    close(fd);
    return NULL;
}

/* Answers every question with the same address: type A gets 127.0.0.1, other types an empty answer. */
static void *name_server(void *with) {
    int fd = (int)(intptr_t)with;
    for (;;) {
        unsigned char packet[1232];
        struct sockaddr_in who;
        socklen_t size = sizeof who;
        ssize_t got = recvfrom(fd, packet, 512, 0, (struct sockaddr *)&who, &size);
        if (got < 17)
            continue;
        size_t end = 12;
        while (end < (size_t)got && packet[end])
            end += packet[end] + 1u;
        end += 5;
        if (end > (size_t)got)
            continue;
        int address = packet[end - 4] == 0 && packet[end - 3] == 1;
        static const unsigned char answer[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1};
        packet[2] = 0x84 | (packet[2] & 1);
        packet[3] = 0x80;
        memset(packet + 4, 0, 8);
        packet[5] = 1;
        packet[7] = (unsigned char)address;
        if (address)
            memcpy(packet + end, answer, sizeof answer);
        sendto(fd, packet, end + (address ? sizeof answer : 0), 0, (struct sockaddr *)&who, size);
    }
    return NULL;
}

static int bound(int type, int port) {
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) != 0)
        fail("bind");
    return fd;
}

static int server(int port, int dns) {
    int listener = bound(SOCK_STREAM, port);
    if (listen(listener, BACKLOG) != 0)
        fail("listen");
    begin(name_server, (void *)(intptr_t)bound(SOCK_DGRAM, dns));
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            pthread_detach(begin(serve, (void *)(intptr_t)fd));
    }
    return 0;
}

/* ---- client ---- */

static unsigned char *two(unsigned char *at, size_t value) {
    *at++ = (unsigned char)(value >> 8);
    *at++ = (unsigned char)value;
    return at;
}

/* A ClientHello with a name, one version, one group, and padding up to HELLO bytes, record header included. */
static void write_hello(unsigned char *start) {
    size_t name = strlen(host);
    unsigned char *at = start;
    memset(start, 0, HELLO);
    *at++ = 22;
    at = two(two(at, 0x0301), HELLO - 5);
    *at++ = 1;
    *at++ = 0;
    at = two(two(at, HELLO - 9), 0x0303);
    memset(at, 7, 32);
    at += 32;
    *at++ = 0;
    at = two(two(at, 2), 0x1301);
    *at++ = 1;
    *at++ = 0;
    unsigned char *extensions = at;
    at += 2;
    at = two(two(two(at, 0), name + 5), name + 3);
    *at++ = 0;
    at = two(at, name);
    memcpy(at, host, name);
    at += name;
    at = two(two(at, 43), 3);
    *at++ = 2;
    at = two(at, 0x0304);
    at = two(two(two(two(at, 10), 4), 2), 29);
    at = two(two(two(two(at, 13), 4), 2), 0x0403);
    at = two(at, 21);
    two(at, (size_t)(start + HELLO - at - 2));
    two(extensions, (size_t)(start + HELLO - extensions - 2));
}

/* Opens one tunnel and gives the command. */
static int tunnel(char command) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(proxy_port ? proxy_port : server_port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    quick(fd);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    if (proxy_port) {
        char head[1024];
        int size = snprintf(head, sizeof head, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, server_port, host,
                            server_port);
        size_t have = 0;
        int fine = say(fd, head, (size_t)size) == 0;
        while (fine && (have < 4 || memcmp(head + have - 4, "\r\n\r\n", 4) != 0)) {
            /* The server speaks only when spoken to: whatever comes is the proxy's. */
            ssize_t got = recv(fd, head + have, sizeof head - have, 0);
            fine = got > 0;
            have += fine ? (size_t)got : 0;
        }
        if (!fine || have < 12 || memcmp(head + 8, " 200", 4) != 0) {
            if (have)
                fprintf(stderr, "refused: %.*s\n", (int)have, head);
            close(fd);
            return -1;
        }
    }
    unsigned char hello[HELLO + 1];
    write_hello(hello);
    hello[HELLO] = (unsigned char)command;
    if (say(fd, hello, sizeof hello) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static double until;

static void *download(void *with) {
    static __thread char sink[CHUNK];
    uint64_t *moved = with;
    int fd = tunnel('D');
    if (fd < 0)
        return NULL;
    /* At least once, here and below: a slow proxy must look slow, not broken. */
    do {
        ssize_t got = recv(fd, sink, sizeof sink, 0);
        if (got <= 0) {
            *moved = 0;
            break;
        }
        *moved += (uint64_t)got;
    } while (now() < until);
    close(fd);
    return NULL;
}

static void *open_many(void *with) {
    uint64_t *opened = with;
    do {
        char byte;
        int fd = tunnel('C');
        if (fd < 0 || all(fd, &byte, 1) != 0) {
            *opened = 0;
            return NULL;
        }
        close(fd);
        *opened += 1;
    } while (now() < until);
    return NULL;
}

/* Runs `what` on `count` threads; a thread that failed left 0. */
static int together(void *(*what)(void *), int count, const char *unit) {
    uint64_t *done = calloc((size_t)count, sizeof *done);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    if (!done || !threads)
        fail("calloc");
    double started = now();
    until = started + milliseconds / 1e3;
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        threads[i] = begin(what, &done[i]);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        if (!done[i]) {
            fprintf(stderr, "connection %d of %d failed\n", i + 1, count);
            return 1;
        }
        sum += done[i];
    }
    double seconds = now() - started;
    printf("{\"per_second\":%.1f,\"%s\":%llu}\n", (double)sum / seconds, unit, (unsigned long long)sum);
    return 0;
}

static int by_size(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static int latency(void) {
    double *times = calloc(MAX_ROUNDS, sizeof *times);
    int fd = tunnel('E'), rounds = 0;
    if (fd < 0 || !times)
        return 1;
    until = now() + milliseconds / 1e3;
    for (; rounds < MAX_ROUNDS && now() < until; rounds++) {
        char byte = 1;
        double started = now();
        if (say(fd, &byte, 1) != 0 || all(fd, &byte, 1) != 0)
            return 1;
        times[rounds] = (now() - started) * 1e6;
    }
    close(fd);
    if (!rounds)
        return 1;
    qsort(times, (size_t)rounds, sizeof *times, by_size);
    printf("{\"p50_us\":%.2f,\"rounds\":%d}\n", times[rounds / 2], rounds);
    return 0;
}

static int hold(int count) {
    for (int i = 0; i < count; i++) {
        char byte;
        int fd = tunnel('H');
        if (fd < 0 || all(fd, &byte, 1) != 0) {
            fprintf(stderr, "tunnel %d failed\n", i + 1);
            return 1;
        }
    }
    printf("held %d\n", count);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}

int main(int argc, char **argv) {
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (argc == 4 && strcmp(argv[1], "server") == 0)
        return server(atoi(argv[2]), atoi(argv[3]));
    if (argc != 7) {
        fprintf(stderr, "load server PORT DNSPORT | load MODE PROXY HOST PORT CONNS MS\n");
        return 2;
    }
    proxy_port = atoi(argv[2]);
    host = argv[3];
    server_port = atoi(argv[4]);
    milliseconds = atoi(argv[6]);
    int connections = atoi(argv[5]);
    if (strlen(host) > 200 || connections < 1)
        return 2;
    if (strcmp(argv[1], "throughput") == 0)
        return together(download, connections, "bytes");
    if (strcmp(argv[1], "tunnels") == 0)
        return together(open_many, connections, "tunnels");
    if (strcmp(argv[1], "latency") == 0)
        return latency();
    if (strcmp(argv[1], "hold") == 0)
        return hold(connections);
    fprintf(stderr, "no mode %s\n", argv[1]);
    return 2;
}
