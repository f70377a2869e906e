/*
 * The lower bound of "give an agent a copy of a project": every file is read once and written once, by two
 * threads, and nothing else. No digest, no times, no attributes, no record. A measuring stick, not a tool.
 *
 *   copy FROM TO        TO must not exist; regular files, directories and links only
 *
 * Exit status: 0, or 125 when a step failed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 2, PIECE = 1 << 20, MOST = 1 << 16 };

/* Directories relative to both roots: made first, in order, then filled by whoever is free. */
static char *directories[MOST];
static int count;
static atomic_int next;
static int from_root, to_root;

static void fail(const char *what)
{
    fprintf(stderr, "copy: %s: %s\n", what, strerror(errno));
    exit(125);
}

static void gather(const char *path)
{
    if (count == MOST)
        fail("too many directories");
    directories[count++] = strdup(path);
    int fd = openat(from_root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        fail(path);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_type != DT_DIR || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char below[4096];
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (mkdirat(to_root, below, 0777))
            fail(below);
        gather(below);
    }
    closedir(dir);
}

static void copy_file(int from, int to, const char *name, char *buffer)
{
    int in = openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (in < 0 || out < 0)
        fail(name);
    for (ssize_t got; (got = read(in, buffer, PIECE)) != 0;)
        if (got < 0 || write(out, buffer, (size_t)got) != got)
            fail(name);
    close(in);
    close(out);
}

static void *work(void *unused)
{
    (void)unused;
    char *buffer = malloc(PIECE);
    for (int at; (at = atomic_fetch_add(&next, 1)) < count;) {
        int from = openat(from_root, directories[at], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int to = openat(to_root, directories[at], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = from < 0 || to < 0 ? NULL : fdopendir(from);
        if (!dir || !buffer)
            fail(directories[at]);
        for (struct dirent *entry; (entry = readdir(dir));) {
            if (entry->d_type == DT_REG) {
                copy_file(from, to, entry->d_name, buffer);
            } else if (entry->d_type == DT_LNK) {
                char target[4096];
                ssize_t length = readlinkat(from, entry->d_name, target, sizeof target - 1);
                if (length < 0)
                    fail(entry->d_name);
                target[length] = 0;
                if (symlinkat(target, to, entry->d_name))
                    fail(entry->d_name);
            }
        }
        closedir(dir);
        close(to);
    }
    free(buffer);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 125;
    if (mkdir(argv[2], 0777))
        fail(argv[2]);
    from_root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    to_root = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from_root < 0 || to_root < 0)
        fail(argv[1]);
    gather(".");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            fail("thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
