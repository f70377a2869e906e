/*
 * hog WHAT AMOUNT: takes more than it is given. Static, so that it needs nothing of the root it runs in.
 * Exit 0 and "TOOK" when it got everything, 10 and the cause when it was refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int refused(const char *what, long made, int why) {
    printf("%s %ld %s\n", what, made, strerrorname_np(why));
    return 10;
}

static void *wait_for_ever(void *unused) {
    for (;;)
        pause();
    return unused;
}

static int threads(long most) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long made = 0; made < most; made++) {
        pthread_t thread;
        int why = pthread_create(&thread, &small, wait_for_ever, NULL);
        if (why)
            return refused("threads", made, why);
    }
    return 0;
}

/* Touched in steps, so that a watchdog has its chance on a fast machine too. */
static int touch(char *bytes, size_t length) {
    if (bytes == MAP_FAILED)
        return refused("mmap", 0, errno);
    for (size_t at = 0; at < length; at += 4096) {
        bytes[at] = 1;
        if (at % (16 << 20) == 0)
            usleep(30000);
    }
    return 0;
}

static int own(size_t length) {
    return touch(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), length);
}

/* Keeps what it took for a while. */
static int hold(size_t length) {
    int came = own(length);
    sleep(2);
    return came;
}

static void *hold_in_thread(void *length) {
    exit(hold(*(size_t *)length));
}

/* The same, after the main thread has ended. */
static int headless(size_t length) {
    static size_t kept;
    kept = length;
    pthread_t thread;
    int why = pthread_create(&thread, NULL, hold_in_thread, &kept);
    if (why)
        return refused("threads", 0, why);
    pthread_exit(NULL);
}

static int shared(size_t length) {
    return touch(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), length);
}

static int memory_file(size_t length) {
    int fd = memfd_create("hog", 0);
    if (fd < 0 || ftruncate(fd, (off_t)length))
        return refused("memfd", 0, errno);
    return touch(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), length);
}

static int descriptors(long most) {
    for (long made = 3; made < most; made++)
        if (dup(0) < 0)
            return refused("descriptors", made, errno);
    return 0;
}

/* Burns that many milliseconds of processor time, however long it takes. */
static int burn(long milliseconds) {
    struct rusage used;
    do
        getrusage(RUSAGE_SELF, &used);
    while (used.ru_utime.tv_sec * 1000 + used.ru_utime.tv_usec / 1000 + used.ru_stime.tv_sec * 1000 +
               used.ru_stime.tv_usec / 1000 <
           milliseconds);
    return 0;
}

/* Asks for every processor. */
static int processors(void) {
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    if (sched_setaffinity(0, sizeof all, &all))
        return refused("affinity", 0, errno);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 20;
    long amount = atol(argv[2]);
    size_t mebibytes = (size_t)amount << 20;
    int came = 20;
    if (!strcmp(argv[1], "threads"))
        came = threads(amount);
    else if (!strcmp(argv[1], "own"))
        came = own(mebibytes);
    else if (!strcmp(argv[1], "hold"))
        came = hold(mebibytes);
    else if (!strcmp(argv[1], "headless"))
        came = headless(mebibytes);
    else if (!strcmp(argv[1], "shared"))
        came = shared(mebibytes);
    else if (!strcmp(argv[1], "memfd"))
        came = memory_file(mebibytes);
    else if (!strcmp(argv[1], "descriptors"))
        came = descriptors(amount);
    else if (!strcmp(argv[1], "burn"))
        came = burn(amount);
    else if (!strcmp(argv[1], "processors"))
        came = processors();
    else if (!strcmp(argv[1], "abort"))
        abort();
    if (came == 0)
        puts("TOOK");
    fflush(stdout);
    _exit(came);
}
