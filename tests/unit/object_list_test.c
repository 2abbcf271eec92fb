/* SPDX-License-Identifier: BSD-3-Clause */
/* object_list_test.c -- the listing of a root on a simulated bucket: what it says, and how many
 * requests it takes. */
#include "catalog/catalog.h"
#include "selection/choose.h"
#include "support/bucket_series.h"
#include "support/unit.h"

#define STEPS 1000u
#define FEW 20u

static struct store *new_store(struct rig *rig)
{
    struct store *store = NULL;
    struct sidestep_error err;

    assert_int_equal(object_store_new("runs", object_sim_client(rig->bucket, 5), &store, &err),
                     SIDESTEP_OK);
    return store;
}

/* Copy step 1 under the name of ${step}. */
static void copy_step(struct rig *rig, unsigned step)
{
    static const char from[] = "job/step-1/";
    char names[PER_CHECKPOINT][256], key[256];
    size_t found = 0, length;

    for (size_t i = 0; i < object_sim_count(rig->bucket) && found < PER_CHECKPOINT; i++)
        if (strncmp(object_sim_key(rig->bucket, i), from, strlen(from)) == 0)
            snprintf(names[found++], sizeof(names[0]), "%s", object_sim_key(rig->bucket, i));
    assert_int_equal(found, PER_CHECKPOINT);
    for (size_t i = 0; i < found; i++) {
        const uint8_t *bytes = object_sim_bytes(rig->bucket, names[i], &length);
        snprintf(key, sizeof(key), "job/step-%u/%s", step, names[i] + strlen(from));
        /* Of the shard, which is large, only that it is there matters. */
        assert_true(object_sim_put(rig->bucket, key, bytes, length < 65536 ? length : 1));
    }
}

/* A bucket with the checkpoints of ${steps} steps. */
static void make_steps(struct rig *rig, unsigned steps)
{
    struct trainer t;

    rig_make(rig, 0);
    open_trainer(rig, 0, 0, &t);
    save_ok(&t, 1);
    close_trainer(&t);
    for (unsigned step = 2; step <= steps; step++)
        copy_step(rig, step);
}

/* List with ${flags}, and return how many requests that took. */
static unsigned list_steps(struct rig *rig, uint32_t flags, struct sidestep_list *list)
{
    struct store *store = new_store(rig);
    struct sidestep_error err = {0};

    atomic_store(&rig->seen, 0);
    assert_int_equal(list_root(store, ROOT "/", flags, list, &err), SIDESTEP_OK);
    object_store_free(&store);
    return atomic_load(&rig->seen);
}

/* The names and sizes of all, the state of the series, and each manifest. Once the index is there,
 * at most one request for 500 names. */
TEST(a_listing_takes_one_request_for_500_names)
{
    struct sidestep_list list = {0};
    struct rig rig;

    make_steps(&rig, STEPS);
    assert_in_range(list_steps(&rig, 0, &list), STEPS, STEPS + 5);
    sidestep_list_release(&list);
    assert_in_range(list_steps(&rig, LIST_KEEPS_INDEX, &list), STEPS, STEPS + 6);
    sidestep_list_release(&list);
    unsigned requests = list_steps(&rig, 0, &list);
    print_message("# %u requests for %zu names\n", requests, object_sim_count(rig.bucket));
    assert_in_range(requests, 1, object_sim_count(rig.bucket) / 500);
    assert_int_equal(list.count, STEPS);
    for (size_t i = 0; i < list.count; i++) {
        assert_int_equal(sidestep_list_entry(&list, i)->state, SIDESTEP_COMMITTED);
        assert_int_equal(sidestep_list_entry(&list, i)->files, PER_CHECKPOINT);
        assert_int_not_equal(sidestep_list_entry(&list, i)->bytes, 0);
    }
    assert_string_equal(sidestep_list_entry(&list, 0)->path, ROOT "/step-1");
    assert_null(sidestep_list_entry(&list, STEPS));
    sidestep_list_release(&list);
    object_sim_free(&rig.bucket);
}

static const struct sidestep_listed *find(const struct sidestep_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(sidestep_list_entry(list, i)->name, name) == 0)
            return sidestep_list_entry(list, i);
    fail_msg("%s is not listed", name);
    return NULL;
}

#define INDEX_KEY "job/.sidestep/index"

/* Put the index with byte ${at} changed. Whatever it says, the listing is the same. */
static void check_with_damage(struct rig *rig, const uint8_t *bytes, size_t length, size_t at)
{
    struct sidestep_list list = {0};
    uint8_t *copy = test_malloc(length);

    memcpy(copy, bytes, length);
    copy[at] ^= 1;
    assert_true(object_sim_put(rig->bucket, INDEX_KEY, copy, length));
    assert_in_range(list_steps(rig, 0, &list), FEW + 1, FEW + 6);
    assert_int_equal(list.count, FEW);
    for (size_t i = 0; i < list.count; i++)
        assert_int_equal(sidestep_list_entry(&list, i)->state, SIDESTEP_COMMITTED);
    sidestep_list_release(&list);
    test_free(copy);
}

TEST(a_damaged_index_is_ignored)
{
    struct sidestep_list list = {0};
    struct rig rig;
    size_t length;

    make_steps(&rig, FEW);
    (void)list_steps(&rig, LIST_KEEPS_INDEX, &list);
    sidestep_list_release(&list);
    const uint8_t *found = object_sim_bytes(rig.bucket, INDEX_KEY, &length);
    assert_non_null(found);
    uint8_t *bytes = test_malloc(length);
    memcpy(bytes, found, length);
    for (size_t at = 0; at < length; at += length / 7)
        check_with_damage(&rig, bytes, length, at);
    assert_true(object_sim_put(rig.bucket, INDEX_KEY, bytes, length / 2));
    assert_in_range(list_steps(&rig, 0, &list), FEW + 1, FEW + 6);
    sidestep_list_release(&list);
    assert_true(object_sim_put(rig.bucket, INDEX_KEY, bytes, length)); /* the control */
    assert_in_range(list_steps(&rig, 0, &list), 1, 6);
    sidestep_list_release(&list);
    test_free(bytes);
    object_sim_free(&rig.bucket);
}

/* A manifest that was put again has another tag, so its copy no longer counts. */
TEST(an_old_copy_is_ignored)
{
    static const char key[] = "job/step-2/.sidestep.manifest.";
    struct sidestep_list list = {0};
    char name[256] = "";
    struct rig rig;

    make_steps(&rig, FEW);
    (void)list_steps(&rig, LIST_KEEPS_INDEX, &list);
    sidestep_list_release(&list);
    for (size_t i = 0; i < object_sim_count(rig.bucket); i++)
        if (strncmp(object_sim_key(rig.bucket, i), key, strlen(key)) == 0)
            snprintf(name, sizeof(name), "%s", object_sim_key(rig.bucket, i));
    assert_true(object_sim_put(rig.bucket, name, "no manifest", 11));
    (void)list_steps(&rig, 0, &list);
    assert_null(find(&list, "step-2")->save_id); /* nobody knows any more which save it is */
    assert_non_null(find(&list, "step-3")->save_id);
    sidestep_list_release(&list);
    object_sim_free(&rig.bucket);
}

TEST(saves_are_listed)
{
    static const char marker[] = "target step-7\nowner 4711\nhost node-3\nstep 7\n";
    static const enum sidestep_presence states[] = {SIDESTEP_SAVING, SIDESTEP_DEAD};
    struct trainer t;
    struct rig rig;

    rig_make(&rig, 0);
    open_trainer(&rig, 0, 0, &t);
    save_ok(&t, 1);
    close_trainer(&t);
    assert_true(object_sim_put(rig.bucket, "job/step-7/.sidestep/" OTHER "/pending", marker,
                               strlen(marker)));
    assert_true(object_sim_put(rig.bucket, "job/step-7/__0_0." OTHER ".distcp", "x", 1));
    struct store *store = new_store(&rig);
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++) {
        struct sidestep_list list = {0};
        struct sidestep_error err = {0};
        assert_int_equal(list_root(store, ROOT, LIST_CHECKED, &list, &err), SIDESTEP_OK);
        assert_int_equal(list.count, 2);
        assert_int_equal(find(&list, "step-1")->state, SIDESTEP_COMMITTED);
        const struct sidestep_listed *saving = find(&list, "step-7");
        assert_int_equal(saving->state, states[i]);
        assert_int_equal(saving->step, 7);
        assert_non_null(strstr(saving->reason, "process 4711 on node-3"));
        sidestep_list_release(&list);
        object_sim_advance(rig.bucket, OBJECT_DEAD_SECONDS + 1);
    }
    object_store_free(&store);
    object_sim_free(&rig.bucket);
}

/* A file that is gone by now is not there in the next listing. */
TEST(what_is_remembered_is_read_anew)
{
    struct store_dir *dir = NULL;
    struct sidestep_error err;
    struct store_stat stat;
    struct rig rig;

    rig_make(&rig, 0);
    assert_true(object_sim_put(rig.bucket, "job/a/x", "x", 1));
    struct store *store = new_store(&rig);
    assert_int_equal(store_dir_open(store, NULL, ROOT, &dir, &err), SIDESTEP_OK);
    assert_int_equal(store_dir_remember(dir, &err), SIDESTEP_OK);
    assert_true(object_sim_put(rig.bucket, "job/b", "x", 1));
    uint64_t requests = object_sim_request_count(rig.bucket);
    assert_int_equal(store_stat(dir, "a", &stat, &err), SIDESTEP_OK);
    assert_int_equal(stat.kind, STORE_DIRECTORY);
    assert_int_equal(store_stat(dir, "a/x", &stat, &err), SIDESTEP_OK);
    assert_int_equal(stat.kind, STORE_FILE);
    assert_int_equal(store_stat(dir, "b", &stat, &err), SIDESTEP_ENOTFOUND);
    assert_int_equal(object_sim_request_count(rig.bucket), requests);
    assert_int_equal(store_dir_remember(dir, &err), SIDESTEP_OK);
    assert_int_equal(store_stat(dir, "b", &stat, &err), SIDESTEP_OK);
    store_dir_close(dir);
    object_store_free(&store);
    object_sim_free(&rig.bucket);
}

static void save_step_1_again(struct rig *rig)
{
    struct sidestep_engine *engine = rig_engine(rig, NULL, 1);
    struct sidestep_error err;
    struct world world;

    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, false);
    world_fill(&world, 7);
    assert_int_equal(sidestep_save(engine, ROOT "/step-1", world.state, NULL, NULL, &err),
                     SIDESTEP_OK);
    (void)sidestep_engine_close(&engine, NULL);
    world_free(&world);
}

/* What the listing remembers of it is no longer so. */
TEST(a_checkpoint_that_was_replaced_since_it_was_listed_is_not_damaged)
{
    struct sidestep_list list = {0};
    struct sidestep_error err = {0};
    size_t chosen = 1;
    struct rig rig;
    bool gone;

    make_steps(&rig, 1);
    struct store *store = new_store(&rig);
    assert_int_equal(list_root(store, ROOT "/", LIST_STAYS_OPEN, &list, &err), SIDESTEP_OK);
    const struct choose_options how = {
        .store = store, .root = list_root_dir(&list), .mode = SIDESTEP_VERIFY_STRUCTURE};
    save_step_1_again(&rig);
    if (choose_newest_valid(&how, &list, &chosen, &gone, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    assert_true(chosen == 0 && !gone);
    sidestep_list_release(&list);
    object_store_free(&store);
    object_sim_free(&rig.bucket);
}
