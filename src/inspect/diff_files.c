/* SPDX-License-Identifier: BSD-3-Clause */
/* diff_files.c -- compares the small files of two checkpoints by their hashes, without reading
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "inspect/diff.h"

static int compare_names(const void *x, const void *y)
{
    const struct extra_file *const *a = x, *const *b = y;

    return strcmp((*a)->name, (*b)->name);
}

static enum sidestep_status sort_files(const struct manifest *manifest,
                                       const struct extra_file ***sorted,
                                       struct sidestep_error *err)
{
    *sorted = memory_new(manifest->extra_count, sizeof(**sorted));
    if (*sorted == NULL)
        return FAIL_NOMEM(err, manifest->extra_count * sizeof(**sorted));
    for (size_t i = 0; i < manifest->extra_count; i++)
        (*sorted)[i] = &manifest->extras[i];
    if (manifest->extra_count != 0)
        qsort(*sorted, manifest->extra_count, sizeof(**sorted), compare_names);
    return SIDESTEP_OK;
}

static bool is_equal(const struct extra_file *a, const struct extra_file *b)
{
    return a != NULL && b != NULL && a->is_alias == b->is_alias && a->bytes == b->bytes &&
           memcmp(a->sha256, b->sha256, sizeof(a->sha256)) == 0;
}

enum sidestep_status diff_add_files(struct diff *diff, struct sidestep_error *err)
{
    const struct manifest *first = &diff->readers[0]->manifest;
    const struct manifest *second = &diff->readers[1]->manifest;
    OWNED const struct extra_file **a = NULL, **b = NULL;

    if (!diff->readers[0]->has_manifest || !diff->readers[1]->has_manifest)
        return SIDESTEP_OK;
    TRY(sort_files(first, &a, err));
    TRY(sort_files(second, &b, err));
    for (size_t i = 0, k = 0; i < first->extra_count || k < second->extra_count;) {
        int order = i == first->extra_count    ? 1
                    : k == second->extra_count ? -1
                                               : strcmp(a[i]->name, b[k]->name);
        struct diff_pair *pair = &diff->pairs[diff->count++];
        *pair = (struct diff_pair){.by_hash = true};
        if (order <= 0)
            pair->files[0] = a[i++];
        if (order >= 0)
            pair->files[1] = b[k++];
        pair->kind = is_equal(pair->files[0], pair->files[1]) ? DIFF_SAME : DIFF_FILE;
    }
    return SIDESTEP_OK;
}

static const char *describe_one(struct arena *arena, const struct extra_file *file)
{
    return file->is_alias
               ? "a link to the checkpoint"
               : arena_printf(arena, "a file of %llu bytes", (unsigned long long)file->bytes);
}

const char *diff_describe_files(struct arena *arena, const struct diff_pair *pair)
{
    const struct extra_file *a = pair->files[0], *b = pair->files[1];
    const char *first = describe_one(arena, a != NULL ? a : b);

    if (first == NULL)
        return NULL;
    if (a == NULL || b == NULL)
        return arena_printf(arena, "%s, in the %s only", first, a != NULL ? "first" : "second");
    if (a->is_alias == b->is_alias && a->bytes == b->bytes)
        return arena_printf(arena, "%s: the bytes differ", first);
    const char *second = describe_one(arena, b);
    return second != NULL ? arena_printf(arena, "%s, and %s", first, second) : NULL;
}
