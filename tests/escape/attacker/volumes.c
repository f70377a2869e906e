/* Attacks by requests to a file system: subvolumes and snapshots of btrfs, and requests that must keep working. */
#include "attacker.h"
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

static int here(void) { return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

/* volume REQUEST NAME: create, snapshot (of the working directory) or destroy NAME here; -v2 by the newer requests; flags sets
 * those of the working directory. Any other word sends a request that no file system has. */
static int do_volume(char **a) {
    int fd = here();
    if (fd < 0)
        return errno;
    struct btrfs_ioctl_vol_args one = {.fd = fd};
    struct btrfs_ioctl_vol_args_v2 two = {.fd = fd};
    strncpy(one.name, a[1], sizeof one.name - 1);
    strncpy(two.name, a[1], sizeof two.name - 1);
    if (!strcmp(a[0], "create"))
        return outcome(ioctl(fd, BTRFS_IOC_SUBVOL_CREATE, &one));
    if (!strcmp(a[0], "create-v2"))
        return outcome(ioctl(fd, BTRFS_IOC_SUBVOL_CREATE_V2, &two));
    if (!strcmp(a[0], "snapshot"))
        return outcome(ioctl(fd, BTRFS_IOC_SNAP_CREATE, &one));
    if (!strcmp(a[0], "snapshot-v2"))
        return outcome(ioctl(fd, BTRFS_IOC_SNAP_CREATE_V2, &two));
    if (!strcmp(a[0], "destroy"))
        return outcome(ioctl(fd, BTRFS_IOC_SNAP_DESTROY, &one));
    if (!strcmp(a[0], "destroy-v2"))
        return outcome(ioctl(fd, BTRFS_IOC_SNAP_DESTROY_V2, &two));
    if (!strcmp(a[0], "flags")) {
        uint64_t flags = BTRFS_SUBVOL_RDONLY;
        return outcome(ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags));
    }
    /* Of the same family, with a number that is not assigned. */
    return outcome(ioctl(fd, _IO(BTRFS_IOCTL_MAGIC, 0xff)));
}

/* waiting PATH: how many bytes can be read, which every regular file answers. */
static int do_waiting(char **a) {
    int count = -1, fd = open(a[0], O_RDONLY | O_CLOEXEC);
    return fd < 0 ? errno : outcome(ioctl(fd, FIONREAD, &count));
}

/* share FROM TO: a copy that has its extents in common. */
static int do_share(char **a) {
    int from = open(a[0], O_RDONLY | O_CLOEXEC), to = open(a[1], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return from < 0 || to < 0 ? errno : outcome(ioctl(to, FICLONE, from));
}

/* inode-flags PATH: reads them. */
static int do_inode_flags(char **a) {
    long flags = 0;
    int fd = open(a[0], O_RDONLY | O_CLOEXEC);
    return fd < 0 ? errno : outcome(ioctl(fd, FS_IOC_GETFLAGS, &flags));
}

/* volume-info: what an ordinary user may ask of the subvolume he stands in. */
static int do_volume_info(char **a) {
    (void)a;
    struct btrfs_ioctl_get_subvol_info_args info = {0};
    int fd = here();
    return fd < 0 ? errno : outcome(ioctl(fd, BTRFS_IOC_GET_SUBVOL_INFO, &info));
}

const struct entry VOLUMES[] = {
    {"volume", 2, do_volume},
    {"waiting", 1, do_waiting},
    {"share", 2, do_share},
    {"inode-flags", 1, do_inode_flags},
    {"volume-info", 0, do_volume_info},
    {NULL, 0, NULL},
};
