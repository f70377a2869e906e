/* Shared by the parts of the attacker. Hostile by purpose: it runs inside the fence and tries what must fail. */
#ifndef ATTACKER_H
#define ATTACKER_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* What an attack came to: 0 it succeeded, > 0 the errno that refused it, < 0 it could not tell. */
typedef int (*attack)(char **argument);

struct entry {
    const char *name;
    int arguments;
    attack run;
};

#define CANNOT_TELL (-1)
#define EXIT_SUCCEEDED 0
#define EXIT_REFUSED 10
#define EXIT_CANNOT_TELL 20

/* Each part lists its attacks; the last entry has no name. */
extern const struct entry FILES[];
extern const struct entry KERNEL[];
extern const struct entry PROCESSES[];
extern const struct entry SOCKETS[];
extern const struct entry HOGS[];
extern const struct entry VOLUMES[];

/* The short name of an errno. */
const char *errno_name(int number);
/* 0 or errno, from the -1 convention. */
int outcome(long result);
/* A number in any base C knows. */
long number(const char *text);
/* Whether a system-call filter is on. What would harm a host is not even tried without one. */
int filtered(void);
/* Runs `run` in a child of its own and returns what came of it; a signal that ends it is "cannot tell". */
int in_child(attack run, char **argument);

#endif
