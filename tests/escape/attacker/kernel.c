/* Attacks on the kernel's own interfaces: system calls by number through every entry, namespaces, terminals, fuzz. */
#include "attacker.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <termios.h>

#define X32_BIT 0x40000000L

/* sys NUMBER A B C: raw, by number. `@text` is a pointer to the text. */
static long value(char *text) { return text[0] == '@' ? (long)(uintptr_t)(text + 1) : number(text); }
static int do_sys(char **a) { return outcome(syscall(number(a[0]), value(a[1]), value(a[2]), value(a[3]))); }

static long through_int80(long nr, long a, long b, long c) {
#ifdef __x86_64__
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    result = (int)result;
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
#else
    (void)nr, (void)a, (void)b, (void)c;
    errno = ENOSYS;
    return -1;
#endif
}

/* int80 NUMBER: an i386 call, all arguments invalid. */
static int do_int80(char **a) { return outcome(through_int80(number(a[0]), -1, -1, -1)); }
/* x32 NUMBER: a native number with the x32 bit. */
static int do_x32(char **a) { return outcome(syscall(number(a[0]) | X32_BIT, -1L, -1L, -1L, -1L, -1L, -1L)); }

/* invalid NUMBER: every argument -1, a bad descriptor, pointer, length and flag at once: no call can take effect. */
static int do_invalid(char **a) {
    /* vhangup takes no argument; without a terminal it has nothing to hang up. */
    setsid();
    return outcome(syscall(number(a[0]), -1L, -1L, -1L, -1L, -1L, -1L));
}

/* denied FILE: every call of the list through every entry; lines `name entry result`. */
static int do_denied(char **a) {
    FILE *list = fopen(a[0], "re");
    if (!list)
        return errno;
    char line[256], name[64], native[16], i386[16];
    while (fgets(line, sizeof line, list)) {
        if (line[0] == '#' || sscanf(line, "%63s %15s %15s", name, native, i386) != 3)
            continue;
        struct {
            const char *entry;
            char *number;
            attack run;
        } ways[] = {{"native", native, do_invalid}, {"x32", native, do_x32}, {"int80", i386, do_int80}};
        for (size_t i = 0; i < 3; i++) {
            if (ways[i].number[0] == '-')
                continue;
            int came = in_child(ways[i].run, &ways[i].number);
            printf("%s %s %s\n", name, ways[i].entry, came == 0 ? "OK" : came < 0 ? "CANNOT-TELL" : errno_name(came));
        }
    }
    fclose(list);
    return 0;
}

/* unshare FLAGS, clone FLAGS, clone3 FLAGS */
static int do_unshare(char **a) { return outcome(unshare((int)number(a[0]))); }

static int do_clone(char **a) {
    long child = syscall(SYS_clone, number(a[0]) | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return outcome(child);
}

static int do_clone3(char **a) {
    uint64_t arguments[11] = {0};
    arguments[0] = number(a[0]);
    arguments[4] = SIGCHLD;
    long child = syscall(SYS_clone3, arguments, 64L);
    if (child == 0)
        _exit(0);
    return outcome(child);
}

/* setns PATH */
static int do_setns(char **a) {
    int fd = open(a[0], O_RDONLY | O_CLOEXEC);
    return fd < 0 ? CANNOT_TELL : outcome(setns(fd, 0));
}

/* terminal sti|linux|cons|size: a request on an own terminal. `size` is harmless. */
static int do_terminal(char **a) {
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) || unlockpt(master))
        return CANNOT_TELL;
    setsid();
    int slave = open(ptsname(master), O_RDWR | O_CLOEXEC);
    if (slave < 0 || ioctl(slave, TIOCSCTTY, 0))
        return CANNOT_TELL;
    char byte[8] = {2};
    struct winsize size;
    if (!strcmp(a[0], "sti"))
        return outcome(ioctl(slave, TIOCSTI, "x"));
    if (!strcmp(a[0], "linux"))
        return outcome(ioctl(slave, TIOCLINUX, byte));
    if (!strcmp(a[0], "cons"))
        return outcome(ioctl(slave, TIOCCONS, 0));
    return outcome(ioctl(slave, TIOCGWINSZ, &size));
}

/* schedule fifo|deadline|nice: more than a fair share. */
static int do_schedule(char **a) {
    if (!strcmp(a[0], "fifo")) {
        struct sched_param parameter = {.sched_priority = 1};
        return outcome(sched_setscheduler(0, SCHED_FIFO, &parameter));
    }
    if (!strcmp(a[0], "nice")) {
        errno = 0;
        return outcome(setpriority(PRIO_PROCESS, 0, -5));
    }
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {48, 6, 0, 0, 0, 1000000, 10000000, 10000000};
    return outcome(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

/* Not drawn at random: they end, stop or multiply the fuzzer itself, or make the host's disks wait. */
static int spared(long nr) {
    static const long LIST[] = {SYS_exit, SYS_exit_group, SYS_clone,  SYS_kill,            SYS_tkill,
                                SYS_sync, SYS_rt_sigreturn, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
#ifdef SYS_fork
                                SYS_fork, SYS_vfork, /* aarch64 has clone alone */
#endif
                                SYS_pidfd_send_signal};
    for (size_t i = 0; i < sizeof LIST / sizeof *LIST; i++)
        if (LIST[i] == nr)
            return 1;
    return 0;
}

static uint64_t state;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1dull;
}

static long argument(char *scratch) {
    static const char *const PATHS[] = {"/", "/proc/1/mem", "/etc/passwd", "../../..", "/dev/null", "x", ".env", "/proc/self/ns/user"};
    switch (next() % 10) {
    case 0: return 0;
    case 1: return -1;
    case 2: return (long)(next() % 8);
    case 3: return (long)(uintptr_t)PATHS[next() % 8];
    case 4: return (long)(uintptr_t)(scratch + next() % 4096);
    case 5: return (long)(1ul << (next() % 64));
    case 6: return (long)(next() % 65536);
    case 7: return AT_FDCWD;
    case 8: return (long)(uintptr_t)scratch;
    default: return (long)next();
    }
}

static void wake(int signal) { (void)signal; }

/* One child draws calls until it dies or its share is done. */
static void draw(long share, volatile long *made) {
    char *scratch = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    struct sigaction act = {.sa_handler = wake};
    sigaction(SIGALRM, &act, NULL);
    /* What blocks is woken every 20 ms. */
    struct itimerval often = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (share-- > 0) {
        long nr = (long)(next() % 480);
        if (next() % 64 == 0)
            nr |= X32_BIT;
        if (spared(nr))
            continue;
        (*made)++;
        long result;
        if (next() % 64 == 0)
            result = through_int80(nr, argument(scratch), argument(scratch), argument(scratch));
        else
            result = syscall(nr, argument(scratch), argument(scratch), argument(scratch), argument(scratch), argument(scratch), argument(scratch));
        if (result != -1)
            made[1]++;
    }
    _exit(0);
}

/* fuzz SEED COUNT: that many random calls; says how many were made and how many did something. */
static int do_fuzz(char **a) {
    if (!filtered())
        return CANNOT_TELL;
    volatile long *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t seed = number(a[0]);
    long count = number(a[1]), total = 0, succeeded = 0, children = 0;
    while (total < count && children < count) {
        state = (seed + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)children++ * 0xd1342543de82ef95ull;
        made[0] = made[1] = 0;
        pid_t child = fork();
        if (child < 0)
            return CANNOT_TELL;
        if (child == 0)
            draw(256, made);
        int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
        struct pollfd end = {.fd = pidfd, .events = POLLIN};
        int ended = poll(&end, 1, 400);
        if (ended <= 0)
            kill(child, SIGKILL);
        int status;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        close(pidfd);
        /* The child may have scribbled on the shared count: never believe more than its share. */
        total += made[0] > 0 && made[0] <= 256 ? made[0] : 1;
        succeeded += made[1] > 0 && made[1] <= made[0] ? made[1] : 0;
        /* Orphans of calls that fork all the same. */
        while (waitpid(-1, &status, WNOHANG) > 0)
            ;
    }
    printf("made %ld succeeded %ld children %ld\n", total, succeeded, children);
    return total >= count ? 0 : CANNOT_TELL;
}

const struct entry KERNEL[] = {
    {"sys", 4, do_sys},
    {"int80", 1, do_int80},
    {"x32", 1, do_x32},
    {"invalid", 1, do_invalid},
    {"denied", 1, do_denied},
    {"unshare", 1, do_unshare},
    {"clone", 1, do_clone},
    {"clone3", 1, do_clone3},
    {"setns", 1, do_setns},
    {"terminal", 1, do_terminal},
    {"schedule", 1, do_schedule},
    {"fuzz", 2, do_fuzz},
    {NULL, 0, NULL},
};
