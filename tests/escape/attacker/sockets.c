/* Attacks through sockets: families, the host's own sockets, routes. */
#include "attacker.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* family NUMBER TYPE PROTOCOL */
static int do_family(char **a) { return outcome(socket((int)number(a[0]), (int)number(a[1]) | SOCK_CLOEXEC, (int)number(a[2]))); }

static int connect_unix(const char *name, int abstract) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path + abstract, name, sizeof address.sun_path - 2);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name) + (abstract ? 0 : 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? CANNOT_TELL : outcome(connect(fd, (struct sockaddr *)&address, length));
}
static int do_abstract(char **a) { return connect_unix(a[0], 1); }
static int do_unix(char **a) { return connect_unix(a[0], 0); }

/* bind-unix PATH: a socket is a name too. */
static int do_bind_unix(char **a) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, a[0], sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? CANNOT_TELL : outcome(bind(fd, (struct sockaddr *)&address, sizeof address));
}

static int listen_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4) ? -1 : fd;
}

/* own-unix PATH: a connection to a path socket of its own. */
static int do_own_unix(char **a) { return listen_unix(a[0]) < 0 ? errno : connect_unix(a[0], 0); }

/* hold-unix PATH: no attack; on the host it is what others try to reach. */
static int do_hold_unix(char **a) {
    if (listen_unix(a[0]) < 0)
        return errno;
    sleep(600);
    return 0;
}

/* tcp ADDRESS PORT */
static int do_tcp(char **a) {
    int v6 = strchr(a[0], ':') != NULL;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number(a[1]))};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)number(a[1]))};
    if (inet_pton(v6 ? AF_INET6 : AF_INET, a[0], v6 ? (void *)&six.sin6_addr : (void *)&four.sin_addr) != 1)
        return CANNOT_TELL;
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    return outcome(v6 ? connect(fd, (struct sockaddr *)&six, sizeof six) : connect(fd, (struct sockaddr *)&four, sizeof four));
}

/* own-loopback: a connection to a listener of its own. */
static int do_own_loopback(char **a) {
    (void)a;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        return errno;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? errno : outcome(connect(fd, (struct sockaddr *)&address, length));
}

const struct entry SOCKETS[] = {
    {"family", 3, do_family},
    {"abstract", 1, do_abstract},
    {"unix", 1, do_unix},
    {"bind-unix", 1, do_bind_unix},
    {"own-unix", 1, do_own_unix},
    {"hold-unix", 1, do_hold_unix},
    {"tcp", 2, do_tcp},
    {"own-loopback", 0, do_own_loopback},
    {NULL, 0, NULL},
};
