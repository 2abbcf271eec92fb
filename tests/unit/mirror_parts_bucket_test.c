/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_parts_bucket_test.c -- a process that goes on with a save of parts to a bucket: what it
 * shows to others, asks the store, and leaves. */
#include "commit/object_form.h"
#include "support/part_sends.h"

static bool is_refusing;

static enum object_fate refuse(void *context UNUSED, int client UNUSED, const char *request UNUSED,
                               const char *key)
{
    return is_refusing && strstr(key, "/pending") != NULL ? OBJECT_FORBIDDEN : OBJECT_DONE;
}

static enum sidestep_status begin_in(struct object_bucket *bucket, int client, bool puts)
{
    struct sidestep_error why = {0};
    OWNED_STORE *store = NULL;

    OK(object_store_new("runs", object_sim_client(bucket, client), &store, &err));
    struct commit commit = make_commit(store, 0);
    enum sidestep_status status = commit_open(&commit, "s3://runs/far/step-1", &why);
    if (status == SIDESTEP_OK)
        status = commit_begin(&commit, id, &why);
    if (puts)
        OK(put(&commit, 'a'));
    commit_close(&commit);
    return status;
}

/* A save that cannot be gone on with now keeps what it has. */
TEST(what_is_gone_on_with_stays_if_that_fails)
{
    struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    char key[128];
    size_t length;

    assert_non_null(bucket);
    object_sim_set_hook(bucket, refuse, NULL);
    assert_int_equal(begin_in(bucket, 0, true), SIDESTEP_OK);
    snprintf(key, sizeof(key), "far/step-1/__0_0.%s.distcp", save_id);
    assert_non_null(object_sim_bytes(bucket, key, &length));
    is_refusing = true;
    assert_int_not_equal(begin_in(bucket, 1, false), SIDESTEP_OK);
    is_refusing = false;
    assert_non_null(object_sim_bytes(bucket, key, &length));
    object_sim_advance(bucket, OBJECT_DEAD_SECONDS + 1); /* also after a night */
    assert_int_equal(begin_in(bucket, 2, false), SIDESTEP_OK);
    assert_non_null(object_sim_bytes(bucket, key, &length));
    object_sim_free(&bucket);
}

/* How old is the newest object of the save, for a sweep elsewhere? */
static int64_t age_of_marker(struct object_bucket *bucket)
{
    struct object_client *client = object_sim_client(bucket, 9);
    struct object_info info = {0};
    char key[128];

    snprintf(key, sizeof(key), "far/step-1/.sidestep/%s/pending", save_id);
    assert_non_null(client);
    OK(client->ops->head(client, key, &info, &err));
    object_client_free(&client);
    return info.now - info.modified;
}

/* Who goes on with a save shows at once that it lives. */
TEST(who_goes_on_puts_the_marker_anew)
{
    struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);

    assert_non_null(bucket);
    assert_int_equal(begin_in(bucket, 0, true), SIDESTEP_OK);
    object_sim_advance(bucket, OBJECT_DEAD_SECONDS - 1);
    assert_int_equal(begin_in(bucket, 1, false), SIDESTEP_OK);
    assert_int_equal(age_of_marker(bucket), 0);
    object_sim_free(&bucket);
}

/* Is the store asked whether it keeps conditions, also by who goes on? */
TEST(who_goes_on_finds_out_whether_the_bucket_keeps_conditions)
{
    struct object_bucket *bucket = object_sim_new(OBJECT_SIM_IGNORES_IF_MATCH, 0);
    OWNED_STORE *store = NULL;

    assert_non_null(bucket);
    assert_true(object_sim_put(bucket, "far/step-1/.metadata", "old", 3));
    OK(object_store_new("runs", object_sim_client(bucket, 0), &store, &err));
    for (int turn = 0; turn < 2; turn++) {
        struct commit commit = make_commit(store, 0);
        commit.request.no_replace = false;
        OK(commit_open(&commit, "s3://runs/far/step-1", &err));
        OK(commit_begin(&commit, id, &err));
        assert_false(commit.objects->is_conditional);
        commit_close(&commit);
    }
    object_store_free(&store);
    object_sim_free(&bucket);
}

static enum object_fate delay_metadata(void *context, int client UNUSED, const char *request,
                                       const char *key)
{
    bool *delays = context;
    size_t length = strlen(key);

    return *delays && strcmp(request, "put") == 0 && length > 9 &&
                   strcmp(key + length - 9, ".metadata") == 0
               ? OBJECT_LATE
               : OBJECT_DONE;
}

/* Put both parts and publish, or give it up. */
static void send_to(struct object_bucket *bucket, int number, bool gives_up)
{
    OWNED_BY(commit_contents_release) struct commit_contents contents = {0};
    struct sidestep_error why = {.message = "a node refuses"};
    enum commit_outcome outcome = COMMIT_ABORTED;
    OWNED_STORE *store = NULL, *theirs = NULL;

    OK(object_store_new("runs", object_sim_client(bucket, number), &store, &err));
    OK(object_store_new("runs", object_sim_client(bucket, number + 1), &theirs, &err));
    struct commit commit = make_commit(store, 0), other = make_commit(theirs, 1);
    OK(commit_open(&commit, "s3://runs/far/step-1", &err));
    commit_set_save_id(&commit, id);
    OK(commit_begin(&commit, id, &err));
    OK(commit_open(&other, "s3://runs/far/step-1", &err));
    commit_set_save_id(&other, id);
    OK(commit_join(&other, &err));
    OK(put(&commit, 'a'));
    OK(put(&other, 'b'));
    if (gives_up) {
        commit_abort(&commit, &why);
    } else {
        OK(commit_collect_votes(&commit, &contents, &err));
        assert_int_not_equal(commit_publish(&commit, &contents, &outcome, &err), SIDESTEP_OK);
        assert_int_equal(outcome, COMMIT_UNKNOWN);
    }
    commit_close(&other);
    commit_close(&commit);
}

/* .metadata may arrive after the next attempt was given up: then what it names must be there. */
TEST(what_a_late_metadata_names_stays)
{
    struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    bool delays = true;
    char key[128];
    size_t length;

    assert_non_null(bucket);
    object_sim_set_hook(bucket, delay_metadata, &delays);
    send_to(bucket, 0, false);
    delays = false;
    send_to(bucket, 2, true);
    assert_int_not_equal(object_sim_late_count(bucket), 0);
    while (object_sim_late_count(bucket) != 0)
        object_sim_land(bucket, 0);
    assert_non_null(object_sim_bytes(bucket, "far/step-1/.metadata", &length));
    for (int rank = 0; rank < 2; rank++) {
        snprintf(key, sizeof(key), "far/step-1/__%d_0.%s.distcp", rank, save_id);
        assert_non_null(object_sim_bytes(bucket, key, &length));
    }
    object_sim_free(&bucket);
}
