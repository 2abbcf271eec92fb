/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * habits.h -- the habits of storage that is not a local disk, as switches of habit_mount.
 *
 * A mount shows a directory of this machine as one host would see it on shared storage. Two mounts
 * of one directory are two hosts.
 */
#ifndef HABITS_HABITS_H
#define HABITS_HABITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct habits {
    double remember;          /* seconds that a host keeps names and attributes; 0: never */
    bool remember_stubbornly; /* its own changes in a directory end that for one name only */
    bool no_flags;            /* no RENAME_NOREPLACE, no RENAME_EXCHANGE: EINVAL */
    bool no_rename;           /* ENOSYS */
    bool no_dir_rename;       /* of a directory that is not empty: EMFILE */
    bool no_link;             /* ENOSYS */
    bool no_locks;            /* ENOSYS */
    bool local_locks;         /* other hosts do not see them */
    bool no_dir_sync;         /* EINVAL */
    bool append_only;         /* write at the end, truncate to 0: all else is EPERM */
    bool silly;    /* an open file that is removed is renamed to .nfs* until it is closed */
    bool stale;    /* handles of what another host removed are ESTALE */
    unsigned lost; /* the answer to this change of names is lost, and a repeat fails */
    unsigned
        close_error; /* this close of a written file reports EDQUOT; what was not synced is gone */
};

/* Parse one word, "append-only" or "lost=3". false: there is no such habit. */
bool habits_parse(struct habits *habits, const char *word);
void habits_list(void);

/* ---- memory.c: what a host remembers */

/* What it knows of a name: the inode, or that it is not there. */
struct remembered {
    struct remembered *next;
    uint64_t parent;
    uint64_t inode; /* 0: not there */
    double until;
    char name[];
};

double memory_now(void);
/* NULL: nothing, or too long ago. */
const struct remembered *memory_find(uint64_t parent, const char *name);
void memory_keep(uint64_t parent, const char *name, uint64_t inode, double seconds);
/* This host changed ${name} in ${parent}. only: forget that name; else all in the directory. */
void memory_changed(uint64_t parent, const char *name, bool only);

#endif
