/*
 * The lower bound of "start a fenced process and wait for its end".
 *
 * Does what the kernel makes unavoidable for a fence like bastle's, in the fewest calls, and nothing else: no
 * policy, no probe, no audit, no supervisor, no PID 1 of its own. It is a measuring stick, not a sandbox to
 * use: it makes no promise about failures beyond stopping.
 *
 *   limit [-t] WORKSPACE PROGRAM        PROGRAM: static, found beneath WORKSPACE
 *
 * -t writes one JSON object with the microseconds of every step to standard error.
 * Exit status: the program's, or 125 when a step failed.
 *
 * Order matters and is the same as in any such launcher: identity first (without a mapping no file can be
 * made on the tmpfs), then the root, then the network, then what cannot be undone (no_new_privs, Landlock,
 * seccomp), then exec.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

enum { MAX_STEPS = 16 };

static struct {
    const char *name;
    struct timespec at;
} steps[MAX_STEPS];
static int step_count;
static int timing;

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

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) die(path);
    close(fd);
}

/* The child writes its own maps: one process, no round trip with the parent. */
static void map_identity(uid_t uid, gid_t gid) {
    char line[64];
    write_file("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "1000 %u 1", uid);
    write_file("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "1000 %u 1", gid);
    write_file("/proc/self/gid_map", line);
}

/* A detached copy of a host tree. Recursive: a copy without the mounts locked below it is refused. */
static int detached(const char *source, uint64_t attributes) {
    struct mount_attr attr = {.attr_set = attributes};
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0) die(source);
    if (syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) != 0) die(source);
    return fd;
}

static void attach(int tree, const char *at) {
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) != 0) die(at);
    close(tree);
}

static void directory(const char *at) {
    if (mkdir(at, 0755) != 0) die(at);
}

static void device(const char *source, const char *at) {
    int fd = open(at, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) die(at);
    close(fd);
    attach(detached(source, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC), at);
}

static void build_root(const char *workspace) {
    int usr = detached("/usr", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    int work = detached(workspace, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    /* Any directory will do as the place: nobody but this mount namespace sees the mount. */
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m") != 0) die("tmpfs");
    if (chdir("/tmp") != 0) die("/tmp");
    directory("usr");
    directory("workspace");
    directory("proc");
    directory("dev");
    directory("tmp");
    if (symlink("usr/bin", "bin") || symlink("usr/sbin", "sbin") || symlink("usr/lib", "lib") ||
        symlink("usr/lib64", "lib64"))
        die("symlink");
    attach(usr, "usr");
    attach(work, "workspace");
    device("/dev/null", "dev/null");
    device("/dev/zero", "dev/zero");
    device("/dev/urandom", "dev/urandom");
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0) die("proc");
    if (mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m") != 0) die("tmp");
    if (syscall(SYS_pivot_root, ".", ".") != 0) die("pivot_root");
    if (umount2(".", MNT_DETACH) != 0) die("umount of the old root");
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &read_only, sizeof read_only) != 0) die("read-only root");
    if (chdir("/workspace") != 0) die("/workspace");
}

static void loopback_up(void) {
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0) die("lo");
    close(fd);
}

static void landlock(void) {
    static const struct {
        const char *path;
        uint64_t rights;
    } grants[] = {
        {"/usr", RIGHTS_READ},         {"/proc", RIGHTS_READ},
        {"/workspace", RIGHTS_ALL},    {"/tmp", RIGHTS_ALL},
        {"/dev/null", RIGHTS_OF_A_FILE}, {"/dev/zero", RIGHTS_OF_A_FILE},
        {"/dev/urandom", RIGHTS_OF_A_FILE},
    };
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1) die("Landlock");
    /* Bits by ABI: 13 rights in 1, refer in 2, truncate in 3, device ioctl in 5. */
    uint64_t known = abi >= 5 ? RIGHTS_ALL : abi >= 3 ? (1ULL << 15) - 1 : abi == 2 ? (1ULL << 14) - 1 : (1ULL << 13) - 1;
    struct landlock_ruleset_attr attr = {.handled_access_fs = known};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0);
    if (ruleset < 0) die("Landlock ruleset");
    for (size_t i = 0; i < sizeof grants / sizeof *grants; i++) {
        int fd = open(grants[i].path, O_PATH | O_CLOEXEC);
        struct landlock_path_beneath_attr rule = {.allowed_access = grants[i].rights & known, .parent_fd = fd};
        if (fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
            die(grants[i].path);
        close(fd);
    }
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) die("Landlock");
    close(ruleset);
}

/* A filter of ordinary size: calls that reach for the kernel are refused, the rest passes. */
static void seccomp(void) {
    static const int refused[] = {
        SYS_mount,       SYS_umount2,      SYS_pivot_root,   SYS_open_tree,      SYS_move_mount,    SYS_fsopen,
        SYS_fsconfig,    SYS_fsmount,      SYS_fspick,       SYS_mount_setattr,  SYS_chroot,        SYS_setns,
        SYS_unshare,     SYS_ptrace,       SYS_process_vm_readv, SYS_process_vm_writev, SYS_kexec_load,
        SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_bpf,           SYS_perf_event_open,
        SYS_userfaultfd, SYS_keyctl,       SYS_add_key,      SYS_request_key,    SYS_io_uring_setup,
        SYS_io_uring_enter, SYS_io_uring_register, SYS_swapon, SYS_swapoff,      SYS_reboot,        SYS_settimeofday,
        SYS_clock_settime, SYS_adjtimex,   SYS_acct,         SYS_quotactl,       SYS_syslog,        SYS_vhangup,
        SYS_open_by_handle_at,
    };
    enum { COUNT = sizeof refused / sizeof *refused };
    struct sock_filter code[COUNT + 6];
    unsigned n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < COUNT; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], COUNT - i, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
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

static void inside(uid_t uid, gid_t gid, const char *workspace, char *const argv[]) {
    static char *const environment[] = {"PATH=/usr/bin:/bin", NULL};
    step("clone");
    map_identity(uid, gid);
    step("identity");
    build_root(workspace);
    step("mounts");
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
    if (argc < 3) {
        fprintf(stderr, "usage: limit [-t] WORKSPACE PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    uid_t uid = geteuid();
    gid_t gid = getegid();
    step("start");
    struct clone_args how = {
        .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWCGROUP,
        .exit_signal = SIGCHLD,
    };
    long pid = syscall(SYS_clone3, &how, sizeof how);
    if (pid < 0) die("clone3");
    if (pid == 0) inside(uid, gid, argv[1], argv + 2);
    int status;
    if (waitpid((pid_t)pid, &status, 0) < 0) die("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
