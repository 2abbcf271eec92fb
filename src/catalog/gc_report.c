/* SPDX-License-Identifier: BSD-3-Clause */
/* gc_report.c -- collects the names that a sweep reports; see gc_report.h. */
#include "catalog/gc_report.h"

#include <stdlib.h>
#include <string.h>

static void add_text(struct gc_report *c, const char ***texts, size_t *count, size_t *capacity,
                     const char *text)
{
    const char **grown = memory_grow(*texts, capacity, *count, sizeof(*grown));

    if (grown != NULL)
        *texts = grown;
    if (grown == NULL || text == NULL)
        c->failed = true;
    else
        grown[(*count)++] = text;
}

struct gc_report *gc_report_new(const char *parent)
{
    struct gc_report *c = memory_new(1, sizeof(*c));
    size_t length = strlen(parent);

    if (c == NULL)
        return NULL;
    while (length > 1 && parent[length - 1] == '/')
        length--;
    c->parent = strcmp(parent, ".") == 0 ? ""
                                         : arena_printf(&c->arena, "%.*s%s", (int)length, parent,
                                                        parent[length - 1] == '/' ? "" : "/");
    if (c->parent != NULL)
        return c;
    gc_report_free(c);
    return NULL;
}

void gc_report_free(struct gc_report *c)
{
    if (c == NULL)
        return;
    arena_release(&c->arena);
    free(c->removed);
    free(c->kept);
    free(c);
}

void gc_report_add_removed(void *context, const char *name, uint64_t bytes)
{
    struct gc_report *c = context;

    c->bytes += bytes;
    add_text(c, &c->removed, &c->removed_count, &c->removed_capacity,
             arena_printf(&c->arena, "%s%s", c->parent, name));
}

void gc_report_add_kept(void *context, const char *name, const char *reason)
{
    struct gc_report *c = context;

    add_text(c, &c->kept, &c->kept_count, &c->kept_capacity,
             arena_printf(&c->arena, "%s%s: %s", c->parent, name, reason));
}

enum sidestep_status gc_report_finish(struct gc_report *c, struct sidestep_gc_report *report,
                                      struct sidestep_error *err)
{
    if (c->failed) {
        gc_report_free(c);
        return FAIL_NOMEM(err, sizeof(*report));
    }
    *report = (struct sidestep_gc_report){.removed_count = c->removed_count,
                                          .removed = c->removed,
                                          .kept_count = c->kept_count,
                                          .kept = c->kept,
                                          .bytes = c->bytes,
                                          .owner = c};
    return SIDESTEP_OK;
}

void sidestep_gc_report_release(struct sidestep_gc_report *report)
{
    gc_report_free(report->owner);
    *report = (struct sidestep_gc_report){0};
}
