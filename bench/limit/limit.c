/*
 * The lower bound of "start a fenced process and wait for its end".
 *
 * Does what the kernel makes unavoidable for a fence like bastle's, in the fewest calls, and nothing else: no
 * policy, no probe, no audit, no supervisor, no guard, no PID 1 of its own. It is a measuring stick, not a sandbox to
 * use: it makes no promise about failures beyond stopping.
 *
 *   limit [-t] RECIPE WORKSPACE PROGRAM [ARGUMENT...]
 *
 * RECIPE says what the fence shows, one thing per line, as `cargo xtask bench start` reads it from bastle's own plan
 * and from the mount table of a sandbox: the same binds, covers and Landlock rules, nothing more. Fields are
 * separated by tabs, paths are relative to the new root:
 *
 *   dir AT              a directory                        link TARGET AT      a symlink
 *   file AT TEXT        a small file                       scratch AT MODE     a directory of the private tmpfs
 *   bind SOURCE AT HOW  HOW: ro or rw; +owned: belongs to the program; +file: a file, whose place has to be made
 *   node NAME AT        a device of the host               pts AT, proc AT     a file system of its own
 *   mask AT file|dir    an empty thing over it             again AT            itself once more, read-only
 *   rule ro|rw AT       Landlock
 *
 * -t writes one JSON object with the microseconds of every step to standard error.
 * Exit status: the program's, or 125 when a step failed.
 *
 * Order matters and is the same as in any such launcher: identity first (without a mapping no file can be
 * made on the tmpfs), then the root, then the network, then what cannot be undone (no_new_privs, Landlock,
 * seccomp), then exec. As root the program gets a uid that nobody else has, so binds are opened before, and those
 * that shall belong to it are shown through an owner map; both as bastle does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* glibc's <sys/mount.h> and the kernel's <linux/mount.h> cannot both be included everywhere. */
extern int mount(const char *, const char *, const char *, unsigned long, const void *);
extern int umount2(const char *, int);
#ifndef MS_NOSUID
#define MS_NOSUID 2
#define MS_NODEV 4
#define MS_NOEXEC 8
#endif
#ifndef MNT_DETACH
#define MNT_DETACH 2
#endif

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#else
#error "add the audit architecture of this machine"
#endif

/* Rights of Landlock ABI 5; older headers lack the last ones. Higher bits than the running ABI knows are cut. */
#define RIGHTS_READ ((1ULL << 0) | (1ULL << 2) | (1ULL << 3)) /* execute, read file, read directory */
#define RIGHTS_ALL ((1ULL << 16) - 1)
#define RIGHTS_OF_A_FILE ((1ULL << 0) | (1ULL << 1) | (1ULL << 2) | (1ULL << 14) | (1ULL << 15))

enum { MAX_STEPS = 16, MAX_LINES = 256, MAX_RECIPE = 64 * 1024 };

/* The uid inside, and the first of those outside that belong to nobody. */
enum { INSIDE = 1000, FIRST_OUTSIDE = 0x6ba50000 };

static struct {
    const char *name;
    struct timespec at;
} steps[MAX_STEPS];
static int step_count;
static int timing;

/* Whoever called; in the new namespace these have no number until they are mapped. */
static uid_t own_uid;
static gid_t own_gid;

static struct line {
    char *word[4];
    int tree;
} lines[MAX_LINES];
static int line_count;

static void step(const char *name) {
    if (timing && step_count < MAX_STEPS) {
        steps[step_count].name = name;
        clock_gettime(CLOCK_MONOTONIC, &steps[step_count].at);
        step_count++;
    }
}

static void die(const char *what) {
    fprintf(stderr, "limit: %s: %s\n", what, strerror(errno));
    _exit(125);
}

static void read_recipe(const char *path) {
    static char text[MAX_RECIPE];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (got < 0) die(path);
    close(fd);
    for (char *at = text; *at != 0 && line_count < MAX_LINES;) {
        struct line *line = &lines[line_count++];
        char *end = strchrnul(at, '\n');
        int more = *end != 0;
        *end = 0;
        line->tree = -1;
        for (int i = 0; i < 4 && at != NULL; i++) line->word[i] = strsep(&at, "\t");
        at = end + more;
    }
}

static int is(const struct line *line, const char *word) { return strcmp(line->word[0], word) == 0; }

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) die(path);
    close(fd);
}

static void write_map(const char *whose, const char *file, unsigned from, unsigned to) {
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%s/%s", whose, file);
    snprintf(line, sizeof line, "%u %u 1", from, to);
    write_file(path, line);
}

/* A detached copy of a host tree. Recursive: a copy without the mounts locked below it is refused. */
static int detached(int directory, const char *source, uint64_t attributes) {
    struct mount_attr attr = {.attr_set = attributes};
    int fd = (int)syscall(SYS_open_tree, directory, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0) die(source);
    if (syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) != 0) die(source);
    return fd;
}

static void attach(int tree, const char *at) {
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) != 0) die(at);
    close(tree);
}

/* The map under which what `owner` owns belongs to `outside`: a user namespace that nobody lives in. */
static int owner_map(const struct stat *owner, unsigned outside) {
    int line[2], pidfd = -1;
    struct clone_args how = {.flags = CLONE_NEWUSER | CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD};
    if (pipe2(line, O_CLOEXEC) != 0) die("pipe");
    long pid = syscall(SYS_clone3, &how, sizeof how);
    if (pid < 0) die("clone3 for the owner map");
    if (pid == 0) {
        char byte;
        close(line[1]);
        _exit(read(line[0], &byte, 1) != 0);
    }
    char whose[24], path[64];
    snprintf(whose, sizeof whose, "%ld", pid);
    write_map(whose, "uid_map", owner->st_uid, outside);
    write_map(whose, "gid_map", owner->st_gid, outside);
    snprintf(path, sizeof path, "/proc/%s/ns/user", whose);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(path);
    close(line[0]), close(line[1]), close(pidfd);
    return fd;
}

/* Every bind as a detached mount. As root before the identity is given up, because it could not be read afterwards. */
static void open_binds(unsigned outside) {
    int map = -1;
    for (int i = 0; i < line_count; i++) {
        struct line *line = &lines[i];
        if (!is(line, "bind")) continue;
        uint64_t read_only = line->word[3][1] == 'o' ? MOUNT_ATTR_RDONLY : 0;
        line->tree = detached(AT_FDCWD, line->word[1], read_only | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        if (outside == 0 || strstr(line->word[3], "+owned") == NULL) continue;
        if (map < 0) {
            struct stat owner;
            if (fstat(line->tree, &owner) != 0) die(line->word[1]);
            map = owner_map(&owner, outside);
        }
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)map};
        if (syscall(SYS_mount_setattr, line->tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) != 0)
            die(line->word[1]);
    }
}

static void made_file(const char *at, const char *text) {
    int fd = open(at, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 || (*text != 0 && write(fd, text, strlen(text)) < 0)) die(at);
    close(fd);
}

static void directory(const char *at) {
    if (mkdir(at, 0755) != 0) die(at);
}

static int own_terminals(void) {
    int fs = (int)syscall(SYS_fsopen, "devpts", FSOPEN_CLOEXEC);
    if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "ptmxmode", "0666", 0) != 0 ||
        syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        die("devpts");
    int fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (fd < 0) die("devpts");
    close(fs);
    return fd;
}

static void put(struct line *line, int scratch) {
    char *first = line->word[1], *second = line->word[2];
    if (is(line, "dir")) {
        directory(first);
    } else if (is(line, "link")) {
        if (symlink(first, second) != 0) die(second);
    } else if (is(line, "file")) {
        made_file(first, second == NULL ? "" : second);
    } else if (is(line, "bind")) {
        if (strstr(line->word[3], "+file") != NULL) made_file(second, "");
        attach(line->tree, second);
    } else if (is(line, "node")) {
        made_file(second, "");
        attach(line->tree, second);
    } else if (is(line, "scratch")) {
        char name[16];
        snprintf(name, sizeof name, "%d", (int)(line - lines));
        if (mkdirat(scratch, name, 0700) != 0 || fchmodat(scratch, name, (mode_t)strtoul(second, NULL, 8), 0) != 0)
            die(first);
        attach(detached(scratch, name, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV), first);
    } else if (is(line, "pts")) {
        attach(own_terminals(), first);
    } else if (is(line, "proc")) {
        if (mount("proc", first, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0) die(first);
    } else if (is(line, "mask")) {
        const char *cover = *second == 'd' ? ".mask/directory" : ".mask/file";
        attach(detached(AT_FDCWD, cover, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC), first);
    } else if (is(line, "again")) {
        attach(detached(AT_FDCWD, first, MOUNT_ATTR_RDONLY), first);
    }
}

static void build_root(const char *workspace) {
    for (int i = 0; i < line_count; i++)
        if (is(&lines[i], "node"))
            lines[i].tree = detached(AT_FDCWD, lines[i].word[1], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    /* Any directory will do as the place: nobody but this mount namespace sees the mounts. The first goes with the
     * host's tree; its directories are shown where the recipe says. */
    if (mount("tmpfs", "/sys", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m") != 0) die("tmpfs");
    int scratch = open("/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (mount("tmpfs", "/sys", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=8m") != 0) die("tmpfs");
    if (scratch < 0 || chdir("/sys") != 0) die("/sys");
    directory(".mask");
    directory(".mask/directory");
    made_file(".mask/file", "");
    for (int i = 0; i < line_count; i++) put(&lines[i], scratch);
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
    if (syscall(SYS_mount_setattr, AT_FDCWD, ".", 0, &read_only, sizeof read_only) != 0) die("read-only root");
    if (syscall(SYS_pivot_root, ".", ".") != 0) die("pivot_root");
    if (umount2(".", MNT_DETACH) != 0) die("umount of the old root");
    if (chdir(workspace) != 0) die(workspace);
}

static void loopback_up(void) {
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0) die("lo");
    close(fd);
}

static void grant(int ruleset, const char *path, uint64_t rights) {
    struct stat what;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &what) != 0) die(path);
    if (!S_ISDIR(what.st_mode)) rights &= RIGHTS_OF_A_FILE;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) die(path);
    close(fd);
}

static void landlock(void) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1) die("Landlock");
    /* Bits by ABI: 13 rights in 1, refer in 2, truncate in 3, device ioctl in 5; signals and sockets by name in 6. */
    uint64_t known = abi >= 5 ? RIGHTS_ALL : abi >= 3 ? (1ULL << 15) - 1 : abi == 2 ? (1ULL << 14) - 1 : (1ULL << 13) - 1;
    /* Older headers lack the last two fields: file rights, ports, scopes. */
    uint64_t attr[3] = {known, 0, 3};
    size_t size = abi >= 6 ? sizeof attr : sizeof *attr;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, attr, size, 0);
    if (ruleset < 0) die("Landlock ruleset");
    grant(ruleset, "/", 1ULL << 3);
    for (int i = 0; i < line_count; i++)
        if (is(&lines[i], "rule")) {
            uint64_t rights = lines[i].word[1][1] == 'o' ? RIGHTS_READ : RIGHTS_ALL;
            char path[4096];
            snprintf(path, sizeof path, "/%s", lines[i].word[2]);
            grant(ruleset, path, rights & known);
        }
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) die("Landlock");
    close(ruleset);
}

/*
 * A filter as long as an allow-list of system calls with a few arguments looked at, if what is the same stands there
 * once: 165 instructions. As a tree, because the kernel tries it with every number when it is installed, and a chain
 * would be tried from its beginning each time.
 */
enum { LEAVES = 81, WIDTH = 13 };

static unsigned tree(struct sock_filter *code, unsigned n, unsigned from, unsigned to) {
    if (to - from == 1) {
        /* Whatever the last of them is, no kernel has it. */
        uint32_t answer = from == LEAVES - 1 ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_ALLOW;
        code[n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
        return n + 1;
    }
    unsigned middle = from + (to - from) / 2, own = n;
    unsigned right = tree(code, n + 1, from, middle);
    code[own] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, middle * WIDTH, 0, 0);
    /* The left side lies behind the jump; the right one is too far for a conditional jump of eight bits at the top. */
    unsigned distance = right - own - 1;
    if (distance > 255) die("filter");
    code[own].jt = (uint8_t)distance;
    return tree(code, right, middle, to);
}

static void seccomp(void) {
    struct sock_filter code[2 * LEAVES + 8];
    unsigned n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    n = tree(code, n, 0, LEAVES);
    struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) die("seccomp");
}

static void report(void) {
    fprintf(stderr, "{");
    for (int i = 1; i < step_count; i++) {
        long us = (steps[i].at.tv_sec - steps[i - 1].at.tv_sec) * 1000000L +
                  (steps[i].at.tv_nsec - steps[i - 1].at.tv_nsec) / 1000L;
        fprintf(stderr, "%s\"%s\":%ld", i == 1 ? "" : ",", steps[i].name, us);
    }
    fprintf(stderr, "}\n");
}

/* As an ordinary user the child writes its own maps: no round trip with the parent. As root only the parent may. */
static void take_identity(unsigned outside, int word) {
    char byte;
    if (outside == 0) {
        write_file("/proc/self/setgroups", "deny");
        write_map("self", "uid_map", INSIDE, own_uid);
        write_map("self", "gid_map", INSIDE, own_gid);
        return;
    }
    if (read(word, &byte, 1) != 1) die("waiting for the maps");
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || syscall(SYS_setgroups, 0, NULL) != 0 ||
        syscall(SYS_setresgid, INSIDE, INSIDE, INSIDE) != 0 || syscall(SYS_setresuid, INSIDE, INSIDE, INSIDE) != 0)
        die("identity");
    /* The permitted set was kept; what is effective has to be asked for. */
    struct { uint32_t version; int pid; } header = {0x20080522, 0};
    struct { uint32_t effective, permitted, inheritable; } sets[2];
    if (syscall(SYS_capget, &header, sets) != 0) die("capabilities");
    for (int i = 0; i < 2; i++) sets[i].effective = sets[i].permitted;
    if (syscall(SYS_capset, &header, sets) != 0) die("capabilities");
}

static void inside(unsigned outside, int word, const char *workspace, char *const argv[]) {
    static char *const environment[] = {"PATH=/usr/bin:/bin", NULL};
    step("clone");
    take_identity(outside, word);
    step("identity");
    if (outside == 0) open_binds(outside);
    build_root(workspace);
    step("mounts");
    if (sethostname("bastle", 6) != 0) die("sethostname");
    loopback_up();
    step("net");
    if (setsid() < 0 && errno != EPERM) die("setsid");
    if (syscall(SYS_close_range, 3U, ~0U, 0U) != 0) die("close_range");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no_new_privs");
    landlock();
    step("landlock");
    seccomp();
    step("seccomp");
    if (timing) report();
    /* The mapped user is not root in its namespace: exec drops every capability. */
    execve(argv[0], argv, environment);
    die(argv[0]);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "-t") == 0) {
        timing = 1;
        argv++, argc--;
    }
    if (argc < 4) {
        fprintf(stderr, "usage: limit [-t] RECIPE WORKSPACE PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    own_uid = geteuid();
    own_gid = getegid();
    unsigned outside = own_uid == 0 ? FIRST_OUTSIDE + (unsigned)getpid() % 0x10000 : 0;
    step("start");
    read_recipe(argv[1]);
    int word[2] = {-1, -1};
    if (outside != 0) {
        open_binds(outside);
        if (pipe2(word, O_CLOEXEC) != 0) die("pipe");
    }
    step("binds");
    struct clone_args how = {
        .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWCGROUP,
        .exit_signal = SIGCHLD,
    };
    long pid = syscall(SYS_clone3, &how, sizeof how);
    if (pid < 0) die("clone3");
    if (pid == 0) inside(outside, word[0], argv[2], argv + 3);
    if (outside != 0) {
        char whose[24];
        snprintf(whose, sizeof whose, "%ld", pid);
        write_map(whose, "uid_map", INSIDE, outside);
        write_map(whose, "gid_map", INSIDE, outside);
        if (write(word[1], "", 1) != 1) die("maps");
    }
    int status;
    if (waitpid((pid_t)pid, &status, 0) < 0) die("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
