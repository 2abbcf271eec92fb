/* SPDX-License-Identifier: BSD-3-Clause */
/* export.c -- begins an export to a file system or to a bucket; see export.h. */
#include "convert/export.h"

#include "base/base.h"

static const struct export_ops *const targets[STORE_LAYOUTS] = {
    [STORE_OF_DIRECTORIES] = &export_to_files, [STORE_OF_KEYS] = &export_to_objects};

enum sidestep_status export_begin(struct export *e, struct store *store, struct clock *clock,
                                  const char *path, bool is_file, bool replace,
                                  bool (*is_known)(const char *name), struct sidestep_error *err)
{
    uint8_t id[SAVE_ID_BYTES];

    *e = (struct export){.ops = targets[store->ops->layout],
                         .is_file = is_file,
                         .replace = replace,
                         .is_known = is_known};
    e->commit =
        (struct commit){.store = store, .clock = clock, .world_size = 1, .request.step = -1};
    TRY(random_bytes(id, sizeof(id), err));
    return e->ops->begin(e, path, id, err);
}

enum sidestep_status export_resume(struct export *e, struct store *store, struct clock *clock,
                                   const char *path, const uint8_t id[SAVE_ID_BYTES], bool replace,
                                   bool (*is_known)(const char *name), struct sidestep_error *err)
{
    *e = (struct export){.ops = &export_to_files, .replace = replace, .is_known = is_known};
    e->commit = (struct commit){.store = store,
                                .clock = clock,
                                .world_size = 1,
                                .request.step = -1,
                                .request.resumes = true};
    return e->ops->begin(e, path, id, err);
}
