// holder MODE DIRECTORY: keeps something of a directory where only a look at every thread finds it.
//   write, directory: the thread that holds it goes on after the main thread has ended
//   thread: a thread with a working directory of its own (no CLONE_FS)
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *mode, *place;

static void hold(void) {
    if (strcmp(mode, "write") == 0) {
        char file[4096];
        snprintf(file, sizeof file, "%s/f", place);
        if (open(file, O_WRONLY | O_APPEND) < 0)
            exit(2);
    } else if (chdir(place) != 0) {
        exit(3);
    }
    // Without stdio: the cloned thread has no thread-local storage of its own.
    if (write(1, "h", 1) != 1)
        _exit(4);
    for (;;)
        pause();
}

static void *in_thread(void *unused) {
    (void)unused;
    hold();
    return NULL;
}

static int in_clone(void *unused) {
    (void)unused;
    hold();
    return 0;
}

int main(int count, char **words) {
    if (count != 3)
        return 1;
    mode = words[1];
    place = words[2];
    if (strcmp(mode, "thread") == 0) {
        char *stack = malloc(1 << 20);
        int flags = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
        if (stack == NULL || clone(in_clone, stack + (1 << 20), flags, NULL) < 0)
            return 5;
        for (;;)
            pause();
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0)
        return 6;
    pthread_exit(NULL);
}
