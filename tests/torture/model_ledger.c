/* SPDX-License-Identifier: BSD-3-Clause */
/* model_ledger.c -- records what was reported to processes, and checks that a disk or a bucket
 * agrees with it; see model.h. */
#include "model.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/owned.h"
#include "checkpoint/reader.h"
#include "support/store_sim_disk.h"

struct model_save *ledger_new_save(struct ledger *ledger, const char *name, uint32_t ranks)
{
    assert(ledger->save_count < MODEL_MAX_SAVES);
    struct model_save *save = &ledger->saves[ledger->save_count++];

    *save = (struct model_save){.ranks = ranks, .began = ++ledger->tick};
    snprintf(save->name, sizeof(save->name), "%s", name);
    memset(save->id, 0xa0 + (int)ledger->save_count, sizeof(save->id));
    return save;
}

void ledger_tell(struct ledger *ledger, struct model_save *save, enum commit_outcome outcome)
{
    bool *told = outcome == COMMIT_COMMITTED ? &save->committed
                 : outcome == COMMIT_ABORTED ? &save->aborted
                                             : NULL;
    if (told == NULL || *told)
        return;
    *told = true;
    save->uncertain |= outcome == COMMIT_COMMITTED && ledger->is_tainted;
    ledger->tick++;
}

void ledger_end(struct ledger *ledger, struct model_save *save)
{
    if (save->ended == 0)
        save->ended = ++ledger->tick;
}

uint64_t ledger_hash(const struct ledger *ledger)
{
    return XXH3_64bits(ledger, sizeof(*ledger));
}

static bool broken(struct problem *problem, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static bool broken(struct problem *problem, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(problem->text, sizeof(problem->text), fmt, args);
    va_end(args);
    return false;
}

static int find_by_id(const struct ledger *ledger, const char *hex)
{
    uint8_t id[SAVE_ID_BYTES];

    if (hex != NULL && strlen(hex) == SAVE_ID_HEX - 1 && hash_from_hex(hex, sizeof(id), id))
        for (uint32_t i = 0; i < ledger->save_count; i++)
            if (memcmp(ledger->saves[i].id, id, sizeof(id)) == 0)
                return (int)i;
    return MODEL_NOTHING;
}

bool ledger_look(struct store *store, const struct ledger *ledger, const char *name, int *save,
                 struct problem *problem)
{
    OWNED_BY(reader_close) struct reader *reader = NULL;
    struct sidestep_error err = {0};
    char path[64];

    *save = MODEL_NOTHING;
    snprintf(path, sizeof(path), "%s/%s", model.parent, name);
    enum sidestep_status status = reader_open(store, path, READER_PARTS, &reader, &err);
    if (status == SIDESTEP_ENOTFOUND || status == SIDESTEP_EUNCOMMITTED)
        return true;
    if (status != SIDESTEP_OK)
        return broken(problem, "'%s' is torn: %s", name, err.message);
    *save = find_by_id(ledger, reader->metadata.save_id);
    if (*save == MODEL_NOTHING)
        return broken(problem, "'%s' holds an unknown save", name);
    const struct model_save *found = &ledger->saves[*save];
    if (strcmp(found->name, name) != 0)
        return broken(problem, "'%s' holds the save of '%s'", name, found->name);
    return shard_check_all(reader, found, problem);
}

/* Linux reports a failed write-back once per descriptor. So a power loss may lose a name whose sync
 * failed, and later returned OK. */
static bool must_be_there(const struct model_save *save, bool powered)
{
    return save->committed && (powered || !save->uncertain);
}

static bool judge_found(const struct ledger *ledger, int number, bool powered,
                        struct problem *problem)
{
    const struct model_save *found = &ledger->saves[number];

    if (found->aborted)
        return broken(problem, "save %d of '%s' is there, but was reported as aborted", number,
                      found->name);
    if (found->gone)
        return broken(problem, "save %d of '%s' is there, but was deleted", number, found->name);
    if ((!ledger->commits_late || found->reported) &&
        (found->fenced ||
         (found->incarnation != 0 && found->incarnation < ledger->chosen_by && !found->seen)))
        return broken(problem, "save %d of '%s' is there, but a later incarnation chose without it",
                      number, found->name);
    for (uint32_t i = 0; i < ledger->save_count; i++) {
        const struct model_save *later = &ledger->saves[i];
        if (must_be_there(later, powered) && strcmp(later->name, found->name) == 0 &&
            found->ended != 0 && found->ended < later->began)
            return broken(problem,
                          "'%s' holds save %d, but the later save %u was reported as committed",
                          found->name, number, i);
    }
    return true;
}

/* Did ${save} look at what it replaces before ${other} began to publish? */
static bool cannot_know(const struct model_save *save, const struct model_save *other)
{
    return save != other && strcmp(save->name, other->name) == 0 && save->looked != 0 &&
           other->publishing != 0 && save->looked < other->publishing;
}

/* A save replaces only what it has seen. Without locks it may replace another save, which must be
 * detected. */
static bool judge_replaced(const struct ledger *ledger, const struct model_save *found,
                           bool powered, struct problem *problem)
{
    for (uint32_t i = 0; i < ledger->save_count; i++) {
        const struct model_save *other = &ledger->saves[i];
        if (must_be_there(other, powered) && !other->doomed && cannot_know(found, other))
            return broken(problem,
                          "'%s' holds a save that could not see save %u, which was reported "
                          "as committed",
                          found->name, i);
    }
    return true;
}

static bool judge_told(const struct ledger *ledger, struct problem *problem)
{
    for (uint32_t i = 0; i < ledger->save_count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (ledger->saves[i].committed && ledger->saves[k].committed &&
                cannot_know(&ledger->saves[i], &ledger->saves[k]) &&
                cannot_know(&ledger->saves[k], &ledger->saves[i]))
                return broken(problem, "saves %u and %u of '%s' were both committed, %s", k, i,
                              ledger->saves[i].name, "and neither could see the other");
    return true;
}

static bool judge_absent(const struct ledger *ledger, const char *name, bool powered,
                         struct problem *problem)
{
    for (uint32_t i = 0; i < ledger->save_count; i++) {
        const struct model_save *save = &ledger->saves[i];
        if (must_be_there(save, powered) && !save->doomed && strcmp(save->name, name) == 0)
            return broken(problem, "'%s' holds nothing, but save %u was reported as committed",
                          name, i);
    }
    return true;
}

/* ---- files of users: checked on the disk itself, because readers ignore them */

static uint32_t find_path(const struct sim *sim, const char *path)
{
    uint32_t inode = SIM_NONE;

    return sim_walk(sim, SIM_ROOT, path, true, &inode) == 0 ? inode : SIM_NONE;
}

static bool judge_file(const struct sim *sim, const struct model_file *file,
                       struct problem *problem)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/%s", file->dir, file->name);
    uint32_t inode = find_path(sim, path);
    if (inode == SIM_NONE)
        return broken(problem, "the user's file '%s' is gone", path);
    const struct sim_blob *blob = sim->inodes[inode].now;
    size_t size = blob != NULL ? blob->size : 0;
    if (size != strlen(path) || memcmp(blob->bytes, path, size) != 0)
        return broken(problem, "the user's file '%s' has changed", path);
    return true;
}

static bool is_first_of_its_name(const struct ledger *ledger, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (strcmp(ledger->saves[k].name, ledger->saves[i].name) == 0)
            return false;
    return true;
}

bool ledger_judge_store(struct store *store, const struct ledger *ledger, bool powered,
                        bool one_wins, struct problem *problem)
{
    if (!judge_told(ledger, problem))
        return false;
    for (uint32_t i = 0; i < ledger->save_count; i++) {
        const char *name = ledger->saves[i].name;
        int found;
        if (ledger->saves[i].committed && ledger->saves[i].aborted)
            return broken(problem, "save %u of '%s' was reported as committed and as aborted", i,
                          name);
        if (!is_first_of_its_name(ledger, i))
            continue;
        if (!ledger_look(store, ledger, name, &found, problem) ||
            !(found != MODEL_NOTHING ? judge_found(ledger, found, powered, problem)
                                     : judge_absent(ledger, name, powered, problem)))
            return false;
        if (found != MODEL_NOTHING && one_wins &&
            !judge_replaced(ledger, &ledger->saves[found], powered, problem))
            return false;
    }
    return true;
}

bool ledger_judge(struct sim *sim, const struct ledger *ledger, bool powered,
                  struct problem *problem)
{
    if (!ledger_judge_store(sim_store(sim, MODEL_SETUP), ledger, powered,
                            (sim->flags & SIM_NO_LOCKS) == 0, problem))
        return false;
    for (uint32_t i = 0; i < ledger->file_count; i++)
        if ((powered || ledger->files[i].durable) && !judge_file(sim, &ledger->files[i], problem))
            return false;
    return true;
}

/* ---- leftovers */

/* Sweeps do not remove a trash that contains a user's file. */
static bool has_foreign_file(const struct sim *sim, uint32_t dir)
{
    for (size_t i = 0; i < sim->now.count; i++) {
        const struct sim_entry *entry = &sim->now.all[i];
        if (entry->key.dir == dir && file_name_parse(entry->key.name).kind == FILE_NAME_NONE &&
            !files_is_name(entry->key.name) && strcmp(entry->key.name, FILE_NAME_METADATA) != 0)
            return true;
    }
    return false;
}

/* Is the entry below ${dir}? False also if a directory above it has no name any more. */
static bool is_below(const struct sim *sim, const struct sim_entry *entry, uint32_t dir)
{
    while (entry->key.dir != dir) {
        size_t i = 0;
        while (i < sim->now.count && sim->now.all[i].inode != entry->key.dir)
            i++;
        if (i == sim->now.count)
            return false;
        entry = &sim->now.all[i];
    }
    return true;
}

/* Does .metadata in the same directory name the save of this file, or is it missing, so that it
 * might be rebuilt? */
static bool is_of_checkpoint(const struct sim *sim, const struct sim_entry *entry,
                             const struct file_name *parsed)
{
    OWNED_DIR *dir = NULL;
    char path[64];
    uint64_t identity = 0;

    for (size_t i = 0; i < sim->now.count; i++)
        if (sim->now.all[i].inode == entry->key.dir) {
            snprintf(path, sizeof(path), MODEL_PARENT "/%.32s", sim->now.all[i].key.name);
            struct store *store = sim_store((struct sim *)(uintptr_t)sim, MODEL_SETUP);
            return store_dir_open(store, NULL, path, &dir, NULL) == SIDESTEP_OK &&
                   commit_read_identity(dir, &identity, NULL) == SIDESTEP_OK &&
                   (identity == 0 ||
                    (parsed->kind != FILE_NAME_METADATA_TMP &&
                     (parsed->save_id[0] == '\0' || identity == commit_identity(parsed->save_id))));
        }
    return false;
}

/* Check the names of small files in each checkpoint. */
static bool judge_names(struct sim *sim, const struct ledger *ledger, struct problem *problem)
{
    for (uint32_t i = 0; model.has_files && i < ledger->save_count; i++) {
        int found;
        if (is_first_of_its_name(ledger, i) &&
            ledger_look(sim_store(sim, MODEL_SETUP), ledger, ledger->saves[i].name, &found,
                        problem) &&
            found != MODEL_NOTHING &&
            !files_judge_names(sim, ledger, &ledger->saves[found], problem))
            return false;
    }
    return true;
}

bool ledger_judge_leftovers(struct sim *sim, const struct ledger *ledger, struct problem *problem)
{
    uint32_t parent = find_path(sim, MODEL_PARENT);

    if ((sim->flags & SIM_NO_LOCKS) != 0)
        return true; /* without locks, gc cannot determine the owner of a file: it reports and keeps
                        it */
    for (size_t i = 0; i < sim->now.count; i++) {
        const struct sim_entry *entry = &sim->now.all[i];
        struct file_name parsed = file_name_parse(entry->key.name);
        bool stays = parsed.kind == FILE_NAME_NONE || !is_below(sim, entry, parent) ||
                     has_foreign_file(sim, entry->inode);
        if (parsed.kind == FILE_NAME_SHARD || parsed.kind == FILE_NAME_MANIFEST ||
            parsed.kind == FILE_NAME_INDEX || parsed.kind == FILE_NAME_METADATA_TMP ||
            (parsed.kind == FILE_NAME_EXTRA && files_is_kept(&parsed)))
            stays |= is_of_checkpoint(sim, entry, &parsed);
        if (!stays)
            return broken(problem, "'%s' is left behind", entry->key.name);
    }
    return judge_names(sim, ledger, problem);
}
