/* SPDX-License-Identifier: BSD-3-Clause */
/* read_file.c -- reads one file of a checkpoint as it is. */
#include "base/base.h"
#include "commit/commit.h"
#include "object/object.h"
#include "sidestep/sidestep_tools.h"
#include "store/store.h"

enum sidestep_status sidestep_read_file(const char *path, const char *name, uint64_t most,
                                        void **bytes, size_t *length, struct sidestep_error *err)
{
    OWNED_STORE *store = NULL;
    OWNED_DIR *dir = NULL;
    OWNED_BUFFER text = {0};

    if (path == NULL || name == NULL || bytes == NULL || length == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "path, name, bytes or length is NULL");
    TRY(object_path_open(path, &store, err));
    TRY(named_dir_open(store, path, &dir, err));
    enum sidestep_status status = small_file_read(dir, name, 0, most, &text, err);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "read '%s'", path);
        return status;
    }
    *length = text.length;
    *bytes = TAKE(text.bytes);
    return SIDESTEP_OK;
}
