/* Attacks on other processes: signals, memory, descriptors, privileges of programs. */
#include "attacker.h"
#include <dirent.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

/* A word whose address another process of this program can guess: the program is not position-independent. */
static volatile long secret = 0x5ec2e7;

static int do_signal(char **a) { return outcome(kill((pid_t)number(a[0]), (int)number(a[1]))); }

static int do_attach(char **a) {
    pid_t pid = (pid_t)number(a[0]);
    if (ptrace(PTRACE_ATTACH, pid, 0, 0))
        return errno;
    waitpid(pid, NULL, 0);
    ptrace(PTRACE_DETACH, pid, 0, 0);
    return 0;
}

static int vm_read(pid_t pid) {
    long word = 0;
    struct iovec here = {&word, sizeof word}, there = {(void *)&secret, sizeof word};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) < 0)
        return errno;
    return 0;
}
static int do_vm_read(char **a) { return vm_read((pid_t)number(a[0])); }

/* take-descriptor PID: its descriptor 0. */
static int do_take_descriptor(char **a) {
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)number(a[0]), 0);
    return pidfd < 0 ? errno : outcome(syscall(SYS_pidfd_getfd, pidfd, 0, 0));
}

/* debug-child: what a debugger does to a program it started. */
static int do_debug_child(char **a) {
    (void)a;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            _exit(errno);
        raise(SIGSTOP);
        _exit(0);
    }
    int status, came;
    waitpid(child, &status, 0);
    if (WIFEXITED(status))
        return WEXITSTATUS(status) ? WEXITSTATUS(status) : CANNOT_TELL;
    errno = 0;
    long word = ptrace(PTRACE_PEEKDATA, child, &secret, 0);
    came = errno ? errno : word == secret ? vm_read(child) : CANNOT_TELL;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return came;
}

/* suspend-filter: asks the kernel, as a debugger, to switch a child's system-call filter off. */
static int do_suspend_filter(char **a) {
    (void)a;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    int came = WIFSTOPPED(status) ? outcome(ptrace(PTRACE_SETOPTIONS, child, 0, 1 << 21)) : CANNOT_TELL;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return came;
}

/* limit-processor-time PID: the kernel kills it, whoever it is. */
static int do_limit_processor_time(char **a) {
    if (!filtered())
        return CANNOT_TELL;
    struct rlimit none = {0, 0};
    return outcome(prlimit((pid_t)number(a[0]), RLIMIT_CPU, &none, NULL));
}

/* become UID */
static int do_become(char **a) {
    uid_t uid = (uid_t)number(a[0]);
    return outcome(setresuid(uid, uid, uid));
}

/* effective-uid UID: succeeds when the program already runs with it, as a set-uid program would. */
static int do_effective_uid(char **a) { return geteuid() == (uid_t)number(a[0]) ? 0 : EPERM; }

/* descriptors: lists those above 2; succeeds when there are any. */
static int do_descriptors(char **a) {
    (void)a;
    DIR *directory = opendir("/proc/self/fd");
    if (!directory)
        return CANNOT_TELL;
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(directory)) {
            char path[64], target[256] = "";
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            if (readlink(path, target, sizeof target - 1) < 0)
                target[0] = 0;
            fprintf(stderr, "descriptor %d: %s\n", fd, target);
            found++;
        }
    }
    closedir(directory);
    return found ? 0 : EBADF;
}

/* processes NAME: succeeds when /proc shows a process whose command line contains NAME, other than this program's. */
static int do_processes(char **a) {
    DIR *directory = opendir("/proc");
    if (!directory)
        return CANNOT_TELL;
    for (struct dirent *entry; (entry = readdir(directory));) {
        pid_t pid = atoi(entry->d_name);
        if (pid <= 0 || pid == getpid() || pid == getppid())
            continue;
        char path[64], line[4096];
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        if (fd >= 0)
            close(fd);
        if (length > 0 && memmem(line, length, a[0], strlen(a[0]))) {
            closedir(directory);
            return 0;
        }
    }
    closedir(directory);
    return ESRCH;
}

/* Whatever a program says is not the matter here. */
static void be_silent(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, 1);
        dup2(null, 2);
    }
}

static int execute(const char *path, char *const *words) {
    extern char **environ;
    be_silent();
    return outcome(execve(path, words, environ));
}

static int do_execute(char **argument) { return execute(argument[0], (char *[]){argument[0], NULL}); }

/* `exec -a NAME`: what a program is called is its caller's choice. */
static int do_execute_as(char **argument) { return execute(argument[0], (char *[]){argument[1], NULL}); }

static int do_execute_with_loader(char **argument) {
    return execute(argument[0], (char *[]){argument[0], argument[1], NULL});
}

static int do_execute_descriptor(char **argument) {
    extern char **environ;
    int file = open(argument[0], O_PATH | O_CLOEXEC);
    if (file < 0)
        return CANNOT_TELL;
    be_silent();
    char *words[] = {argument[0], NULL};
    return outcome(syscall(SYS_execveat, file, "", words, environ, AT_EMPTY_PATH));
}

static int do_execute_proc_fd(char **argument) {
    char path[64];
    int file = open(argument[0], O_RDONLY);
    if (file < 0)
        return CANNOT_TELL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return execute(path, (char *[]){argument[0], NULL});
}

/* A copy of the program in memory, in a file that no rule of Landlock is about. */
static int do_execute_memory(char **argument) {
    char bytes[65536], path[64];
    int file = open(argument[0], O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return CANNOT_TELL;
    int memory = (int)syscall(SYS_memfd_create, "copy", (unsigned)number(argument[1]));
    if (memory < 0)
        return errno;
    for (ssize_t have; (have = read(file, bytes, sizeof bytes)) > 0;)
        if (write(memory, bytes, (size_t)have) != have)
            return CANNOT_TELL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    return execute(path, (char *[]){argument[0], NULL});
}

/* A copy at another place. */
static int do_execute_copy(char **argument) {
    char bytes[65536];
    int file = open(argument[0], O_RDONLY | O_CLOEXEC);
    int copy = open(argument[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (file < 0 || copy < 0)
        return CANNOT_TELL;
    for (ssize_t have; (have = read(file, bytes, sizeof bytes)) > 0;)
        if (write(copy, bytes, (size_t)have) != have)
            return CANNOT_TELL;
    close(copy);
    return execute(argument[1], (char *[]){argument[1], NULL});
}

const struct entry PROCESSES[] = {
    {"signal", 2, do_signal},
    {"attach", 1, do_attach},
    {"vm-read", 1, do_vm_read},
    {"take-descriptor", 1, do_take_descriptor},
    {"debug-child", 0, do_debug_child},
    {"suspend-filter", 0, do_suspend_filter},
    {"limit-processor-time", 1, do_limit_processor_time},
    {"become", 1, do_become},
    {"effective-uid", 1, do_effective_uid},
    {"descriptors", 0, do_descriptors},
    {"processes", 1, do_processes},
    {"execute", 1, do_execute},
    {"execute-as", 2, do_execute_as},
    {"execute-with-loader", 2, do_execute_with_loader},
    {"execute-descriptor", 1, do_execute_descriptor},
    {"execute-proc-fd", 1, do_execute_proc_fd},
    {"execute-memory", 2, do_execute_memory},
    {"execute-copy", 2, do_execute_copy},
    {NULL, 0, NULL},
};
