/*
 * An HTTPS server and a client for proxies that look into TLS, for `bench egress`. Needs OpenSSL.
 *
 *   tls server PORT CERTIFICATE KEY             HTTP/1.1 over TLS, 200 with a body of 1 KiB to everything
 *   tls requests PROXY HOST PORT CONNS MS       requests per second over CONNS connections that stay open
 *
 * PROXY is the port of a CONNECT proxy on 127.0.0.1, or 0. The client does not verify: each proxy has an authority of
 * its own, and what is measured is its work, not ours.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BODY = 1024, BUFFER = 16 * 1024, BACKLOG = 256 };

static SSL_CTX *context;
static const char *host;
static int proxy_port, server_port;
static double until;

static void fail(const char *what) {
    perror(what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void quick(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Reads until the end of a head; returns the bytes read, 0 when the other side is done. */
static int read_head(SSL *tls, char *buffer, int size) {
    int have = 0;
    while (have < size - 1) {
        int got = SSL_read(tls, buffer + have, size - 1 - have);
        if (got <= 0)
            return 0;
        have += got;
        buffer[have] = 0;
        if (strstr(buffer, "\r\n\r\n"))
            return have;
    }
    return 0;
}

static void *serve(void *with) {
    int fd = (int)(intptr_t)with;
    char buffer[BUFFER], answer[BODY + 256];
    quick(fd);
    int head = snprintf(answer, sizeof answer,
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(answer + head, 'x', BODY);
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, fd);
    if (SSL_accept(tls) == 1)
        while (read_head(tls, buffer, sizeof buffer) > 0 && SSL_write(tls, answer, head + BODY) > 0)
            ;
    SSL_free(tls);
    close(fd);
    return NULL;
}

static int server(int port, const char *certificate, const char *key) {
    context = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        fail("certificate");
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) != 0 || listen(listener, BACKLOG) != 0)
        fail("listen");
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_t thread;
        if (fd >= 0 && pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0)
            pthread_detach(thread);
    }
    return 0;
}

static int tunnel(void) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(proxy_port ? proxy_port : server_port)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    quick(fd);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        return -1;
    if (proxy_port) {
        char head[1024];
        int size = snprintf(head, sizeof head, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, server_port, host,
                            server_port);
        size_t have = 0;
        if (send(fd, head, (size_t)size, MSG_NOSIGNAL) != size)
            return -1;
        while (have < 4 || memcmp(head + have - 4, "\r\n\r\n", 4) != 0) {
            ssize_t got = recv(fd, head + have, sizeof head - have, 0);
            if (got <= 0)
                return -1;
            have += (size_t)got;
        }
        if (have < 12 || memcmp(head + 8, " 200", 4) != 0)
            return -1;
    }
    return fd;
}

/* One request and its whole response. */
static int request(SSL *tls, const char *text, int size) {
    char buffer[BUFFER];
    if (SSL_write(tls, text, size) != size)
        return -1;
    int have = read_head(tls, buffer, sizeof buffer);
    char *body = have > 12 ? strstr(buffer, "\r\n\r\n") : NULL;
    if (!body || memcmp(buffer + 8, " 200", 4) != 0) {
        fprintf(stderr, "refused: %.200s\n", have > 0 ? buffer : "closed");
        return -1;
    }
    int left = BODY - (int)(buffer + have - (body + 4));
    while (left > 0) {
        int got = SSL_read(tls, buffer, left);
        if (got <= 0)
            return -1;
        left -= got;
    }
    return 0;
}

static void *ask(void *with) {
    uint64_t *done = with;
    char text[512];
    int size = snprintf(text, sizeof text, "GET /bench HTTP/1.1\r\nHost: %s:%d\r\nAccept: */*\r\n\r\n", host, server_port);
    int fd = tunnel();
    if (fd < 0)
        return NULL;
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, fd);
    SSL_set_tlsext_host_name(tls, host);
    /* At least one: a slow proxy must look slow, not broken. */
    if (SSL_connect(tls) == 1)
        do {
            if (request(tls, text, size) != 0) {
                *done = 0;
                break;
            }
            *done += 1;
        } while (now() < until);
    SSL_free(tls);
    close(fd);
    return NULL;
}

static int requests(int count, int milliseconds) {
    uint64_t *done = calloc((size_t)count, sizeof *done);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    if (!done || !threads)
        fail("calloc");
    context = SSL_CTX_new(TLS_client_method());
    double started = now();
    until = started + milliseconds / 1e3;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, ask, &done[i]) != 0)
            fail("pthread_create");
    uint64_t sum = 0;
    int failed = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        failed += !done[i];
        sum += done[i];
    }
    if (failed) {
        fprintf(stderr, "%d of %d connections failed\n", failed, count);
        return 1;
    }
    printf("{\"per_second\":%.1f,\"requests\":%llu}\n", (double)sum / (now() - started), (unsigned long long)sum);
    return 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 5 && strcmp(argv[1], "server") == 0)
        return server(atoi(argv[2]), argv[3], argv[4]);
    if (argc != 7 || strcmp(argv[1], "requests") != 0) {
        fprintf(stderr, "tls server PORT CERTIFICATE KEY | tls requests PROXY HOST PORT CONNS MS\n");
        return 2;
    }
    proxy_port = atoi(argv[2]);
    host = argv[3];
    server_port = atoi(argv[4]);
    return requests(atoi(argv[5]), atoi(argv[6]));
}
