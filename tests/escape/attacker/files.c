/* Attacks on the file system: paths, links, nodes, mounts, ownership. */
#include "attacker.h"
#include <linux/aio_abi.h>
#include <linux/limits.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static int put(int fd, const char *text) {
    size_t length = strlen(text);
    ssize_t written = write(fd, text, length);
    int came = written == (ssize_t)length ? 0 : written < 0 ? errno : CANNOT_TELL;
    close(fd);
    return came;
}

/* write PATH TEXT: creates it if need be. */
static int do_write(char **a) {
    int fd = open(a[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return fd < 0 ? errno : put(fd, a[1]);
}

/* overwrite PATH TEXT: only what exists. */
static int do_overwrite(char **a) {
    int fd = open(a[0], O_WRONLY | O_CLOEXEC);
    return fd < 0 ? errno : put(fd, a[1]);
}

/* open-write PATH: opened for writing, and nothing is written: should it succeed, the host is unharmed. */
static int do_open_write(char **a) { return outcome(open(a[0], O_WRONLY | O_CLOEXEC | O_NONBLOCK)); }

static int show(int fd) {
    char buffer[4096];
    ssize_t length = read(fd, buffer, sizeof buffer - 1);
    if (length < 0)
        return errno;
    /* Opened and empty is neither a success nor a refusal: a cover may look like this. */
    if (length == 0)
        return ENODATA;
    buffer[length] = 0;
    buffer[strcspn(buffer, "\n")] = 0;
    fprintf(stderr, "read: %s\n", buffer);
    return 0;
}

static int do_read(char **a) {
    int fd = open(a[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? errno : show(fd);
}

static int do_stat(char **a) {
    struct stat stat;
    return outcome(lstat(a[0], &stat));
}

/* open-dev PATH: any way of opening will do. */
static int do_open(char **a) {
    int fd = open(a[0], O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && errno != ENOENT)
        fd = open(a[0], O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    return outcome(fd);
}

/* climb PATH: 64 × `../` before it. */
static int do_climb(char **a) {
    char path[PATH_MAX] = "";
    for (int i = 0; i < 64; i++)
        strcat(path, "../");
    strncat(path, a[0][0] == '/' ? a[0] + 1 : a[0], PATH_MAX - 256);
    char *again[] = {path};
    return do_read(again);
}

/* climb-fd PATH: the same by descriptors. */
static int do_climb_fd(char **a) {
    int at = open(".", O_PATH | O_CLOEXEC);
    for (int i = 0; i < 64 && at >= 0; i++)
        at = openat(at, "..", O_PATH | O_CLOEXEC);
    if (at < 0)
        return errno;
    int fd = openat(at, a[0][0] == '/' ? a[0] + 1 : a[0], O_RDONLY | O_CLOEXEC);
    return fd < 0 ? errno : show(fd);
}

static int do_rename(char **a) { return outcome(rename(a[0], a[1])); }
static int do_exchange(char **a) { return outcome(syscall(SYS_renameat2, AT_FDCWD, a[0], AT_FDCWD, a[1], 2)); }
static int do_link(char **a) { return outcome(link(a[0], a[1])); }
static int do_symlink(char **a) { return outcome(symlink(a[0], a[1])); }
static int do_mkdir(char **a) { return outcome(mkdir(a[0], 0755)); }
static int do_unlink(char **a) { return outcome(unlink(a[0])); }
static int do_chmod(char **a) { return outcome(chmod(a[0], number(a[1]))); }
static int do_fchmodat2(char **a) { return outcome(syscall(452, AT_FDCWD, a[0], number(a[1]), 0)); }
static int do_set_attribute(char **a) { return outcome(setxattr(a[0], a[1], a[2], strlen(a[2]), 0)); }

/* set-times PATH SECONDS */
static int do_set_times(char **a) {
    struct timespec times[2] = {{.tv_sec = number(a[1])}, {.tv_sec = number(a[1])}};
    return outcome(utimensat(AT_FDCWD, a[0], times, 0));
}

static int do_chroot(char **a) { return outcome(chroot(a[0])); }

/* link-fd PATH NEW: an open file gets a name through /proc. */
static int do_link_fd(char **a) {
    int fd = open(a[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return outcome(linkat(AT_FDCWD, path, AT_FDCWD, a[1], AT_SYMLINK_FOLLOW));
}

/* create-mode open|creat|mknod|tmpfile NAME MODE: a file born with these permission bits; succeeds when it has them all. */
static int do_create_mode(char **a) {
    mode_t mode = number(a[2]);
    struct stat stat;
    umask(0);
    int fd = -1;
    if (!strcmp(a[0], "open"))
        fd = open(a[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    else if (!strcmp(a[0], "creat"))
        fd = creat(a[1], mode);
    else if (!strcmp(a[0], "mknod"))
        fd = mknod(a[1], S_IFREG | mode, 0);
    else {
        fd = open(".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (fd >= 0 && linkat(AT_FDCWD, path, AT_FDCWD, a[1], AT_SYMLINK_FOLLOW))
            return errno;
    }
    if (fd < 0 || lstat(a[1], &stat))
        return errno;
    return (stat.st_mode & 07777) == mode ? 0 : EPERM;
}

/* tmpfile DIR NEW TEXT: a nameless file gets a name. */
static int do_tmpfile(char **a) {
    int fd = open(a[0], O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    if (write(fd, a[2], strlen(a[2])) < 0)
        return errno;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return outcome(linkat(AT_FDCWD, path, AT_FDCWD, a[1], AT_SYMLINK_FOLLOW));
}

/* mknod PATH c|b MAJOR MINOR, then open it. */
static int do_mknod(char **a) {
    mode_t kind = a[1][0] == 'b' ? S_IFBLK : S_IFCHR;
    if (mknod(a[0], kind | 0666, makedev(number(a[2]), number(a[3]))))
        return errno;
    return outcome(open(a[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

/* file-capability PATH: cap_sys_admin for whoever executes it. */
static int do_file_capability(char **a) {
    uint32_t value[5] = {0x02000001, 1u << 21, 0, 0, 0};
    return outcome(setxattr(a[0], "security.capability", value, sizeof value, 0));
}

/* mount FSTYPE|bind SOURCE TARGET */
static int do_mount(char **a) {
    int bind = !strcmp(a[0], "bind");
    return outcome(mount(a[1], a[2], bind ? NULL : a[0], bind ? MS_BIND : 0, NULL));
}
static int do_umount(char **a) { return outcome(umount2(a[0], MNT_DETACH)); }

/* unshare-mount TARGET: an own mount namespace first, then a tmpfs. */
static int do_unshare_mount(char **a) {
    if (unshare(CLONE_NEWNS))
        return errno;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return outcome(mount("x", a[0], "tmpfs", 0, NULL));
}

/* aio-write PATH BYTES: past every write call. */
static int do_aio_write(char **a) {
    size_t length = number(a[1]);
    char *bytes = calloc(1, length);
    int fd = open(a[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    aio_context_t context = 0;
    if (fd < 0 || syscall(SYS_io_setup, 1, &context))
        return errno;
    struct iocb order = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t)bytes, .aio_nbytes = length};
    struct iocb *orders = &order;
    if (syscall(SYS_io_submit, context, 1, &orders) != 1)
        return errno;
    struct io_event event;
    if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
        return errno;
    return event.res < 0 ? (int)-event.res : 0;
}

/* reserve PATH BYTES: preallocates by an ioctl that every file system with fallocate has. */
static int do_reserve(char **a) {
    struct {
        int16_t type, whence;
        int64_t start, length;
        int32_t sysid;
        uint32_t pid;
        int32_t pad[4];
    } space = {.length = number(a[1])};
    int fd = open(a[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return fd < 0 ? errno : outcome(ioctl(fd, _IOC(_IOC_WRITE, 'X', 40, sizeof space), &space));
}

/* fill PATH CHUNK-BYTES MOST-BYTES: writes until refused; says how far it came. */
static int do_fill(char **a) {
    size_t chunk = number(a[1]), most = number(a[2]), total = 0;
    char *bytes = calloc(1, chunk);
    int fd = open(a[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno;
    signal(SIGXFSZ, SIG_IGN);
    while (total < most) {
        ssize_t written = write(fd, bytes, chunk);
        if (written <= 0) {
            int why = errno;
            fprintf(stderr, "filled: %zu\n", total);
            return why;
        }
        total += written;
    }
    fprintf(stderr, "filled: %zu\n", total);
    return 0;
}

/* fill-files DIR MOST: creates files until refused. */
static int do_fill_files(char **a) {
    char path[PATH_MAX];
    long most = number(a[1]);
    for (long i = 0; i < most; i++) {
        snprintf(path, sizeof path, "%s/f%ld", a[0], i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) {
            int why = errno;
            fprintf(stderr, "created: %ld\n", i);
            return why;
        }
        close(fd);
    }
    fprintf(stderr, "created: %ld\n", most);
    return 0;
}

const struct entry FILES[] = {
    {"write", 2, do_write},
    {"overwrite", 2, do_overwrite},
    {"open-write", 1, do_open_write},
    {"read", 1, do_read},
    {"stat", 1, do_stat},
    {"open", 1, do_open},
    {"climb", 1, do_climb},
    {"climb-fd", 1, do_climb_fd},
    {"rename", 2, do_rename},
    {"exchange", 2, do_exchange},
    {"link", 2, do_link},
    {"link-fd", 2, do_link_fd},
    {"symlink", 2, do_symlink},
    {"mkdir", 1, do_mkdir},
    {"unlink", 1, do_unlink},
    {"chmod", 2, do_chmod},
    {"fchmodat2", 2, do_fchmodat2},
    {"set-attribute", 3, do_set_attribute},
    {"set-times", 2, do_set_times},
    {"create-mode", 3, do_create_mode},
    {"tmpfile", 3, do_tmpfile},
    {"mknod", 4, do_mknod},
    {"file-capability", 1, do_file_capability},
    {"chroot", 1, do_chroot},
    {"mount", 3, do_mount},
    {"umount", 1, do_umount},
    {"unshare-mount", 1, do_unshare_mount},
    {"aio-write", 2, do_aio_write},
    {"reserve", 2, do_reserve},
    {"fill", 3, do_fill},
    {"fill-files", 2, do_fill_files},
    {NULL, 0, NULL},
};
