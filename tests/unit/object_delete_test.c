/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_delete_test.c -- the deletion of a checkpoint of a series on a simulated bucket, and what
 * a sweep removes, while each request meets each fault.
 *
 * Whatever happens, a name holds a whole checkpoint or none, and after an hour nothing is left
 * over.
 */
#include "selection/selection.h"
#include "support/bucket_series.h"
#include "support/unit.h"

/* ${t} without a series, and the root and its marks. */
struct deleting {
    struct trainer trainer;
    struct store_dir *root, *marks;
};

static void begin_deletion(struct rig *rig, struct deleting *d)
{
    struct sidestep_error err;

    open_engine(rig, 0, &d->trainer);
    struct store *store = d->trainer.engine->buckets.shared.stores[0];
    assert_int_equal(store_dir_open(store, NULL, ROOT, &d->root, &err), SIDESTEP_OK);
    assert_int_equal(store_dir_open(store, d->root, ".sidestep", &d->marks, &err), SIDESTEP_OK);
}

static void end_deletion(struct deleting *d)
{
    store_dir_close(d->marks);
    store_dir_close(d->root);
    close_trainer(&d->trainer);
}

static void save_two(struct rig *rig, unsigned flags)
{
    struct trainer t;

    rig_make(rig, flags);
    open_trainer(rig, 1, 0, &t);
    save_ok(&t, 1);
    save_ok(&t, 2);
    close_trainer(&t);
    object_sim_advance(rig->bucket, OBJECT_DEAD_SECONDS + 1);
    atomic_store(&rig->seen, 0);
}

static enum sidestep_status delete_step_1(struct rig *rig, struct sidestep_error *err)
{
    struct deleting d;

    begin_deletion(rig, &d);
    enum sidestep_status status = prune_delete(d.root, d.marks, "step-1", NULL, NULL, err);
    end_deletion(&d);
    return status;
}

/* What is there of step 1 is whole, or nobody takes it for a checkpoint. */
static bool is_whole_or_gone(struct rig *rig)
{
    return !object_exists(rig, "job/step-1/.metadata") ||
           count_below(rig, "job/step-1/") == PER_CHECKPOINT;
}

/* 0: there is no such request.  1: what is left is whole or gone.  2: it is torn. */
static int try_delete(unsigned at, enum object_fate fate, bool dies)
{
    struct sidestep_error err = {0};
    struct rig rig;

    save_two(&rig, 0);
    rig.fate = fate, rig.dies = dies;
    atomic_store(&rig.at, at);
    enum sidestep_status status = delete_step_1(&rig, &err);
    bool is_good = is_whole_or_gone(&rig), hit = rig.hit;
    land_all(&rig);
    is_good = is_good && is_whole_or_gone(&rig);
    if (is_good && status == SIDESTEP_OK)
        assert_false(object_exists(&rig, "job/step-1/.metadata"));
    if (is_good)
        settle(&rig, 2, 2);
    object_sim_free(&rig.bucket);
    return !is_good ? 2 : hit;
}

/* Does a deletion leave a torn checkpoint, whichever request meets whichever fault? */
static bool leaves_something_torn(unsigned *tried)
{
    for (int fate = OBJECT_REFUSED; fate <= OBJECT_LATE; fate++)
        for (int dies = 0; dies <= 1; dies++)
            for (unsigned at = 1;; at++) {
                int what = try_delete(at, (enum object_fate)fate, dies);
                if (what == 2)
                    return true;
                if (what == 0)
                    break;
                ++*tried;
            }
    return false;
}

TEST(deleting_meets_each_fault_at_each_request)
{
    unsigned tried = 0;

    assert_false(leaves_something_torn(&tried));
    print_message("# %u faults\n", tried);
    assert_true(tried >= 6 * 6);
    fault_arm("object.delete_order", 1, true, EIO);
    assert_true(leaves_something_torn(&tried));
    fault_arm("", 0, false, 0);
}

static bool a_name_that_is_being_saved_stays(void)
{
    struct sidestep_error err = {0};
    struct rig rig;

    save_two(&rig, 0);
    assert_true(object_sim_put(rig.bucket, "job/step-1/.sidestep/" OTHER "/pending", "x", 1));
    bool stays = delete_step_1(&rig, &err) == SIDESTEP_ELOCKED &&
                 object_exists(&rig, "job/step-1/.metadata");
    if (stays)
        assert_non_null(strstr(err.message, "under way"));
    object_sim_free(&rig.bucket);
    return stays;
}

TEST(names_that_are_being_saved_stay)
{
    assert_true(a_name_that_is_being_saved_stays());
    fault_arm("object.pending", 1, true, EIO);
    assert_false(a_name_that_is_being_saved_stays());
    fault_arm("", 0, false, 0);
}

TEST(what_is_not_ours_stays)
{
    struct sidestep_error err = {0};
    struct deleting d;
    struct rig rig;

    save_two(&rig, 0);
    begin_deletion(&rig, &d);
    assert_int_equal(prune_delete(d.root, d.marks, "step-1", OTHER, NULL, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "replaced"));
    end_deletion(&d);
    assert_true(object_sim_put(rig.bucket, "job/step-1/notes.txt", "x", 1));
    assert_int_equal(delete_step_1(&rig, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "files that sidestep did not write"));
    assert_int_equal(count_below(&rig, "job/step-1/"), PER_CHECKPOINT + 1);
    object_sim_free(&rig.bucket);
}

static void pin_step_1(struct rig *rig)
{
    static const char text[] = "save -\n";

    assert_true(object_sim_put(rig->bucket, "job/.sidestep/pin.step-1", text, strlen(text)));
}

/* Somebody pins the checkpoint right before .metadata is deleted. */
static bool a_late_pin_holds(unsigned flags)
{
    struct sidestep_error err = {0};
    struct rig rig;

    save_two(&rig, flags);
    rig.before = "delete", rig.key = "step-1/.metadata", rig.act = pin_step_1;
    enum sidestep_status status = delete_step_1(&rig, &err);
    bool holds = status == SIDESTEP_ELOCKED && count_below(&rig, "job/step-1/") == PER_CHECKPOINT;
    object_sim_free(&rig.bucket);
    return holds;
}

TEST(late_pins_hold)
{
    assert_true(a_late_pin_holds(0));
    fault_arm("prune.pin", 1, true, EIO);
    assert_false(a_late_pin_holds(0));
    fault_arm("", 0, false, 0);
}

/* ---- late deletions */

static void save_step_1_again(struct rig *rig)
{
    struct trainer t;
    struct sidestep_error err = {0};

    open_engine(rig, 1, &t);
    world_fill(&t.world, 3);
    if (sidestep_save(t.engine, ROOT "/step-1", t.world.state, NULL, NULL, &err) != SIDESTEP_OK)
        fail_msg("save beside: %s", err.message);
    close_trainer(&t);
}

/* The request that deletes .metadata arrives when its sender is dead, and after another save. */
static bool a_late_deletion_spares_a_newer_checkpoint(unsigned flags)
{
    for (unsigned at = 1;; at++) {
        struct sidestep_error err = {0};
        struct rig rig;
        save_two(&rig, flags);
        rig.fate = OBJECT_LATE, rig.dies = true;
        atomic_store(&rig.at, at);
        (void)delete_step_1(&rig, &err);
        rig.at = 0;
        bool is_it = object_sim_late_count(rig.bucket) == 1 &&
                     strncmp(rig.request, "delete job/step-1/.metadata", 27) == 0;
        if (is_it)
            save_step_1_again(&rig);
        land_all(&rig);
        bool stays = is_it && object_exists(&rig, "job/step-1/.metadata");
        bool hit = rig.hit;
        object_sim_free(&rig.bucket);
        if (is_it)
            return stays;
        assert_true(hit);
    }
}

TEST(late_deletions_spare_newer_checkpoints)
{
    assert_true(a_late_deletion_spares_a_newer_checkpoint(0));
    /* These stores cannot, as docs/OBJECTS.md says. */
    assert_false(a_late_deletion_spares_a_newer_checkpoint(OBJECT_SIM_IGNORES_CONDITIONS));
    fault_arm("object.delete_version", 1, true, EIO);
    assert_false(a_late_deletion_spares_a_newer_checkpoint(0));
    fault_arm("", 0, false, 0);
}

/* Another save commits right before .metadata is deleted. */
static bool a_checkpoint_that_came_meanwhile_stays(unsigned flags)
{
    struct sidestep_error err = {0};
    struct rig rig;

    save_two(&rig, flags);
    rig.before = "delete", rig.key = "step-1/.metadata", rig.act = save_step_1_again;
    enum sidestep_status status = delete_step_1(&rig, &err);
    bool stays = status == SIDESTEP_ELOCKED && strstr(err.message, "replaced") != NULL &&
                 count_below(&rig, "job/step-1/") == PER_CHECKPOINT;
    object_sim_free(&rig.bucket);
    return stays;
}

TEST(deletions_have_a_condition)
{
    assert_true(a_checkpoint_that_came_meanwhile_stays(0));
    assert_true(a_checkpoint_that_came_meanwhile_stays(OBJECT_SIM_REFUSES_CONDITIONS));
    fault_arm("object.delete_version", 1, true, EIO);
    assert_false(a_checkpoint_that_came_meanwhile_stays(0));
    fault_arm("", 0, false, 0);
}

/* ---- sweeping */

/* One at a name with nothing else, one beside a checkpoint. */
static void begin_uploads(struct rig *rig)
{
    static const char *const keys[] = {"job/step-2/__1_0." OTHER ".distcp",
                                       "job/step-9/__0_0." OTHER ".distcp"};
    struct object_client *client = object_sim_client(rig->bucket, 9);
    char id[OBJECT_UPLOAD_ID_BYTES];
    struct sidestep_error err;

    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        assert_int_equal(client->ops->upload_begin(client, keys[i], NULL, id, &err), SIDESTEP_OK);
    object_client_free(&client);
}

TEST(opening_sweeps_what_is_dead)
{
    static const char *const left[] = {
        "job/step-7/.sidestep/" OTHER "/pending", "job/step-7/__0_0." OTHER ".distcp",
        "job/step-2/__0_0." OTHER ".distcp", "job/step-8/.sidestep.manifest." OTHER};
    struct trainer t;
    struct rig rig;

    save_two(&rig, 0);
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++)
        assert_true(object_sim_put(rig.bucket, left[i], "x", 1));
    assert_true(object_sim_put(rig.bucket, "job/data/other.txt", "x", 1));
    begin_uploads(&rig);
    open_trainer(&rig, 0, 0, &t);
    close_trainer(&t);
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++)
        assert_true(object_exists(&rig, left[i]));
    settle(&rig, 2, 2);
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++)
        assert_false(object_exists(&rig, left[i]));
    assert_true(object_exists(&rig, "job/data/other.txt"));
    object_sim_free(&rig.bucket);
}
