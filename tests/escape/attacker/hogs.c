/* Attacks on what is shared: processes, memory, descriptors, time. */
#include "attacker.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>

/* fork-bomb MOST: forks until refused; says how far it came. Children wait to be killed. */
static int do_fork_bomb(char **a) {
    long most = number(a[0]), made = 0;
    int why = 0;
    /* A group of its own, so that only the bomb is cleared away in the end. */
    setpgid(0, 0);
    while (made < most) {
        pid_t child = fork();
        if (child == 0) {
            for (;;)
                pause();
        }
        if (child < 0) {
            why = errno;
            break;
        }
        made++;
    }
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    fprintf(stderr, "forked: %ld\n", made);
    return why;
}

/* eat MEBIBYTES: takes and touches that much memory. */
static int do_eat(char **a) {
    size_t length = (size_t)number(a[0]) << 20;
    char *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return errno;
    for (size_t at = 0; at < length; at += 4096)
        bytes[at] = 1;
    return 0;
}

/* descriptors-until-refused MOST */
static int do_open_many(char **a) {
    long most = number(a[0]), made = 0;
    while (made < most) {
        if (dup(0) < 0) {
            int why = errno;
            fprintf(stderr, "opened: %ld\n", made);
            return why;
        }
        made++;
    }
    return 0;
}

static void ignore_everything(void) {
    for (int sig = 1; sig < 65; sig++)
        signal(sig, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

/* tree COUNT MARK: that many descendants in sessions of their own, deaf to signals, half of them stopped, one traced by nobody.
   Never ends. MARK stays in every command line. */
static int do_tree(char **a) {
    long count = number(a[0]);
    for (long i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            setsid();
            if (fork() > 0)
                _exit(0);
            ignore_everything();
            if (i % 2)
                kill(getpid(), SIGSTOP);
            for (;;)
                pause();
        }
        waitpid(child, NULL, 0);
    }
    puts("planted");
    fflush(stdout);
    ignore_everything();
    for (;;)
        pause();
    return 0;
}

/* stubborn TURN MARK: ignores signals, closes its streams, renames itself, resets timers, executes itself again; for ever. */
static int do_stubborn(char **a) {
    long turn = number(a[0]);
    if (turn == 0) {
        puts("planted");
        fflush(stdout);
        for (int fd = 0; fd < 3; fd++)
            close(fd);
    }
    ignore_everything();
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    prctl(PR_SET_NAME, turn % 2 ? "kworker/0:1" : "systemd");
    struct timespec moment = {0, 100000000};
    nanosleep(&moment, NULL);
    char next[32];
    snprintf(next, sizeof next, "%ld", turn + 1);
    execl("/proc/self/exe", "attacker", "stubborn", next, a[1], NULL);
    for (;;)
        pause();
    return 0;
}

static void awake(int sig) { (void)sig; }

/* Timers of the process's own continue it, one every quarter of a millisecond. With a handler: since Linux 6.13 a timer whose
 * signal is ignored, as SIGCONT is by default, does not fire again. Many: a SIGSTOP discards a SIGCONT that is still pending, and
 * a timer whose signal was discarded is never armed again. */
static int continue_myself(void) {
    signal(SIGCONT, awake);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
    for (long number = 0; number < 64; number++) {
        struct itimerspec often = {{0, 16000000}, {0, 1000000 + number * 250000}};
        timer_t timer;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL))
            return errno;
    }
    return 0;
}

/* self-continuing STEM: makes the directories STEM-1, STEM-2, ... until there is a file "go"; beside it a child that makes no
 * name. Both continue themselves. */
static int do_self_continuing(char **a) {
    pid_t child = fork();
    int why = continue_myself();
    if (child < 0 || why)
        return why ? why : errno;
    char name[4096];
    for (long count = 1; access("go", F_OK); count++) {
        snprintf(name, sizeof name, "%s-%ld", a[0], count);
        if (child && mkdir(name, 0755))
            return errno;
        usleep(1000);
    }
    if (!child)
        _exit(0);
    return outcome(waitpid(child, NULL, 0) == child ? 0 : -1);
}

const struct entry HOGS[] = {
    {"fork-bomb", 1, do_fork_bomb},
    {"eat", 1, do_eat},
    {"open-many", 1, do_open_many},
    {"tree", 2, do_tree},
    {"stubborn", 2, do_stubborn},
    {"self-continuing", 1, do_self_continuing},
    {NULL, 0, NULL},
};
