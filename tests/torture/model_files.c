/* SPDX-License-Identifier: BSD-3-Clause */
/* model_files.c -- the small files of a save: each rank has one of its own, all ranks have one of
 * the same name, of which rank 0's is taken, and rank 0 has an alias; see model.h. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/owned.h"
#include "checkpoint/reader.h"
#include "support/store_sim_disk.h"

#define COMMON "sub/common"
#define ALIAS "here"

static bool is_mutant(enum mutant_kind kind, unsigned nth)
{
    const struct mutant *m = model.mutant;

    return m != NULL && m->kind == kind && m->nth == nth &&
           (m->rank < 0 || (uint32_t)m->rank == model.actor->rank);
}

/* The contents of file ${name} of ${rank}: another length for each save. */
static size_t format(const uint8_t id[SAVE_ID_BYTES], uint32_t rank, const char *name,
                     char text[MODEL_EXTRA_BYTES])
{
    return (size_t)snprintf(text, MODEL_EXTRA_BYTES, "%.*s of rank %u in %s of save %02x",
                            id[0] % 8, "xxxxxxxx", rank, name, id[0]);
}

size_t files_list(const uint8_t id[SAVE_ID_BYTES], uint32_t rank,
                  struct model_extra extras[MODEL_EXTRAS])
{
    size_t count = rank == 0 ? 3 : 2;

    if (!model.has_files)
        return 0;
    memset(extras, 0, MODEL_EXTRAS * sizeof(*extras));
    snprintf(extras[0].name, sizeof(extras[0].name), "state-%u", rank);
    strcpy(extras[1].name, COMMON);
    strcpy(extras[2].name, ALIAS);
    for (size_t i = 0; i < count; i++) {
        struct extra_file *file = &extras[i].file;
        *file = (struct extra_file){.name = extras[i].name,
                                    .rank = rank,
                                    .number = (uint32_t)i,
                                    .first_rank = i == 1,
                                    .is_alias = i == 2};
        if (i == 2)
            continue;
        file->bytes = format(id, rank, extras[i].name, extras[i].text);
        hash_sha256(extras[i].text, file->bytes, file->sha256);
    }
    return count;
}

/* As a process does that sends files which were saved elsewhere. */
static enum sidestep_status send(struct commit *commit, uint32_t number, const void *bytes,
                                 size_t length, struct sidestep_error *err)
{
    char written[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    OWNED_FILE *file = NULL;

    commit_extra_names_for(commit, commit->rank, number, written, final);
    TRY(store_file_create(commit->dir, written, 0, &file, err));
    TRY(store_file_write_at(file, bytes, length, 0, err));
    return commit_seal_for(commit, written, final, TAKE(file), err);
}

enum sidestep_status files_write(struct commit *commit, const uint8_t id[SAVE_ID_BYTES],
                                 bool shortens, struct sidestep_error *err)
{
    struct model_extra extras[MODEL_EXTRAS];
    size_t count = files_list(id, commit->rank, extras);

    for (size_t i = 0; i < count; i++)
        if (!extras[i].file.is_alias)
            TRY((model.is_sent ? send : commit_extra_write)(commit, (uint32_t)i, extras[i].text,
                                                            extras[i].file.bytes - shortens, err));
    return SIDESTEP_OK;
}

size_t files_put(const uint8_t id[SAVE_ID_BYTES], uint32_t rank, struct footer *footer,
                 struct model_extra extras[MODEL_EXTRAS], struct extra_file files[MODEL_EXTRAS])
{
    size_t count = is_mutant(MUTANT_UNLISTED, 1) ? 0 : files_list(id, rank, extras);

    for (size_t i = 0; i < count; i++)
        files[i] = extras[i].file;
    footer->extras = files;
    footer->extra_count = count;
    return count;
}

void files_forget(struct commit_contents *contents)
{
    if (is_mutant(MUTANT_UNLISTED, 2))
        contents->manifest.extra_count = 0;
}

/* ---- checks */

static bool check_one(struct reader *reader, const struct model_extra *extra,
                      struct sidestep_error *err)
{
    const struct extra_file *file = reader_find_extra(reader, extra->name);
    OWNED void *bytes = NULL;

    if (file == NULL || file->is_alias != extra->file.is_alias) {
        (void)FAIL(err, SIDESTEP_ECORRUPT, "file '%s' is not listed", extra->name);
        return false;
    }
    if (file->is_alias)
        return true;
    if (reader_read_extra(reader, file, &bytes, err) != SIDESTEP_OK)
        return false;
    if (file->bytes == extra->file.bytes && memcmp(bytes, extra->text, file->bytes) == 0)
        return true;
    (void)FAIL(err, SIDESTEP_ECORRUPT, "file '%s' is of another save or rank", extra->name);
    return false;
}

bool files_check(struct reader *reader, const struct model_save *save, struct sidestep_error *err)
{
    struct model_extra extras[MODEL_EXTRAS];

    if (reader->manifest.extra_count != (model.has_files ? save->ranks + 2 : 0)) {
        (void)FAIL(err, SIDESTEP_ECORRUPT, "%zu files are listed", reader->manifest.extra_count);
        return false;
    }
    for (uint32_t rank = 0; rank < save->ranks; rank++) {
        size_t count = files_list(save->id, rank, extras);
        for (size_t i = 0; i < count; i++)
            if ((rank == 0 || i == 0) && !check_one(reader, &extras[i], err))
                return false;
    }
    return true;
}

bool files_is_name(const char *name)
{
    return model.has_files && (strncmp(name, "state-", 6) == 0 || strcmp(name, "common") == 0 ||
                               strcmp(name, "sub") == 0 || strcmp(name, ALIAS) == 0);
}

bool files_is_kept(const struct file_name *name)
{
    return name->shard == 0 || (name->shard == 1 && name->rank == 0);
}

static uint32_t find(const struct sim *sim, const char *dir, const char *name)
{
    uint32_t inode = SIM_NONE;
    char path[96];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return sim_walk(sim, SIM_ROOT, path, true, &inode) == 0 ? inode : SIM_NONE;
}

static bool is_of_user(const struct ledger *ledger, const char *dir, const char *name)
{
    for (uint32_t i = 0; i < ledger->file_count; i++)
        if (strcmp(ledger->files[i].dir, dir) == 0 && strcmp(ledger->files[i].name, name) == 0)
            return true;
    return false;
}

/* Has the name ${extra} in ${dir} the bytes of ${save}, unless a user has it? */
static bool check_name(const struct sim *sim, const struct ledger *ledger, const char *dir,
                       const struct model_extra *extra, bool is_taken, struct problem *problem)
{
    uint32_t inode = find(sim, dir, extra->name);
    const char *wrong = NULL;

    if (is_of_user(ledger, dir, extra->name))
        return true;
    if (!is_taken)
        wrong = inode != SIM_NONE ? "is left of another save" : NULL;
    else if (inode == SIM_NONE)
        wrong = (sim->flags & SIM_NO_LINKS) == 0 ? "is missing" : NULL;
    else if (!extra->file.is_alias) {
        const struct sim_blob *blob = sim->inodes[inode].now;
        if (blob == NULL || blob->size != extra->file.bytes ||
            memcmp(blob->bytes, extra->text, blob->size) != 0)
            wrong = "has not the bytes of the checkpoint";
    }
    if (wrong != NULL)
        snprintf(problem->text, sizeof(problem->text), "'%s' in '%s' %s", extra->name, dir, wrong);
    return wrong == NULL;
}

bool files_judge_names(const struct sim *sim, const struct ledger *ledger,
                       const struct model_save *save, struct problem *problem)
{
    struct model_extra extras[MODEL_EXTRAS];
    char dir[64];

    snprintf(dir, sizeof(dir), MODEL_PARENT "/%s", save->name);
    for (uint32_t rank = 0; rank < MODEL_MAX_TASKS; rank++) {
        size_t count = files_list(save->id, rank, extras);
        for (size_t i = 0; i < count; i++)
            if ((rank == 0 || i == 0) &&
                !check_name(sim, ledger, dir, &extras[i], rank < save->ranks, problem))
                return false;
    }
    return true;
}
