/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_program.c -- the processes of the model. A rank does the same as in save/save.c,
 * save_runner.c and save_handle.c, without threads; ranks agree through a variable. See model.h.
 */
#include "model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/owned.h"
#include "root/lease.h"
#include "checkpoint/reader.h"
#include "commit/sweep.h"
#include "root/root.h"
#include "selection/choose.h"
#include "selection/prune.h"

/* ---- one rank of a save */

struct rank {
    struct saving *saving;
    struct commit commit;
    struct sidestep_error why;
};

static bool is_dead(void)
{
    return model.actor->is_dead;
}

static void tell(struct rank *r, enum commit_outcome outcome)
{
    if (is_dead())
        return;
    r->saving->save->reported |= outcome == COMMIT_COMMITTED;
    ledger_tell(r->saving->ledger, r->saving->save, outcome);
}

/* A guard that pauses the process before the commit. */
static enum sidestep_status freeze(void *context, const struct commit *commit,
                                   struct sidestep_error *err)
{
    const struct saving *saving = context;

    (void)err;
    commit->clock->sleep_ms(commit->clock, saving->freezes_ms);
    return SIDESTEP_OK;
}

/* What a mirror does with a directory that it replaces (mirror/mirror_parts.c). */
static enum sidestep_status remove_replaced(void *context, const struct commit *commit,
                                            struct sidestep_error *err)
{
    const struct saving *saving = context;
    struct model_save *old = saving->replaces;

    if (old->gone || program_delete(saving->ledger, commit->store, old)) {
        model_enter(PHASE_PUBLISH);
        return SIDESTEP_OK;
    }
    model_enter(PHASE_PUBLISH);
    return FAIL(err, SIDESTEP_EIO, "what it replaces cannot be deleted");
}

/* With MUTANT_EARLY_REMOVE, it is removed at the beginning, as if it had to go anyway. */
static void remove_early(const struct saving *saving, struct store *store)
{
    struct model_save *old = saving->replaces;

    if (old == NULL || model.mutant == NULL || model.mutant->kind != MUTANT_EARLY_REMOVE)
        return;
    bool was_doomed = old->doomed;
    (void)program_delete(saving->ledger, store, old);
    old->doomed = was_doomed;
    old->gone = false;
    model_enter(PHASE_BEGIN);
}

static enum sidestep_status holds(void *context, const struct commit *commit,
                                  struct sidestep_error *err)
{
    (void)context, (void)commit, (void)err;
    return SIDESTEP_OK;
}

static enum sidestep_status guard_check(void *context, const struct commit *commit,
                                        struct sidestep_error *err)
{
    (void)commit;
    return lease_check(context, err);
}

/* All ranks of the model are one group. Other groups do not concern it. */
static void make_part(struct commit *commit)
{
    static const uint32_t ranks[] = {0, 1, 2};

    assert(commit->world_size <= ARRAY_LENGTH(ranks));
    commit->group = (struct commit_group){.ranks = ranks, .count = commit->world_size, .groups = 2};
    commit->request.step = 1;
    commit->request.incarnation = 1;
    memcpy(commit->request.run_id, "00112233445566778899aabbccddeeff", SAVE_ID_HEX);
}

static void init(struct rank *r, uint32_t rank, struct store *store, struct clock *clock)
{
    const struct saving *s = r->saving;

    r->commit = (struct commit){
        .store = store,
        .clock = clock,
        .rank = rank,
        .world_size = s->save->ranks,
        .request.timeout_ns = MODEL_TIMEOUT_MS * UINT64_C(1000000),
        .request.step = s->has_series ? 1 : -1,
        .request.no_replace = s->no_replace || (model.is_sent && s->replaces == NULL),
        .request.resumes = model.is_sent,
        .request.incarnation = s->incarnation,
        .layout_digest = MODEL_LAYOUT_DIGEST,
    };
    if (model.has_parts)
        make_part(&r->commit);
    if (s->has_series)
        memcpy(r->commit.request.run_id, s->run_id, sizeof(r->commit.request.run_id));
    if (s->sharing != NULL)
        r->commit.request.shared = &s->sharing->shared;
    if (rank == 0 && (model.mutant == NULL || model.mutant->kind != MUTANT_NO_GUARD))
        r->commit.request.guard = s->guard;
}

/* Agree on the save: rank 0 sets its variables, and the other ranks read them. */
static enum sidestep_status agree(struct rank *r)
{
    struct saving *s = r->saving;
    struct commit *commit = &r->commit;
    uint64_t patience = MODEL_TIMEOUT_MS;

    if (commit->rank == 0) {
        model_enter(PHASE_BEGIN);
        enum sidestep_status status = commit_begin(commit, s->save->id, &r->why);
        if (status == SIDESTEP_OK)
            remove_early(s, commit->store);
        s->in_place = commit->files.in_place;
        s->previous = commit->previous;
        s->agreed = status == SIDESTEP_OK;
        if (s->agreed)
            s->save->looked = ++s->ledger->order;
        s->given_up = status != SIDESTEP_OK;
        return status;
    }
    while (!s->agreed) {
        if (s->given_up || is_dead() || patience-- == 0)
            return FAIL(&r->why, SIDESTEP_EPEER, "rank 0 has failed");
        commit->clock->sleep_ms(commit->clock, 1);
    }
    commit_set_save_id(commit, s->save->id);
    commit->files.in_place = s->in_place;
    commit->previous = s->previous;
    return SIDESTEP_OK;
}

/* Write a valid shard elsewhere; only a coordinator that does not check shards would accept it. */
static void write_decoy(struct rank *r)
{
    OWNED_DIR *decoys = NULL;
    OWNED_FILE *file = NULL;
    struct store *store = r->commit.store;
    char name[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_SHARD, r->commit.files.in_place ? r->commit.save_id : "",
                     r->commit.rank, 0, name);
    if (store_dir_open(store, NULL, "/decoys", &decoys, NULL) == SIDESTEP_OK &&
        store_file_create(decoys, name, 0, &file, NULL) == SIDESTEP_OK)
        (void)shard_write(&r->commit, file, r->saving->save->id, 0, 1, NULL);
}

/* Write a shard of this save with other contents than agreed. With MUTANT_ANY_LAYOUT, rank 0 cannot
 * detect it. */
static enum sidestep_status write_stray(struct commit *commit, struct store_file *file,
                                        const uint8_t id[SAVE_ID_BYTES], struct sidestep_error *err)
{
    bool is_hidden = model.mutant != NULL && model.mutant->kind == MUTANT_ANY_LAYOUT;

    commit->layout_digest ^= !is_hidden;
    enum sidestep_status status = shard_write_stray(commit, file, id, err);
    commit->layout_digest ^= !is_hidden;
    return status;
}

/* Make the second shard: link that of the last checkpoint, or write a new one. */
static enum sidestep_status write_kept(struct rank *r)
{
    struct commit *commit = &r->commit;
    struct sharing *sharing = r->saving->sharing;
    struct model_save *save = r->saving->save;
    struct sidestep_error *err = &r->why;
    OWNED_FILE *file = NULL;
    char dir[64];
    const uint8_t *kept_id = save->id;

    if (sharing->last != NULL) {
        snprintf(dir, sizeof(dir), MODEL_PARENT "/%s", sharing->last->name);
        if (commit_shard_link(commit, 1, dir, "__0_1.distcp", &file, NULL) == SIDESTEP_OK)
            kept_id = sharing->last->kept_id;
    }
    if (file == NULL) {
        TRY(commit_shard_remove(commit, 1, err));
        TRY(commit_shard_create(commit, 1, 0, &file, err));
        TRY(shard_write(commit, file, save->id, 1, 2, err));
    }
    save->has_kept = true;
    memcpy(save->kept_id, kept_id, sizeof(save->kept_id));
    return commit_shard_seal(commit, 1, TAKE(file), err);
}

static enum sidestep_status write_files(struct rank *r)
{
    bool shortens = r->saving->shortens != 0 && r->saving->shortens == r->commit.rank;

    return files_write(&r->commit, r->saving->save->id, shortens, &r->why);
}

/* With MUTANT_TAKEN_BACK, a vote that reports an error counts as not cast. */
static enum sidestep_status vote(struct rank *r)
{
    if (model.is_sent)
        return commit_vote_for(&r->commit, r->commit.rank, 1, &r->why);
    TRY(commit_vote_yes(&r->commit, &r->why));
    if (model.mutant == NULL || model.mutant->kind != MUTANT_TAKEN_BACK ||
        !model.actor->vote_failed)
        return SIDESTEP_OK;
    return FAIL(&r->why, SIDESTEP_EIO, "the vote reported an error");
}

static enum sidestep_status write_and_vote(struct rank *r)
{
    static const uint8_t other_id[SAVE_ID_BYTES] = {0xee};
    struct commit *commit = &r->commit;
    struct sidestep_error *err = &r->why;
    bool cheats = r->saving->cheats == (int32_t)commit->rank;
    bool strays = r->saving->strays == (int32_t)commit->rank;
    bool is_late = model.mutant != NULL && model.mutant->kind == MUTANT_LATE_FILES;
    char written[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    OWNED_FILE *file = NULL;

    TRY(commit_join(commit, err));
    model_enter(PHASE_SHARD);
    if (!is_late)
        TRY(write_files(r));
    TRY(commit_shard_create(commit, 0, 0, &file, err));
    if (cheats)
        write_decoy(r);
    TRY(strays ? write_stray(commit, file, r->saving->save->id, err)
               : shard_write(commit, file, cheats ? other_id : r->saving->save->id, 0,
                             r->saving->sharing != NULL ? 2 : 1, err));
    if (r->saving->sharing != NULL)
        TRY(write_kept(r));
    if (r->saving->votes_no == (int32_t)commit->rank)
        return FAIL(err, SIDESTEP_EIO, "this rank votes no");
    TRY(commit_check_aborted(commit, err));
    bool is_early = model.mutant != NULL && model.mutant->kind == MUTANT_EARLY_VOTE;
    if (is_early)
        TRY(commit_vote_yes(commit, err));
    commit_names_for(commit, commit->rank, 0, written, final);
    TRY(model.is_sent ? commit_seal_for(commit, written, final, TAKE(file), err)
                      : commit_shard_seal(commit, 0, TAKE(file), err));
    model_enter(PHASE_VOTE);
    if (!is_early)
        TRY(vote(r));
    return is_late ? write_files(r) : SIDESTEP_OK;
}

static enum commit_outcome give_up(struct rank *r)
{
    model_enter(PHASE_ABORT);
    if (r->commit.rank == 0) {
        commit_abort(&r->commit, &r->why);
    } else {
        commit_vote_no(&r->commit, &r->why);
        if (!model.is_sent) /* its vote may be there, and a later attempt goes on */
            commit_retract(&r->commit);
    }
    bool is_unsure = model.is_sent && r->commit.rank != 0; /* it reports nothing of the save */
    tell(r, is_unsure ? COMMIT_UNKNOWN : COMMIT_ABORTED);
    return is_unsure ? COMMIT_UNKNOWN : COMMIT_ABORTED;
}

/* With MUTANT_ANY_PREVIOUS, pretend that what is there now was there at the start. */
static void forget_previous(struct commit *commit)
{
    OWNED_DIR *dir = NULL;

    if (model.mutant != NULL && model.mutant->kind == MUTANT_ANY_PREVIOUS &&
        store_dir_open(commit->store, NULL, commit->path, &dir, NULL) == SIDESTEP_OK)
        (void)commit_read_identity(dir, &commit->previous, NULL);
}

static enum commit_outcome decide(struct rank *r)
{
    struct commit_contents count = {0};
    enum commit_outcome outcome = COMMIT_ABORTED;

    model_enter(PHASE_COLLECT);
    enum sidestep_status status = commit_collect_votes(&r->commit, &count, &r->why);
    model_enter(PHASE_PUBLISH);
    if (!is_dead())
        r->saving->save->publishing = ++r->saving->ledger->order;
    forget_previous(&r->commit);
    files_forget(&count);
    if (status == SIDESTEP_OK)
        status = commit_publish(&r->commit, &count, &outcome, &r->why);
    struct sharing *sharing = r->saving->sharing;
    if (sharing != NULL && outcome == COMMIT_COMMITTED) {
        commit_shared_release(&sharing->shared);
        sharing->shared = count.shared;
        count.shared = (struct commit_shared){0};
        sharing->last = r->saving->save;
    }
    commit_contents_release(&count);
    tell(r, outcome == COMMIT_COMMITTED ? outcome : COMMIT_UNKNOWN);
    return outcome == COMMIT_ABORTED ? give_up(r) : outcome;
}

static enum commit_outcome learn(struct rank *r)
{
    struct clock *clock = r->commit.clock;
    struct backoff backoff = {.max_ms = COMMIT_POLL_MAX_MS};
    enum commit_outcome outcome;

    model_enter(PHASE_LEARN);
    if (!model.is_sent && commit_check_aborted(&r->commit, NULL) != SIDESTEP_OK)
        commit_retract(&r->commit); /* this rank was late */
    if (r->saving->learns_after_ms != 0)
        clock->sleep_ms(clock, r->saving->learns_after_ms);
    uint64_t since = clock_now(clock);
    while ((outcome = commit_poll_outcome(&r->commit, &r->why)) == COMMIT_UNDECIDED && !is_dead() &&
           clock_now(clock) - since <= 2 * r->commit.request.timeout_ns)
        backoff_sleep(&backoff, clock);
    if (outcome == COMMIT_UNKNOWN && model.mutant != NULL && model.mutant->kind == MUTANT_ANY_ID)
        outcome = COMMIT_ABORTED;
    tell(r, outcome);
    return outcome;
}

enum commit_outcome program_save(struct saving *saving, uint32_t rank, struct store *store,
                                 struct clock *clock)
{
    struct rank r = {.saving = saving};
    const struct commit_guard freezer = {.check = freeze, .holds = holds, .context = saving};
    const struct commit_guard remover = {
        .check = remove_replaced, .holds = holds, .context = saving};
    enum commit_outcome outcome;
    char path[64];

    init(&r, rank, store, clock);
    if (rank == 0 && saving->freezes_ms != 0)
        r.commit.request.guard = &freezer;
    if (rank == 0 && saving->replaces != NULL && store->ops->layout == STORE_OF_DIRECTORIES)
        r.commit.request.guard = &remover;
    model_enter(PHASE_OTHER);
    snprintf(path, sizeof(path), "%s/%s", model.parent, saving->save->name);
    enum sidestep_status status = commit_open(&r.commit, path, &r.why);
    if (status == SIDESTEP_OK)
        status = agree(&r);
    else if (rank == 0)
        saving->given_up = true;
    if (status != SIDESTEP_OK)
        outcome = COMMIT_ABORTED; /* on all ranks, because there was no agreement */
    else if (write_and_vote(&r) != SIDESTEP_OK)
        outcome = give_up(&r);
    else
        outcome = rank == 0 ? decide(&r) : learn(&r);
    if (rank == 0) {
        saving->outcome = outcome;
        if (!is_dead())
            ledger_end(saving->ledger, saving->save);
    }
    commit_close(&r.commit);
    return outcome;
}

/* ---- the owner of a series */

static int find_save(const struct ledger *ledger, const char *hex)
{
    uint8_t id[SAVE_ID_BYTES];

    if (hex != NULL && hash_from_hex(hex, sizeof(id), id))
        for (uint32_t i = 0; i < ledger->save_count; i++)
            if (memcmp(ledger->saves[i].id, id, sizeof(id)) == 0)
                return (int)i;
    return MODEL_NOTHING;
}

static bool sync_chosen(struct lease *lease, struct store *store, const char *name,
                        struct sidestep_error *err)
{
    OWNED_DIR *dir = NULL;

    return store_dir_open(store, lease->root, name, &dir, err) == SIDESTEP_OK &&
           store_dir_sync(dir, err) == SIDESTEP_OK;
}

/* Record that ${entry} was seen. If its manifest could not be read, it may be any save of that
 * name. */
static void see(struct ledger *ledger, const struct sidestep_listed *entry)
{
    for (uint32_t i = 0; i < ledger->save_count; i++)
        ledger->saves[i].seen |=
            entry->state == SIDESTEP_COMMITTED && strcmp(ledger->saves[i].name, entry->name) == 0 &&
            (entry->save_id == NULL || find_save(ledger, entry->save_id) == (int)i);
}

/* Choose the newest checkpoint. It must stay, and checkpoints that are not there must not appear
 * later. */
static bool choose(struct lease *lease, struct store *store, struct ledger *ledger, int *chosen,
                   struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    size_t at = 0;
    bool gone = false;

    *chosen = MODEL_NOTHING;
    model_enter(PHASE_CHOOSE);
    if (store_dir_sync(lease->root, err) != SIDESTEP_OK ||
        list_root(store, model.parent, LIST_WITH_UNREADABLE, &list, err) != SIDESTEP_OK)
        return false;
    const struct choose_options how = {.store = store, .mode = SIDESTEP_VERIFY_STRUCTURE};
    enum sidestep_status status = choose_newest_valid(&how, &list, &at, &gone, err);
    if (status != SIDESTEP_OK && status != SIDESTEP_ENOTFOUND)
        return false;
    if (status == SIDESTEP_OK &&
        !sync_chosen(lease, store, sidestep_list_entry(&list, at)->name, err))
        return false;
    for (size_t i = 0; i < list.count; i++)
        see(ledger, sidestep_list_entry(&list, i));
    if (status == SIDESTEP_OK)
        *chosen = find_save(ledger, sidestep_list_entry(&list, at)->save_id);
    if (is_dead())
        return false;
    if (*chosen != MODEL_NOTHING)
        ledger_tell(ledger, &ledger->saves[*chosen], COMMIT_COMMITTED);
    for (uint32_t i = 0; i < ledger->save_count; i++)
        ledger->saves[i].fenced |=
            !ledger->saves[i].seen && ledger->saves[i].incarnation < lease->incarnation;
    if (ledger->chosen_by < lease->incarnation)
        ledger->chosen_by = lease->incarnation;
    ledger->tick++;
    return true;
}

bool program_open_series(struct lease *lease, struct store *store, struct ledger *ledger,
                         int *chosen, struct sidestep_error *err)
{
    model_enter(PHASE_LEASE);
    if (lease_acquire(lease, store, model.parent, NULL, NULL, err) != SIDESTEP_OK)
        return false;
    struct sweep sweep = {.store = store, .parent = lease->root, .mode = SWEEP_SERIES};
    model_enter(PHASE_FENCE);
    return root_of(store)->sweep(&sweep, err) == SIDESTEP_OK &&
           choose(lease, store, ledger, chosen, err);
}

enum commit_outcome program_series_save(struct world *world, struct ledger *ledger,
                                        struct lease *lease, struct store *store,
                                        struct clock *clock, const char *name,
                                        struct sharing *sharing)
{
    struct commit_guard guard = {.check = guard_check, .holds = guard_check, .context = lease};
    struct saving saving = {
        .world = world,
        .ledger = ledger,
        .save = ledger_new_save(ledger, name, 1),
        .votes_no = -1,
        .cheats = -1,
        .strays = -1,
        .has_series = true,
        .no_replace = true,
        .incarnation = lease->incarnation,
        .guard = &guard,
        .sharing = sharing,
    };

    memcpy(saving.run_id, lease->run_id, sizeof(saving.run_id));
    saving.save->incarnation = lease->incarnation;
    return program_save(&saving, 0, store, clock);
}

bool program_series_delete(struct ledger *ledger, struct lease *lease, struct store *store,
                           struct model_save *save)
{
    char trash[FILE_NAME_BYTES], hex[SAVE_ID_HEX];
    uint8_t id[SAVE_ID_BYTES];

    model_enter(PHASE_DELETE);
    memset(id, 0xdd, sizeof(id));
    hash_to_hex(id, sizeof(id), hex);
    if (lease_check(lease, NULL) != SIDESTEP_OK)
        return false;
    save->doomed = true;
    ledger->tick++;
    if (store->ops->layout == STORE_OF_KEYS)
        return program_delete(ledger, store, save);
    if (sweep_move_to_trash(lease->root, save->name, hex, NULL) != SIDESTEP_OK || is_dead())
        return false;
    save->gone = true;
    ledger->tick++;
    file_name_format(FILE_NAME_TRASH, hex, 0, 0, trash);
    return sweep_empty_trash(lease->root, trash, NULL, NULL) == SIDESTEP_OK;
}

bool program_delete(struct ledger *ledger, struct store *store, struct model_save *save)
{
    OWNED_DIR *root = NULL;
    char hex[SAVE_ID_HEX];

    model_enter(PHASE_DELETE);
    hash_to_hex(save->id, sizeof(save->id), hex);
    save->doomed = true;
    ledger->tick++;
    if (store_dir_open(store, NULL, model.parent, &root, NULL) != SIDESTEP_OK ||
        prune_delete(root, NULL, save->name, hex, NULL, NULL) != SIDESTEP_OK || is_dead())
        return false;
    save->gone = true;
    ledger->tick++;
    return true;
}

void program_sweep_target(struct store *store)
{
    OWNED_DIR *parent = NULL;
    OWNED_DIR *target = NULL;

    model_enter(PHASE_BEGIN);
    if (store_dir_open(store, NULL, MODEL_PARENT, &parent, NULL) == SIDESTEP_OK &&
        store_dir_open(store, parent, MODEL_TARGET, &target, NULL) == SIDESTEP_OK)
        sweep_in_place(parent, target);
}

bool program_collect(struct store *store, struct sidestep_error *err)
{
    OWNED_DIR *parent = NULL;

    model_enter(PHASE_FENCE);
    if (store_dir_open(store, NULL, model.parent, &parent, err) != SIDESTEP_OK)
        return false;
    struct sweep sweep = {.store = store, .parent = parent, .mode = SWEEP_ALL};
    return root_of(store)->sweep(&sweep, err) == SIDESTEP_OK &&
           root_of(store)->sweep_below(&sweep, err) == SIDESTEP_OK;
}

/* ---- a user who makes a directory, and maybe a file in it */

void program_make_dir(struct ledger *ledger, struct store *store, const char *dir, const char *file)
{
    OWNED_DIR *parent = NULL;
    OWNED_DIR *made = NULL;
    OWNED_FILE *handle = NULL;
    char path[64], text[64];

    model_enter(PHASE_OTHER);
    snprintf(path, sizeof(path), MODEL_PARENT "/%s", dir);
    if (store_dir_open(store, NULL, MODEL_PARENT, &parent, NULL) != SIDESTEP_OK ||
        (store_dir_make(parent, dir, NULL) != SIDESTEP_OK && file == NULL) ||
        store_dir_open(store, parent, dir, &made, NULL) != SIDESTEP_OK || file == NULL)
        return;
    snprintf(text, sizeof(text), "%s/%s", path, file);
    if (store_file_create(made, file, 0, &handle, NULL) != SIDESTEP_OK ||
        store_file_write_at(handle, text, strlen(text), 0, NULL) != SIDESTEP_OK || is_dead())
        return;
    struct model_file *entry = &ledger->files[ledger->file_count++];
    snprintf(entry->dir, sizeof(entry->dir), "%s", path);
    snprintf(entry->name, sizeof(entry->name), "%s", file);
    ledger->tick++;
    if (store_file_sync(handle, NULL) == SIDESTEP_OK && store_dir_sync(made, NULL) == SIDESTEP_OK &&
        store_dir_sync(parent, NULL) == SIDESTEP_OK && !is_dead()) {
        entry->durable = !ledger->is_tainted;
        ledger->tick++;
    }
}
