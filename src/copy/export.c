/* SPDX-License-Identifier: BSD-3-Clause */
/* export.c -- begins an export; to a bucket, by commit/object_export.h; see export.h. */
#include "copy/export.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* ---- in a bucket */

static enum sidestep_status begin(struct export *e, const char *url,
                                  const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err)
{
    e->objects = (struct object_export){.commit = &e->commit,
                                        .is_file = e->is_file,
                                        .replace = e->replace,
                                        .is_known = e->is_known};
    TRY(object_export_begin(&e->objects, url, id, err));
    snprintf(e->infix, sizeof(e->infix), ".%s", e->commit.save_id);
    return SIDESTEP_OK;
}

static bool is_head(const struct export *e, const char *name)
{
    return strcmp(name, e->head) == 0;
}

static enum sidestep_status create_file(struct export *e, const char *name, uint32_t flags UNUSED,
                                        struct store_file **file, struct sidestep_error *err)
{
    return object_export_create(&e->objects, name, is_head(e, name), file, err);
}

static enum sidestep_status seal_file(struct export *e, const char *name, struct store_file *file,
                                      struct sidestep_error *err)
{
    return object_export_seal(&e->objects, is_head(e, name), file, err);
}

static enum sidestep_status publish(struct export *e, struct sidestep_error *err)
{
    return object_export_publish(&e->objects, err);
}

static void end(struct export *e)
{
    object_export_end(&e->objects);
}

static const struct export_ops export_to_objects = {.begin = begin,
                                                    .create_file = create_file,
                                                    .seal_file = seal_file,
                                                    .publish = publish,
                                                    .end = end};

/* ---- anywhere */

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
                                   const char *replaces, bool (*is_known)(const char *name),
                                   struct sidestep_error *err)
{
    *e = (struct export){
        .ops = &export_to_files, .replace = replace, .replaces = replaces, .is_known = is_known};
    e->commit = (struct commit){.store = store,
                                .clock = clock,
                                .world_size = 1,
                                .request.step = -1,
                                .request.resumes = true};
    return e->ops->begin(e, path, id, err);
}
