/*
 * attacker NAME [ARGUMENT]...            one attack: exit 0 it succeeded, 10 refused (errno printed), 20 cannot tell
 * attacker multi , NAME [ARGUMENT]... , …  several, each in a child of its own, one line each
 *
 * Static, so that it needs nothing of the root it runs in.
 */
#include "attacker.h"

static const struct entry *const PARTS[] = {FILES, KERNEL, PROCESSES, SOCKETS, HOGS, VOLUMES};

struct named {
    int number;
    const char *name;
};

static const struct named NAMES[] = {
    {EPERM, "EPERM"},     {ENOENT, "ENOENT"},   {EACCES, "EACCES"},     {EROFS, "EROFS"},
    {ENOSYS, "ENOSYS"},   {EXDEV, "EXDEV"},     {EBUSY, "EBUSY"},       {EINVAL, "EINVAL"},
    {EBADF, "EBADF"},     {EFAULT, "EFAULT"},   {EAGAIN, "EAGAIN"},     {ENOMEM, "ENOMEM"},
    {EEXIST, "EEXIST"},   {ENODEV, "ENODEV"},   {ENXIO, "ENXIO"},       {ENOTDIR, "ENOTDIR"},
    {EISDIR, "EISDIR"},   {EMFILE, "EMFILE"},   {ENOSPC, "ENOSPC"},     {EDQUOT, "EDQUOT"},
    {EFBIG, "EFBIG"},     {ESRCH, "ESRCH"},     {ELOOP, "ELOOP"},       {EOPNOTSUPP, "EOPNOTSUPP"},
    {ENOTTY, "ENOTTY"},   {EIO, "EIO"},         {E2BIG, "E2BIG"},       {ECHILD, "ECHILD"},
    {EAFNOSUPPORT, "EAFNOSUPPORT"},             {ECONNREFUSED, "ECONNREFUSED"},
    {ENETUNREACH, "ENETUNREACH"},               {EPROTONOSUPPORT, "EPROTONOSUPPORT"},
    {ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"},       {ENODATA, "ENODATA"},   {ENOTBLK, "ENOTBLK"},
    {ETXTBSY, "ETXTBSY"}, {ENOTEMPTY, "ENOTEMPTY"}, {ENAMETOOLONG, "ENAMETOOLONG"},
};

const char *errno_name(int number) {
    static char other[32];
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].number == number)
            return NAMES[i].name;
    snprintf(other, sizeof other, "errno-%d", number);
    return other;
}

int outcome(long result) { return result == -1 ? errno : 0; }

long number(const char *text) { return (long)strtoull(text, NULL, 0); }

int filtered(void) {
    char line[256];
    int mode = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "Seccomp: %d", &mode);
    if (status)
        fclose(status);
    return mode == 2;
}

int in_child(attack run, char **argument) {
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        return CANNOT_TELL;
    if (child == 0) {
        int came = run(argument);
        fflush(NULL);
        /* 250 is no errno and stands for "cannot tell". */
        _exit(came < 0 || came > 249 ? 250 : came);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return CANNOT_TELL;
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 250)
        return CANNOT_TELL;
    return WEXITSTATUS(status);
}

static const struct entry *find(const char *name) {
    for (size_t part = 0; part < sizeof PARTS / sizeof *PARTS; part++)
        for (const struct entry *entry = PARTS[part]; entry->name; entry++)
            if (!strcmp(entry->name, name))
                return entry;
    return NULL;
}

static int report(int came) {
    if (came == 0) {
        puts("OK");
        return EXIT_SUCCEEDED;
    }
    puts(came > 0 ? errno_name(came) : "CANNOT-TELL");
    return came > 0 ? EXIT_REFUSED : EXIT_CANNOT_TELL;
}

static int multi(int count, char **words) {
    int at = 0, all = EXIT_REFUSED;
    while (at < count) {
        at++; /* the comma */
        int length = 0;
        while (at + length < count && strcmp(words[at + length], ","))
            length++;
        const struct entry *entry = length ? find(words[at]) : NULL;
        if (!entry || length - 1 != entry->arguments) {
            fprintf(stderr, "attacker: %s: no such attack, or wrong number of arguments\n", length ? words[at] : "");
            return EXIT_CANNOT_TELL;
        }
        if (report(in_child(entry->run, words + at + 1)) != EXIT_REFUSED)
            all = EXIT_SUCCEEDED;
        fflush(stdout);
        at += length;
    }
    return all;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return EXIT_CANNOT_TELL;
    if (!strcmp(argv[1], "multi"))
        return multi(argc - 2, argv + 2);
    const struct entry *entry = find(argv[1]);
    if (!entry || argc - 2 != entry->arguments) {
        fprintf(stderr, "attacker: %s: no such attack, or wrong number of arguments\n", argv[1]);
        return EXIT_CANNOT_TELL;
    }
    return report(entry->run(argv + 2));
}
