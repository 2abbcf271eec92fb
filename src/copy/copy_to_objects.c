/* SPDX-License-Identifier: BSD-3-Clause */
/* copy_to_objects.c -- writes a copy on an object store; see commit/object_copy.h. */
#include "base/base.h"
#include "copy/copy.h"

static enum sidestep_status begin(struct checkpoint_copy *c, struct sidestep_error *err)
{
    c->copied = (struct object_copied){.names = c->names,
                                       .sizes = c->sizes,
                                       .count = c->name_count,
                                       .metadata = &c->metadata,
                                       .manifest = &c->manifest,
                                       .index = &c->index,
                                       .replaces = c->replaces,
                                       .replace = (c->options.flags & SIDESTEP_COPY_REPLACE) != 0};
    c->commit = (struct commit){.store = c->to,
                                .clock = c->clock,
                                .world_size = 1,
                                .request.step = c->reader->manifest.step};
    TRY(object_copy_begin(&c->commit, c->destination, c->id, &c->copied, err));
    c->dir = c->commit.dir;
    return SIDESTEP_OK;
}

static enum sidestep_status publish(struct checkpoint_copy *c, struct sidestep_error *err)
{
    return object_copy_publish(&c->commit, &c->copied, err);
}

static void end(struct checkpoint_copy *c, bool stays UNUSED)
{
    if (c->commit.store != NULL) /* else it never began */
        object_copy_end(&c->commit);
}

const struct copy_target copy_to_objects = {.begin = begin, .publish = publish, .end = end};
