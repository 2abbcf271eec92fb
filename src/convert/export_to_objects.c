/* SPDX-License-Identifier: BSD-3-Clause */
/* export_to_objects.c -- publishes files in a bucket; see commit/object_export.h. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "convert/export.h"

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

const struct export_ops export_to_objects = {.begin = begin,
                                             .create_file = create_file,
                                             .seal_file = seal_file,
                                             .publish = publish,
                                             .end = end};
