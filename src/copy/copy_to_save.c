/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_to_save.c -- makes the files of a part those of its ranks in a save of the whole, and votes
 * for these ranks. Whoever began the save counts the votes and publishes, as in any save
 * (commit/commit.h).
 */
#include "base/base.h"
#include "copy/copy.h"

/* The extra files of a rank, of which the part may lack some. */
static enum sidestep_status name_extras(struct checkpoint_copy *c, const struct footer *footer,
                                        const struct hash_table *rows, struct sidestep_error *err)
{
    char written[FILE_NAME_BYTES], final[FILE_NAME_BYTES];

    for (size_t i = 0; i < footer->extra_count; i++) {
        const struct extra_file *file = &footer->extras[i];
        size_t row = hash_table_find(rows, file->name);
        if (row == SIZE_MAX || c->reader->manifest.extras[row].rank != footer->rank)
            continue;
        commit_extra_names_for(c->save, footer->rank, file->number, written, final);
        TRY(arena_copy_text(&c->arena, written, &c->extra_written[row], err));
        TRY(arena_copy_text(&c->arena, final, &c->extra_finals[row], err));
    }
    return SIDESTEP_OK;
}

static enum sidestep_status name_all_extras(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct manifest *manifest = &c->reader->manifest;
    OWNED_HASH_TABLE rows = {0};
    size_t existing;

    for (size_t i = 0; i < manifest->extra_count; i++) {
        TRY(hash_table_insert(&rows, manifest->extras[i].name, i, &existing, err));
        c->extra_finals[i] = NULL;
    }
    for (size_t i = 0; i < c->reader->file_count; i++)
        TRY(name_extras(c, &c->reader->files[i].footer, &rows, err));
    for (size_t i = 0; i < manifest->extra_count; i++)
        if (c->extra_finals[i] == NULL)
            return FAIL(err, SIDESTEP_ECORRUPT, "no footer lists the file '%s'",
                        manifest->extras[i].name);
    return SIDESTEP_OK;
}

enum sidestep_status copy_name_in_save(struct checkpoint_copy *c, struct sidestep_error *err)
{
    char written[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    size_t count = c->reader->file_count, extras = c->reader->manifest.extra_count;

    c->written = arena_new(&c->arena, count, sizeof(*c->written));
    c->finals = arena_new(&c->arena, count, sizeof(*c->finals));
    c->extra_finals = arena_new(&c->arena, extras, sizeof(*c->extra_finals));
    if (c->written == NULL || c->finals == NULL || c->extra_finals == NULL)
        return FAIL_NOMEM(err, (count + extras) * sizeof(*c->finals));
    for (size_t i = 0; i < count; i++) {
        const struct footer *footer = &c->reader->files[i].footer;
        commit_names_for(c->save, footer->rank, footer->shard, written, final);
        TRY(arena_copy_text(&c->arena, written, &c->written[i], err));
        TRY(arena_copy_text(&c->arena, final, &c->finals[i], err));
    }
    return name_all_extras(c, err);
}

enum sidestep_status copy_seal_in_save(struct checkpoint_copy *c, const char *written,
                                       const char *final, struct store_file *file,
                                       struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    enum sidestep_status status = commit_seal_for(c->save, written, final, file, &why);

    if (status != SIDESTEP_EEXISTS)
        return status == SIDESTEP_OK ? SIDESTEP_OK : error_copy(err, &why);
    (void)store_unlink(c->dir, written, NULL); /* the next attempt checks the other one */
    return FAIL(err, SIDESTEP_EABORTED, "another process has put '%s' meanwhile", final);
}

static enum sidestep_status begin(struct checkpoint_copy *c, struct sidestep_error *err)
{
    const struct manifest *manifest = &c->reader->manifest;

    if (!c->reader->has_manifest || manifest->part.rank_count == 0 ||
        manifest->world_size != c->save->world_size ||
        strcmp(manifest->save_id, c->save->save_id) != 0)
        return FAIL(err, SIDESTEP_EMISMATCH, "it is no part of save %s", c->save->save_id);
    c->dir = c->save->dir;
    return SIDESTEP_OK;
}

/* Votes of an earlier attempt may have been enough: then end() removes these. */
static enum sidestep_status vote(struct checkpoint_copy *c, struct sidestep_error *err)
{
    if (!commit_is_pending(c->save))
        return FAIL(err, SIDESTEP_EABORTED, "save %s has ended meanwhile", c->save->save_id);
    for (size_t i = 0; i < c->reader->file_count; i++) {
        const struct footer *footer = &c->reader->files[i].footer;
        if (footer->shard == 0)
            TRY(commit_vote_for(c->save, footer->rank, footer->shard_count, err));
    }
    return SIDESTEP_OK;
}

static void unlink_unless(struct checkpoint_copy *c, const char *name, const char *kept)
{
    if (name != NULL && (kept == NULL || strcmp(name, kept) != 0))
        (void)store_unlink(c->dir, name, NULL);
}

/* The save stays as it is: it belongs to the caller. But if it has been published, its extra files
 * have their own names, nobody counts votes any more, and what this process has put there since,
 * or has not sealed, is left over. */
static void end(struct checkpoint_copy *c, bool stays UNUSED)
{
    const struct manifest *manifest = &c->reader->manifest;
    char name[FILE_NAME_BYTES];

    if (!c->target->is_private || c->dir == NULL || commit_is_pending(c->save))
        return;
    for (size_t i = 0; i < manifest->extra_count; i++) {
        if (manifest->extras[i].is_alias)
            continue;
        unlink_unless(c, c->extra_written[i], NULL);
        unlink_unless(c, c->extra_finals[i], NULL);
    }
    for (size_t i = 0; i < c->reader->file_count; i++) {
        unlink_unless(c, c->written[i], c->finals[i]);
        file_name_format(FILE_NAME_VOTE, c->save->save_id, c->reader->files[i].footer.rank, 0,
                         name);
        unlink_unless(c, name, NULL);
    }
}

const struct copy_target copy_to_save[STORE_LAYOUTS] = {
    [STORE_OF_DIRECTORIES] = {.is_private = true, .begin = begin, .publish = vote, .end = end},
    [STORE_OF_KEYS] = {.begin = begin, .publish = vote, .end = end}};
