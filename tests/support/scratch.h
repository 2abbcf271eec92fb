/* SPDX-License-Identifier: BSD-3-Clause */
/* scratch.h -- a directory for a test's files, which is removed at the end. */
#ifndef SUPPORT_SCRATCH_H
#define SUPPORT_SCRATCH_H

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct scratch {
    char path[64];
};

/* Make the directory under ${parent}. NULL: under build/ if that exists, otherwise under /tmp. */
static inline bool scratch_make(struct scratch *scratch, const char *parent)
{
    if (parent == NULL)
        parent = access("build", W_OK | X_OK) == 0 ? "build" : "/tmp";
    snprintf(scratch->path, sizeof(scratch->path), "%s/sidestep-test-XXXXXX", parent);
    return mkdtemp(scratch->path) != NULL;
}

/* The path of ${name} in the directory; valid until the fourth call after this one. */
static inline const char *scratch_path(const struct scratch *scratch, const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", scratch->path, name);
    return path;
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int flag,
                                     struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline void scratch_remove(struct scratch *scratch)
{
    if (scratch->path[0] != '\0')
        (void)nftw(scratch->path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    scratch->path[0] = '\0';
}

#endif
