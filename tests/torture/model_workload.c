/* SPDX-License-Identifier: BSD-3-Clause */
/* model_workload.c -- the table of workloads: what the processes do while they may be killed or the
 * power may fail; see model.h. */
#include "model.h"

#include <assert.h>
#include <string.h>

#include "base/owned.h"
#include "root/lease.h"
#include "checkpoint/reader.h"

/* ---- setup */

static void save_before(struct world *world, const char *name, uint32_t ranks)
{
    (void)ranks;
    struct saving saving = {.ledger = &world->ledger, .votes_no = -1, .cheats = -1, .strays = -1};

    saving.save = ledger_new_save(&world->ledger, name, 1);
    enum commit_outcome outcome = program_save(&saving, 0, world_setup_store(world), &world->clock);
    assert(outcome == COMMIT_COMMITTED);
    (void)outcome;
}

static void make_dir_before(struct world *world, const char *dir, const char *file)
{
    program_make_dir(&world->ledger, world_setup_store(world), dir, file);
}

static void old_made_by_swap(struct world *world)
{
    save_before(world, MODEL_TARGET, 1);
}

static void old_made_in_place(struct world *world)
{
    make_dir_before(world, MODEL_TARGET, NULL);
    save_before(world, MODEL_TARGET, 1);
}

static void old_and_files(struct world *world)
{
    make_dir_before(world, MODEL_TARGET, "config.json");
    save_before(world, MODEL_TARGET, 1);
}

static void empty_dir(struct world *world)
{
    make_dir_before(world, MODEL_TARGET, NULL);
}

static void files_of_user(struct world *world)
{
    make_dir_before(world, MODEL_TARGET, "config.json");
    make_dir_before(world, MODEL_TARGET, "__0_0.txt");
}

/* The user's file has the name of a small file. */
static void file_of_our_name(struct world *world)
{
    make_dir_before(world, MODEL_TARGET, "state-0");
}

static void decoys(struct world *world)
{
    OWNED_DIR *root = NULL;
    struct store *store = world_setup_store(world);
    enum sidestep_status status = store_dir_open(store, NULL, "/", &root, NULL);

    if (status == SIDESTEP_OK)
        status = store_dir_make(root, "decoys", NULL);
    assert(status == SIDESTEP_OK);
}

/* ---- tasks */

static void rank_main(struct task *task)
{
    (void)program_save(task->saving, task->actor.rank, world_store(task), &task->world->clock);
}

static struct saving *add_ranks(struct world *world, const char *name)
{
    struct saving *saving = world_add_saving(world, name, world->workload->ranks);

    for (uint32_t rank = 0; rank < world->workload->ranks; rank++)
        (void)world_add(world, rank_main, saving, rank);
    return saving;
}

static void start_save(struct world *world)
{
    (void)add_ranks(world, MODEL_TARGET);
}

/* It is sent to a mirror that has another save of this name. */
static void start_sent_over(struct world *world)
{
    add_ranks(world, MODEL_TARGET)->replaces = &world->ledger.saves[0];
}

static void start_sent_no_over(struct world *world)
{
    struct saving *saving = add_ranks(world, MODEL_TARGET);

    saving->replaces = &world->ledger.saves[0];
    saving->votes_no = 1;
}

static void start_no(struct world *world)
{
    add_ranks(world, MODEL_TARGET)->votes_no = 1;
}

static void start_cheat(struct world *world)
{
    add_ranks(world, MODEL_TARGET)->cheats = 1;
}

static void start_stray(struct world *world)
{
    add_ranks(world, MODEL_TARGET)->strays = 1;
}

static void start_short(struct world *world)
{
    add_ranks(world, MODEL_TARGET)->shortens = 1;
}

static void make_dir_main(struct task *task)
{
    program_make_dir(&task->world->ledger, world_store(task), MODEL_TARGET, NULL);
}

static void make_file_main(struct task *task)
{
    program_make_dir(&task->world->ledger, world_store(task), MODEL_TARGET, "config.json");
}

static void start_dir_appears(struct world *world)
{
    start_save(world);
    (void)world_add(world, make_dir_main, NULL, 9);
}

static void start_file_appears(struct world *world)
{
    start_save(world);
    (void)world_add(world, make_file_main, NULL, 9);
}

/* One process saves twice. */
static void twice_main(struct task *task)
{
    struct world *world = task->world;

    rank_main(task);
    if (task->actor.is_dead)
        return;
    struct saving again = {.ledger = &world->ledger, .votes_no = -1, .cheats = -1, .strays = -1};
    again.save = ledger_new_save(&world->ledger, MODEL_TARGET, 1);
    (void)program_save(&again, 0, world_store(task), &world->clock);
    if (task->actor.is_dead)
        ledger_end(&world->ledger, again.save);
}

static void start_twice(struct world *world)
{
    (void)world_add(world, twice_main, world_add_saving(world, MODEL_TARGET, 1), 0);
}

static void start_race(struct world *world)
{
    (void)world_add(world, rank_main, world_add_saving(world, MODEL_TARGET, 1), 0);
    (void)world_add(world, rank_main, world_add_saving(world, MODEL_TARGET, 1), 0);
}

static void start_race_of_three(struct world *world)
{
    start_race(world);
    (void)world_add(world, rank_main, world_add_saving(world, MODEL_TARGET, 1), 0);
}

/* Once a rank has died, or all have ended, another process saves under the same name. */
static void successor_main(struct task *task)
{
    struct world *world = task->world;

    for (int i = 0; i < 8 * MODEL_TIMEOUT_MS && !world->was_killed && !task->actor.is_dead; i++)
        world->clock.sleep_ms(&world->clock, 1);
    rank_main(task);
}

static void start_successor(struct world *world)
{
    start_save(world);
    (void)world_add(world, successor_main, world_add_saving(world, MODEL_TARGET, 1), 0);
}

/* Another save commits long before rank 1 asks for the outcome of its own save. */
static void start_late_learner(struct world *world)
{
    start_successor(world);
    world->savings[0].learns_after_ms = 16 * MODEL_TIMEOUT_MS;
}

/* The checkpoint is deleted as soon as it is committed, long before rank 1 asks for the outcome. */
static void delete_committed_main(struct task *task)
{
    struct world *world = task->world;
    struct saving *saving = &world->savings[0];

    for (int i = 0; i < 8 * MODEL_TIMEOUT_MS && !saving->save->committed; i++)
        world->clock.sleep_ms(&world->clock, 1);
    if (saving->save->committed && !task->actor.is_dead)
        (void)program_delete(&world->ledger, world_store(task), saving->save);
}

static void start_delete_before_learning(struct world *world)
{
    start_save(world);
    (void)world_add(world, delete_committed_main, NULL, 9);
    world->savings[0].learns_after_ms = 16 * MODEL_TIMEOUT_MS;
}

static void collect_main(struct task *task)
{
    for (int i = 0; i < 3 && !task->actor.is_dead; i++)
        (void)program_collect(world_store(task), NULL);
}

static void start_collect(struct world *world)
{
    start_save(world);
    (void)world_add(world, collect_main, NULL, 9);
}

static void sweep_main(struct task *task)
{
    for (int i = 0; i < 4 && !task->actor.is_dead; i++)
        program_sweep_target(world_store(task));
}

static void start_sweep(struct world *world)
{
    start_save(world);
    (void)world_add(world, sweep_main, NULL, 9);
    (void)world_add(world, sweep_main, NULL, 9);
}

/* ---- in a bucket */

#define HOUR_MS 3600000u

/* A save pauses for two hours before its commit. Meanwhile another process sweeps. */
static void sweep_later_main(struct task *task)
{
    struct clock *clock = &task->world->clock;

    clock->sleep_ms(clock, HOUR_MS + HOUR_MS / 2);
    (void)program_collect(world_store(task), NULL);
}

static void start_frozen(struct world *world)
{
    add_ranks(world, MODEL_TARGET)->freezes_ms = 2 * HOUR_MS;
    (void)world_add(world, sweep_later_main, NULL, 9);
}

/* A process deletes the checkpoint, as a prune does, maybe while another process replaces it. */
static void delete_target_main(struct task *task)
{
    program_delete(&task->world->ledger, world_store(task), &task->world->ledger.saves[0]);
}

static void start_delete_target(struct world *world)
{
    (void)world_add(world, delete_target_main, NULL, 9);
}

static void start_delete_beside(struct world *world)
{
    start_delete_target(world);
    start_save(world);
}

/* A reader must see complete checkpoints only. */
static void reader_main(struct task *task)
{
    struct world *world = task->world;
    static struct problem problem;
    int found;

    for (int i = 0; i < 3 && !task->actor.is_dead; i++)
        if (!ledger_look(world_store(task), &world->ledger, MODEL_TARGET, &found, &problem) &&
            !task->actor.is_dead)
            world->broken = &problem;
}

static void start_read(struct world *world)
{
    start_save(world);
    (void)world_add(world, reader_main, NULL, 9);
}

/* ---- series */

/* Save twice, then delete the first one. */
static void save_two(struct task *task, struct sharing *sharing)
{
    struct world *world = task->world;
    struct store *store = world_store(task);
    struct lease lease = {0};
    int chosen;
    bool good = program_open_series(&lease, store, &world->ledger, &chosen, NULL);

    for (int i = 1; i <= 2 && good && !task->actor.is_dead; i++)
        good = program_series_save(world, &world->ledger, &lease, store, &world->clock,
                                   i == 1 ? "step-1" : "step-2", sharing) == COMMIT_COMMITTED;
    if (good && !task->actor.is_dead)
        (void)program_series_delete(&world->ledger, &lease, store,
                                    &world->ledger.saves[world->ledger.save_count - 2]);
    lease_release(&lease);
}

static void series_main(struct task *task)
{
    save_two(task, NULL);
}

/* The second save shares a file with the first. */
static void sharing_main(struct task *task)
{
    struct sharing sharing = {0};

    save_two(task, &sharing);
    /* Unless something failed, the file must have been shared. */
    const struct ledger *ledger = &task->world->ledger;
    const struct model_save *last = &ledger->saves[ledger->save_count - 1];
    assert(ledger->save_count != 2 || !last->committed || task->world->plan.fault != FAULT_NONE ||
           memcmp(last->kept_id, ledger->saves[0].id, SAVE_ID_BYTES) == 0);
    commit_shared_release(&sharing.shared);
}

static void start_sharing(struct world *world)
{
    (void)world_add(world, sharing_main, NULL, 0);
}

static void start_series(struct world *world)
{
    (void)world_add(world, series_main, NULL, 0);
}

/* Resume, and save. */
static void resume_and_save(struct task *task, const char *name)
{
    struct world *world = task->world;
    struct store *store = world_store(task);
    struct lease lease = {0};
    int chosen;

    if (program_open_series(&lease, store, &world->ledger, &chosen, NULL) && !task->actor.is_dead)
        (void)program_series_save(world, &world->ledger, &lease, store, &world->clock, name, NULL);
    lease_release(&lease);
}

static void owner_main(struct task *task)
{
    resume_and_save(task, "step-2");
}

static void other_owner_main(struct task *task)
{
    resume_and_save(task, "step-3");
}

static void series_before(struct world *world)
{
    struct store *store = world_setup_store(world);
    struct lease lease = {0};
    int chosen;
    bool good = program_open_series(&lease, store, &world->ledger, &chosen, NULL);

    assert(good);
    enum commit_outcome outcome =
        program_series_save(world, &world->ledger, &lease, store, &world->clock, "step-1", NULL);
    assert(outcome == COMMIT_COMMITTED);
    (void)good;
    (void)outcome;
    lease_release(&lease);
}

static void two_steps_before(struct world *world)
{
    struct store *store = world_setup_store(world);
    struct lease lease = {0};
    int chosen;
    bool good = program_open_series(&lease, store, &world->ledger, &chosen, NULL);

    for (int i = 1; i <= 2 && good; i++)
        good = program_series_save(world, &world->ledger, &lease, store, &world->clock,
                                   i == 1 ? "step-1" : "step-2", NULL) == COMMIT_COMMITTED;
    assert(good);
    lease_release(&lease);
}

/* A process deletes a step, and ends after its rename to the trash. */
static void delete_main(struct task *task)
{
    struct ledger *ledger = &task->world->ledger;
    OWNED_DIR *root = NULL;
    char trash[FILE_NAME_BYTES];

    file_name_format(FILE_NAME_TRASH, "dddddddddddddddddddddddddddddddd", 0, 0, trash);
    ledger->saves[0].doomed = true;
    if (store_dir_open(world_store(task), NULL, MODEL_PARENT, &root, NULL) == SIDESTEP_OK)
        (void)store_rename(root, ledger->saves[0].name, root, trash, STORE_NOREPLACE, NULL);
}

static void start_delete(struct world *world)
{
    (void)world_add(world, delete_main, NULL, 0);
}

static void series_before_dir(struct world *world)
{
    series_before(world);
    make_dir_before(world, "step-2", NULL);
}

/* Without locks, two processes may believe that they own the series. The later incarnation owns it.
 */
static void start_zombie(struct world *world)
{
    (void)world_add(world, owner_main, NULL, 0);
    (void)world_add(world, other_owner_main, NULL, 0);
}

static void start_zombie_of_same_step(struct world *world)
{
    (void)world_add(world, owner_main, NULL, 0);
    (void)world_add(world, owner_main, NULL, 0);
}

static void start_second_step(struct world *world)
{
    (void)world_add(world, owner_main, NULL, 0);
}

#define BUCKET WORKLOAD_BUCKET
#define FILES WORKLOAD_FILES

const struct workload model_workloads[] = {
    {"fresh", 0, WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_save},
    {"fresh-2", 0, WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL, start_save},
    {"fresh-3", 0, WORKLOAD_COMMITS, MODEL_TARGET, 3, NULL, start_save},
    {"empty-dir", 0, WORKLOAD_COMMITS, MODEL_TARGET, 1, empty_dir, start_save},
    {"empty-dir-2", 0, WORKLOAD_COMMITS, MODEL_TARGET, 2, empty_dir, start_save},
    {"over-swap", 0, WORKLOAD_COMMITS, MODEL_TARGET, 1, old_made_by_swap, start_save},
    {"over-swap-2", 0, WORKLOAD_COMMITS, MODEL_TARGET, 2, old_made_by_swap, start_save},
    {"over-in-place", 0, WORKLOAD_COMMITS, MODEL_TARGET, 1, old_made_in_place, start_save},
    {"over-in-place-2", 0, WORKLOAD_COMMITS, MODEL_TARGET, 2, old_made_in_place, start_save},
    {"over-files", 0, WORKLOAD_COMMITS, MODEL_TARGET, 1, files_of_user, start_save},
    {"over-old-and-files", 0, WORKLOAD_COMMITS, MODEL_TARGET, 2, old_and_files, start_save},
    {"dir-appears", 0, 0, MODEL_TARGET, 1, NULL, start_dir_appears},
    {"dir-appears-2", 0, 0, MODEL_TARGET, 2, NULL, start_dir_appears},
    {"file-appears", 0, 0, MODEL_TARGET, 1, NULL, start_file_appears},
    {"file-appears-2", 0, 0, MODEL_TARGET, 2, NULL, start_file_appears},
    {"twice", 0, WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_twice},
    {"race-fresh", 0, 0, MODEL_TARGET, 1, NULL, start_race},
    {"race-over", 0, 0, MODEL_TARGET, 1, old_made_by_swap, start_race},
    {"race-over-no-locks", SIM_NO_LOCKS, WORKLOAD_NO_CRASHES, MODEL_TARGET, 1, old_made_by_swap,
     start_race_of_three},
    {"sweeps", 0, WORKLOAD_NO_CRASHES, MODEL_TARGET, 1, old_made_by_swap, start_sweep},
    {"successor", 0, 0, MODEL_TARGET, 2, NULL, start_successor},
    {"successor-over", 0, 0, MODEL_TARGET, 2, old_made_in_place, start_successor},
    {"learns-late", 0, 0, MODEL_TARGET, 2, NULL, start_late_learner},
    {"learns-deleted", 0, 0, MODEL_TARGET, 2, NULL, start_delete_before_learning},
    {"learns-deleted-in-place", 0, 0, MODEL_TARGET, 2, empty_dir, start_delete_before_learning},
    {"gc", 0, 0, MODEL_TARGET, 2, NULL, start_collect},
    {"gc-over", 0, 0, MODEL_TARGET, 2, old_made_in_place, start_collect},
    {"votes-no", 0, 0, MODEL_TARGET, 2, NULL, start_no},
    {"votes-no-over", 0, 0, MODEL_TARGET, 2, old_made_by_swap, start_no},
    {"foreign-shard", 0, 0, MODEL_TARGET, 2, decoys, start_cheat},
    {"other-layout", 0, 0, MODEL_TARGET, 2, NULL, start_stray},
    {"reader", 0, WORKLOAD_COMMITS | WORKLOAD_NO_FAULTS, MODEL_TARGET, 1, old_made_by_swap,
     start_read},
    {"series", 0, WORKLOAD_SERIES, NULL, 1, NULL, start_series},
    {"series-sharing", 0, WORKLOAD_SERIES, NULL, 1, NULL, start_sharing},
    {"series-root", 0, WORKLOAD_SERIES | WORKLOAD_MAKES_PARENT, NULL, 1, NULL, start_series},
    {"series-dir", 0, WORKLOAD_SERIES, NULL, 1, series_before_dir, start_second_step},
    {"delete-own-sync", SIM_OWN_SYNC, WORKLOAD_SERIES | WORKLOAD_NO_FAULTS, NULL, 1,
     two_steps_before, start_delete},
    {"zombie", SIM_NO_LOCKS, WORKLOAD_SERIES, NULL, 1, series_before, start_zombie},
    {"zombie-dir", SIM_NO_LOCKS, WORKLOAD_SERIES, NULL, 1, series_before_dir,
     start_zombie_of_same_step},
    {"no-noreplace", SIM_NO_NOREPLACE, WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_save},
    {"no-noreplace-appears", SIM_NO_NOREPLACE, 0, MODEL_TARGET, 1, NULL, start_file_appears},
    {"no-exchange", SIM_NO_EXCHANGE, WORKLOAD_COMMITS, MODEL_TARGET, 1, old_made_by_swap,
     start_save},
    {"no-flags", SIM_NO_NOREPLACE | SIM_NO_EXCHANGE, WORKLOAD_COMMITS, MODEL_TARGET, 2,
     old_and_files, start_save},
    {"own-sync", SIM_OWN_SYNC, WORKLOAD_COMMITS | WORKLOAD_NO_RECOVERY_SAVE | WORKLOAD_NO_FAULTS,
     MODEL_TARGET, 2, NULL, start_save},
    {"own-sync-over", SIM_OWN_SYNC,
     WORKLOAD_COMMITS | WORKLOAD_NO_RECOVERY_SAVE | WORKLOAD_NO_FAULTS, MODEL_TARGET, 2,
     old_made_by_swap, start_save},
    {"files", 0, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_save},
    {"files-2", 0, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL, start_save},
    {"files-over-swap", 0, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 1, old_made_by_swap, start_save},
    {"files-over-in-place", 0, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 1, old_made_in_place,
     start_save},
    {"files-over-2", 0, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 2, old_made_in_place, start_save},
    {"files-beside-user", 0, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 1, file_of_our_name,
     start_save},
    {"files-appear", 0, FILES, MODEL_TARGET, 2, NULL, start_file_appears},
    {"files-gc", 0, FILES, MODEL_TARGET, 2, old_made_in_place, start_collect},
    {"files-votes-no", 0, FILES, MODEL_TARGET, 2, old_made_in_place, start_no},
    {"files-short", 0, FILES, MODEL_TARGET, 2, old_made_by_swap, start_short},
    {"files-series", 0, FILES | WORKLOAD_SERIES, NULL, 1, NULL, start_series},
    {"files-no-links", SIM_NO_LINKS, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 1, old_made_in_place,
     start_save},
    {"files-no-exchange", SIM_NO_EXCHANGE, FILES | WORKLOAD_COMMITS, MODEL_TARGET, 1,
     old_made_by_swap, start_save},
    {"part", 0, WORKLOAD_PARTS | WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_save},
    {"part-2", 0, WORKLOAD_PARTS | WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL, start_save},
    {"part-files-2", 0, FILES | WORKLOAD_PARTS | WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL,
     start_save},
    {"part-votes-no", 0, WORKLOAD_PARTS, MODEL_TARGET, 2, NULL, start_no},
    {"part-gc", 0, WORKLOAD_PARTS, MODEL_TARGET, 2, NULL, start_collect},
    {"part-own-sync", SIM_OWN_SYNC,
     WORKLOAD_PARTS | WORKLOAD_COMMITS | WORKLOAD_NO_RECOVERY_SAVE | WORKLOAD_NO_FAULTS,
     MODEL_TARGET, 2, NULL, start_save},
    {"sent-2", 0, WORKLOAD_SENT | WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL, start_save},
    {"sent-files-2", 0, FILES | WORKLOAD_SENT | WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL,
     start_save},
    {"sent-votes-no", 0, WORKLOAD_SENT, MODEL_TARGET, 2, NULL, start_no},
    {"sent-over-2", 0, WORKLOAD_SENT | WORKLOAD_COMMITS, MODEL_TARGET, 2, old_made_by_swap,
     start_sent_over},
    {"sent-over-votes-no", 0, WORKLOAD_SENT, MODEL_TARGET, 2, old_made_by_swap, start_sent_no_over},
    {"sent-own-sync", SIM_OWN_SYNC,
     WORKLOAD_SENT | WORKLOAD_COMMITS | WORKLOAD_NO_RECOVERY_SAVE | WORKLOAD_NO_FAULTS,
     MODEL_TARGET, 2, NULL, start_save},
    {"bucket-sent-2", 0, BUCKET | WORKLOAD_SENT | WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL,
     start_save},
    {"bucket-sent-files-2", 0, BUCKET | FILES | WORKLOAD_SENT | WORKLOAD_COMMITS, MODEL_TARGET, 2,
     NULL, start_save},
    {"bucket-sent-over-2", 0, BUCKET | WORKLOAD_SENT | WORKLOAD_COMMITS, MODEL_TARGET, 2,
     old_made_by_swap, start_sent_over},
    {"bucket", 0, BUCKET | WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_save},
    {"bucket-2", 0, BUCKET | WORKLOAD_COMMITS, MODEL_TARGET, 2, NULL, start_save},
    {"bucket-over", 0, BUCKET | WORKLOAD_COMMITS, MODEL_TARGET, 1, old_made_by_swap, start_save},
    {"bucket-over-2", 0, BUCKET | WORKLOAD_COMMITS, MODEL_TARGET, 2, old_made_by_swap, start_save},
    {"bucket-twice", 0, BUCKET | WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_twice},
    {"bucket-race", 0, BUCKET, MODEL_TARGET, 1, NULL, start_race},
    {"bucket-race-over", 0, BUCKET, MODEL_TARGET, 1, old_made_by_swap, start_race_of_three},
    {"bucket-successor", 0, BUCKET, MODEL_TARGET, 2, old_made_by_swap, start_successor},
    {"bucket-learns-deleted", 0, BUCKET, MODEL_TARGET, 2, NULL, start_delete_before_learning},
    {"bucket-gc", 0, BUCKET, MODEL_TARGET, 2, old_made_by_swap, start_collect},
    {"bucket-votes-no", 0, BUCKET, MODEL_TARGET, 2, old_made_by_swap, start_no},
    {"bucket-frozen", 0, BUCKET, MODEL_TARGET, 1, old_made_by_swap, start_frozen},
    {"bucket-reader", 0, BUCKET | WORKLOAD_COMMITS | WORKLOAD_NO_FAULTS, MODEL_TARGET, 1, NULL,
     start_read},
    {"bucket-delete", 0, BUCKET, MODEL_TARGET, 1, old_made_by_swap, start_delete_target},
    {"bucket-delete-beside", 0, BUCKET, MODEL_TARGET, 1, old_made_by_swap, start_delete_beside},
    {"bucket-series", 0, BUCKET | WORKLOAD_SERIES, NULL, 1, NULL, start_series},
    {"bucket-zombie", 0, BUCKET | WORKLOAD_SERIES, NULL, 1, series_before, start_zombie},
    {"bucket-files", 0, BUCKET | FILES | WORKLOAD_COMMITS, MODEL_TARGET, 1, NULL, start_save},
    {"bucket-files-over", 0, BUCKET | FILES | WORKLOAD_COMMITS, MODEL_TARGET, 2, old_made_by_swap,
     start_save},
    {"bucket-files-delete", 0, BUCKET | FILES, MODEL_TARGET, 1, old_made_by_swap,
     start_delete_target},
    {"bucket-ignores", OBJECT_SIM_IGNORES_CONDITIONS, BUCKET | WORKLOAD_TORN, MODEL_TARGET, 1,
     old_made_by_swap, start_race},
    {"bucket-refuses", OBJECT_SIM_REFUSES_CONDITIONS, BUCKET | WORKLOAD_TORN, MODEL_TARGET, 1,
     old_made_by_swap, start_race},
};
const size_t model_workload_count = ARRAY_LENGTH(model_workloads);
