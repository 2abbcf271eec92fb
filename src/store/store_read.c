/* SPDX-License-Identifier: BSD-3-Clause */
/* store_read.c -- see store.h: opens files for readers, who may follow symbolic links. */
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* EUNSAFE says that a file asks for what data never needs: it is damage.  A name that leads to
 * something else than a file says nothing of that kind.  EXDEV: the name itself is wrong. */
static enum sidestep_status explain(enum sidestep_status status, struct sidestep_error *err)
{
    if ((status != SIDESTEP_EUNSAFE || err->sys_errno == EXDEV) && err->sys_errno != ENAMETOOLONG)
        return status;
    err->status = SIDESTEP_EIO;
    return SIDESTEP_EIO;
}

enum sidestep_status store_file_open_to_read(struct store_dir *at, const char *name, uint32_t flags,
                                             struct store_file **out, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};

    assert((flags & STORE_WRITE) == 0);
    enum sidestep_status status =
        explain(store_file_open(at, name, flags | STORE_FOLLOW, out, &why), &why);
    return status == SIDESTEP_OK ? status : error_copy(err, &why);
}

enum sidestep_status store_stat_to_read(struct store_dir *at, const char *name,
                                        struct store_stat *out, struct sidestep_error *err)
{
    OWNED_FILE *file = NULL;
    bool is_path = strchr(name, '/') != NULL; /* store_stat() takes one component */

    if (!is_path)
        TRY(store_stat(at, name, out, err));
    if (!is_path && out->kind != STORE_LINK)
        return SIDESTEP_OK;
    TRY(store_file_open_to_read(at, name, 0, &file, err));
    return store_file_stat(file, out, err);
}
