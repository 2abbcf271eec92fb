/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_beside_test.c -- saves to a simulated bucket beside other saves, late requests, sweeps and
 * leases. Each of these steps is also broken on purpose, and the test must notice it.
 */
#include "support/object_rig.h"
#include "support/unit.h"

/* ---- saves beside each other */

static void save_beside(struct rig *rig)
{
    struct sidestep_error err;

    rig->client = 7;
    if (save_once(rig, 3, false, &err) != SIDESTEP_OK)
        fail_msg("the save beside: %s", err.message);
    rig->client = 0;
}

/* Another save commits after this one has looked at .metadata. */
static bool a_checkpoint_that_came_meanwhile_stays(bool replaces)
{
    struct sidestep_error err = {0};
    struct rig rig;

    rig_make(&rig, 0);
    if (replaces)
        assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    rig.before = "put", rig.key = "/.metadata", rig.act = save_beside;
    enum sidestep_status status = save_once(&rig, 2, false, &err);
    bool stays = status == SIDESTEP_EEXISTS && held(&rig, 2, 3) == 3;
    if (stays)
        settle(&rig);
    object_sim_free(&rig.bucket);
    return stays;
}

TEST(commits_have_a_condition)
{
    for (int replaces = 0; replaces <= 1; replaces++) {
        assert_true(a_checkpoint_that_came_meanwhile_stays(replaces));
        fault_arm("object.condition", 1, true, EIO);
        assert_false(a_checkpoint_that_came_meanwhile_stays(replaces));
        fault_arm("", 0, false, 0);
    }
}

static void delete_beside(struct rig *rig)
{
    const char *const keys[] = {PREFIX ".metadata"};
    struct object_client *client = object_sim_client(rig->bucket, 8);

    assert_int_equal(client->ops->delete_keys(client, keys, 1, NULL), SIDESTEP_OK);
    object_client_free(&client);
}

/* What is to be replaced is deleted after this save has looked at it. */
TEST(a_checkpoint_that_was_deleted_is_not_replaced)
{
    struct sidestep_error err = {0};
    struct rig rig;

    rig_make(&rig, 0);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    rig.before = "put", rig.key = "/.metadata", rig.act = delete_beside;
    assert_int_equal(save_once(&rig, 2, false, &err), SIDESTEP_EEXISTS);
    assert_non_null(strstr(err.message, "was deleted meanwhile"));
    assert_int_equal(held(&rig, 1, 2), 0);
    settle(&rig);
    object_sim_free(&rig.bucket);
}

static enum object_fate save_beside_the_vote(void *context, int client, const char *request,
                                             const char *key)
{
    struct rig *rig = context;

    if (client == 0 && strcmp(request, "put") == 0 && file_name_has_suffix(key, "/yes.0"))
        save_beside(rig);
    return OBJECT_DONE;
}

/* A store that keeps If-None-Match and ignores If-Match has no conditions for a save that
 * replaces, which compares instead. */
static bool the_condition_of_the_commit_is_probed(void)
{
    struct sidestep_error err = {0};
    struct rig rig;

    rig_make(&rig, OBJECT_SIM_IGNORES_IF_MATCH);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    object_sim_set_hook(rig.bucket, save_beside_the_vote, &rig);
    enum sidestep_status status = save_once(&rig, 2, false, &err);
    object_sim_set_hook(rig.bucket, NULL, NULL);
    bool stays = status == SIDESTEP_EEXISTS && held(&rig, 2, 3) == 3;
    object_sim_free(&rig.bucket);
    return stays;
}

TEST(the_probe_is_about_the_condition_of_the_commit)
{
    assert_true(the_condition_of_the_commit_is_probed());
    fault_arm("object.probe", 1, true, EIO);
    assert_false(the_condition_of_the_commit_is_probed());
    fault_arm("", 0, false, 0);
}

static enum sidestep_status load_any(struct rig *rig)
{
    struct sidestep_engine *engine = rig_engine(rig, NULL, 60);
    struct sidestep_error err;
    struct world world;

    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status = sidestep_load(engine, PATH, world.state, NULL, NULL, &err);
    (void)sidestep_engine_close(&engine, NULL);
    world_free(&world);
    return status;
}

/* The client of the commit hears no answer, and the request arrives after the save has ended. */
static bool a_late_commit_is_whole(void)
{
    struct sidestep_error err;
    size_t length;

    for (unsigned at = 1; at < 100; at++) {
        struct rig rig;
        rig_make(&rig, 0);
        rig.fate = OBJECT_LATE;
        atomic_store(&rig.at, at);
        enum sidestep_status status = save_once(&rig, 2, false, &err);
        rig.at = 0;
        bool was_commit = object_sim_late_count(rig.bucket) == 1 &&
                          object_sim_bytes(rig.bucket, PREFIX ".metadata", &length) == NULL;
        if (was_commit)
            object_sim_land(rig.bucket, 0);
        was_commit =
            was_commit && object_sim_bytes(rig.bucket, PREFIX ".metadata", &length) != NULL;
        bool is_whole = was_commit && load_any(&rig) == SIDESTEP_OK && status == SIDESTEP_EUNKNOWN;
        object_sim_free(&rig.bucket);
        if (was_commit)
            return is_whole;
    }
    return false;
}

TEST(silence_is_not_taken_for_failure)
{
    assert_true(a_late_commit_is_whole());
    fault_arm("object.silence", 1, true, EIO);
    assert_false(a_late_commit_is_whole());
    fault_arm("", 0, false, 0);
}

/* ---- loads beside a save */

struct load_beside {
    struct rig *rig;
    unsigned at, seen; /* requests of the load, from 1 on */
};

static enum object_fate replace_before(void *context, int client, const char *request UNUSED,
                                       const char *key UNUSED)
{
    struct load_beside *l = context;

    if (client == 60 && ++l->seen == l->at)
        save_beside(l->rig);
    return OBJECT_DONE;
}

static bool was_replaced(enum sidestep_status status)
{
    return status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT;
}

/* A load sees one of the two checkpoints, or says that files of the old one are gone, but never
 * that there is none. */
TEST(a_load_beside_a_save_finds_a_checkpoint)
{
    unsigned loaded = 0, replaced = 0;

    for (struct load_beside l = {.at = 1};; l.at++) {
        struct sidestep_error err;
        struct rig rig;
        rig_make(&rig, 0);
        assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
        l.rig = &rig, l.seen = 0;
        object_sim_set_hook(rig.bucket, replace_before, &l);
        enum sidestep_status status = load_any(&rig);
        if (status != SIDESTEP_OK && !was_replaced(status))
            fail_msg("replaced before request %u: the load says %d", l.at, (int)status);
        object_sim_set_hook(rig.bucket, NULL, NULL);
        loaded += status == SIDESTEP_OK, replaced += status != SIDESTEP_OK;
        assert_int_equal(held(&rig, 1, 3), l.seen >= l.at ? 3 : 1);
        object_sim_free(&rig.bucket);
        if (l.seen < l.at)
            break;
    }
    assert_true(loaded >= 6 && replaced >= 1);
}

/* ---- what is left, and who is dead */

#define OTHER "00112233445566778899aabbccddeeff"

static size_t count_of_other(struct rig *rig)
{
    size_t count = 0;

    for (size_t i = 0; i < object_sim_count(rig->bucket); i++)
        count += strstr(object_sim_key(rig->bucket, i), OTHER) != NULL;
    return count;
}

/* Another process began a save ${age} seconds ago. Is it still there after a save of ours? */
static bool another_save_stays(int64_t age)
{
    static const char *const keys[] = {PREFIX ".sidestep/" OTHER "/pending",
                                       PREFIX "__0_0." OTHER ".distcp"};
    struct sidestep_error err;
    struct rig rig;

    rig_make(&rig, 0);
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        assert_true(object_sim_put(rig.bucket, keys[i], "x", 1));
    object_sim_advance(rig.bucket, age);
    assert_int_equal(save_once(&rig, 2, false, &err), SIDESTEP_OK);
    size_t left = count_of_other(&rig);
    object_sim_free(&rig.bucket);
    assert_true(left == 0 || left == ARRAY_LENGTH(keys));
    return left != 0;
}

TEST(sweeps_know_who_is_dead)
{
    assert_true(another_save_stays(0));
    assert_true(another_save_stays(OBJECT_DEAD_SECONDS));
    assert_false(another_save_stays(OBJECT_DEAD_SECONDS + 1));
    fault_arm("object.dead", 1, true, EIO);
    assert_false(another_save_stays(0));
    fault_arm("", 0, false, 0);
}

/* An upload of a living save is older than an hour; that of a dead one is aborted. */
TEST(uploads_of_living_saves_go_on)
{
    static const char key[] = PREFIX "__0_0." OTHER ".distcp";
    char id[OBJECT_UPLOAD_ID_BYTES];
    struct sidestep_error err;
    struct rig rig;

    rig_make(&rig, 0);
    struct object_client *client = object_sim_client(rig.bucket, 9);
    assert_int_equal(client->ops->upload_begin(client, key, NULL, id, &err), SIDESTEP_OK);
    object_sim_advance(rig.bucket, 2 * OBJECT_DEAD_SECONDS);
    assert_true(object_sim_put(rig.bucket, PREFIX ".sidestep/" OTHER "/pending", "x", 1));
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    assert_int_equal(object_sim_upload_count(rig.bucket), 1);
    object_sim_advance(rig.bucket, OBJECT_DEAD_SECONDS + 1);
    assert_int_equal(save_once(&rig, 2, false, &err), SIDESTEP_OK);
    assert_int_equal(object_sim_upload_count(rig.bucket), 0);
    object_client_free(&client);
    object_sim_free(&rig.bucket);
}

static void sweep(struct rig *rig)
{
    struct store_dir *dir = NULL;
    struct store *store = NULL;
    struct sidestep_error err;

    assert_int_equal(object_store_new("runs", object_sim_client(rig->bucket, 5), &store, &err),
                     SIDESTEP_OK);
    assert_int_equal(store_dir_open(store, NULL, PATH, &dir, &err), SIDESTEP_OK);
    object_sweep_dead(dir, NULL);
    store_dir_close(dir);
    object_store_free(&store);
}

/* The checkpoint is older than an hour, and its rank 0 died before it removed its marker. */
static bool a_sweep_keeps_what_metadata_names(void)
{
    struct sidestep_error err;
    char key[OBJECT_KEY_BYTES];
    struct rig rig;

    rig_make(&rig, 0);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    for (size_t i = 0; i < object_sim_count(rig.bucket); i++) {
        const char *at = strstr(object_sim_key(rig.bucket, i), ".manifest.");
        if (at != NULL)
            snprintf(key, sizeof(key), PREFIX ".sidestep/%s/pending", at + strlen(".manifest."));
    }
    assert_true(object_sim_put(rig.bucket, key, "x", 1));
    object_sim_advance(rig.bucket, OBJECT_DEAD_SECONDS * 2);
    sweep(&rig);
    bool kept = object_sim_count(rig.bucket) == 3 && load_any(&rig) == SIDESTEP_OK;
    object_sim_free(&rig.bucket);
    return kept;
}

/* .metadata cannot be read any more, and does not say which shards are its own. */
TEST(what_was_damaged_is_swept_when_it_is_replaced)
{
    struct sidestep_error err;
    struct rig rig;

    rig_make(&rig, 0);
    assert_int_equal(save_once(&rig, 1, false, &err), SIDESTEP_OK);
    object_sim_flip(rig.bucket, PREFIX ".metadata", 8);
    object_sim_advance(rig.bucket, OBJECT_DEAD_SECONDS + 1);
    sweep(&rig);
    assert_int_equal(object_sim_count(rig.bucket), 3);
    assert_int_equal(save_once(&rig, 2, false, &err), SIDESTEP_OK);
    assert_int_equal(held(&rig, 2, 2), 2);
    assert_int_equal(object_sim_count(rig.bucket), 3);
    object_sim_free(&rig.bucket);
}

TEST(sweeps_keep_checkpoints)
{
    assert_true(a_sweep_keeps_what_metadata_names());
    fault_arm("object.named", 1, true, EIO);
    assert_false(a_sweep_keeps_what_metadata_names());
    fault_arm("", 0, false, 0);
}

/* ---- the commit alone */

static uint64_t time_ns = 1;
static uint64_t tell_time(struct clock *clock UNUSED)
{
    return time_ns;
}

struct lone_commit {
    struct rig rig;
    struct commit commit;
    struct metadata metadata;
    struct buffer bytes;
};

static void begin_alone(struct lone_commit *l, struct clock *clock)
{
    const uint8_t id[SAVE_ID_BYTES] = {1, 2, 3};
    struct sidestep_error err;

    *l = (struct lone_commit){.commit = {.clock = clock, .world_size = 1, .request.step = -1}};
    rig_make(&l->rig, 0);
    assert_int_equal(
        object_store_new("runs", object_sim_client(l->rig.bucket, 0), &l->commit.store, &err),
        SIDESTEP_OK);
    assert_int_equal(commit_open(&l->commit, PATH, &err), SIDESTEP_OK);
    assert_int_equal(commit_begin(&l->commit, id, &err), SIDESTEP_OK);
    l->metadata.save_id = l->commit.save_id;
    l->metadata.checkpoint_id = PATH;
    assert_int_equal(dcp_metadata_write(&l->bytes, &l->metadata, &err), SIDESTEP_OK);
}

static void end_alone(struct lone_commit *l)
{
    commit_close(&l->commit);
    object_store_free(&l->commit.store);
    object_sim_free(&l->rig.bucket);
    buffer_release(&l->bytes);
}

/* The answer to the commit was lost, and the client repeated it: 412, but the checkpoint is ours.
 */
static bool a_repeated_commit_is_recognised(void)
{
    enum commit_outcome outcome = COMMIT_ABORTED;
    struct sidestep_error err;
    struct lone_commit l;

    begin_alone(&l, clock_system());
    assert_true(object_sim_put(l.rig.bucket, PREFIX ".metadata", l.bytes.bytes, l.bytes.length));
    enum sidestep_status status = object_commit_metadata(&l.commit, &l.bytes, &outcome, &err);
    end_alone(&l);
    return status == SIDESTEP_OK && outcome == COMMIT_COMMITTED;
}

TEST(a_refusal_is_read_back)
{
    assert_true(a_repeated_commit_is_recognised());
    fault_arm("object.read_back", 1, true, EIO);
    assert_false(a_repeated_commit_is_recognised());
    fault_arm("", 0, false, 0);
}

static bool a_lease_ends(uint64_t seconds)
{
    struct clock clock = {.now_ns = tell_time};
    enum commit_outcome outcome = COMMIT_ABORTED;
    struct commit_contents contents = {0};
    struct sidestep_error err;
    struct lone_commit l;

    begin_alone(&l, &clock);
    contents.manifest.world_size = 1;
    memcpy(contents.manifest.save_id, l.commit.save_id, sizeof(contents.manifest.save_id));
    contents.metadata.save_id = l.commit.save_id;
    contents.metadata.checkpoint_id = PATH;
    time_ns += seconds * 1000000000u;
    enum sidestep_status status = commit_publish(&l.commit, &contents, &outcome, &err);
    end_alone(&l);
    assert_true(status == SIDESTEP_OK || outcome == COMMIT_ABORTED);
    return status == SIDESTEP_EABORTED && strstr(err.message, "renewed") != NULL;
}

TEST(nobody_commits_after_the_lease)
{
    assert_false(a_lease_ends(OBJECT_LEASE_SECONDS));
    assert_true(a_lease_ends(OBJECT_LEASE_SECONDS + 1));
    fault_arm("object.lease", 1, true, EIO);
    assert_false(a_lease_ends(OBJECT_LEASE_SECONDS + 1));
    fault_arm("", 0, false, 0);
}

/* ---- a rank that says nothing */

#define SILENCE_SECONDS 600u /* how long rank 0 waits for it */

static struct object_bucket *refreshed;

/* Let time pass, and put the marker again as the keeper of rank 0 does. After many times what rank
 * 0 may wait, remove it: that ends the save in another way. */
static void sleep_and_refresh(struct clock *clock UNUSED, uint64_t ms)
{
    static const char marker[] = PREFIX ".sidestep/01020300000000000000000000000000/pending";
    const uint64_t refresh_ns = OBJECT_REFRESH_SECONDS * UINT64_C(1000000000);
    const char *const keys[] = {marker};
    uint64_t before = time_ns;

    time_ns += ms * 1000000u;
    if (time_ns / refresh_ns == before / refresh_ns)
        return;
    object_sim_advance(refreshed, OBJECT_REFRESH_SECONDS);
    assert_true(object_sim_put(refreshed, marker, "x", 1));
    if (time_ns > 10 * SILENCE_SECONDS * UINT64_C(1000000000)) {
        struct object_client *client = object_sim_client(refreshed, 8);
        (void)client->ops->delete_keys(client, keys, 1, NULL);
        object_client_free(&client);
    }
}

TEST(a_silent_rank_is_not_waited_for_while_rank_0_lives)
{
    struct clock clock = {.now_ns = tell_time, .sleep_ms = sleep_and_refresh};
    struct commit_contents contents = {0};
    struct sidestep_error err;
    struct lone_commit l;

    time_ns = 1;
    begin_alone(&l, &clock);
    refreshed = l.rig.bucket;
    l.commit.world_size = 2;
    l.commit.request.timeout_ns = SILENCE_SECONDS * UINT64_C(1000000000);
    assert_int_equal(object_vote_yes(&l.commit, &err), SIDESTEP_OK);
    assert_int_equal(commit_collect_votes(&l.commit, &contents, &err), SIDESTEP_ETIMEDOUT);
    assert_non_null(strstr(err.message, "no word from rank 1 "));
    assert_true(time_ns < 2 * SILENCE_SECONDS * UINT64_C(1000000000));
    commit_contents_release(&contents);
    end_alone(&l);
}
