/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror_bucket_test.c -- a mirror in a simulated bucket: whole or not there, whatever a request
 * meets, and what others put there stays.
 */
#include "mirror/mirror.h"
#include "support/object_sim.h"
#include "support/one_rank.h"

static char near[128];
static struct sidestep_series *series;
static struct sidestep_mirror_report report;
static struct sidestep_mirror_options options;
static struct sidestep_retention keep;

static int set_up(void **test UNUSED)
{
    if (one_rank_begin(NULL) != 0)
        return -1;
    snprintf(near, sizeof(near), "%s", scratch_path(&scratch, "near"));
    options = (struct sidestep_mirror_options)SIDESTEP_MIRROR_OPTIONS_INIT;
    keep = (struct sidestep_retention)SIDESTEP_RETENTION_INIT;
    return sidestep_series_open(engine, near, NULL, &series, &err) == SIDESTEP_OK ? 0 : -1;
}

static int tear_down(void **test UNUSED)
{
    sidestep_mirror_report_release(&report);
    return sidestep_series_close(&series, NULL) == SIDESTEP_OK ? one_rank_end() : -1;
}

static enum sidestep_status mirror_to(struct object_bucket *bucket)
{
    struct store *store = NULL;
    struct mirror_look look = {.options = options, .clock = clock_system()};

    sidestep_mirror_report_release(&report);
    ASSERT_OK(object_store_new("runs", object_sim_client(bucket, 1), &store, &err));
    look.near = (struct mirror_level){.root = near, .store = store_posix()};
    look.far = (struct mirror_level){.root = "s3://runs/far", .store = store};
    enum sidestep_status status = mirror_run(&look, &report, &err);
    name_list_release(&look.settled);
    object_store_free(&store);
    return status;
}

static const char *key_of(uint64_t step, const char *file)
{
    static char keys[4][64];
    static unsigned next;
    char *key = keys[next++ % 4];

    snprintf(key, sizeof(keys[0]), "far/step-%llu/%s", (unsigned long long)step, file);
    return key;
}

static bool is_in_bucket(struct object_bucket *bucket, uint64_t step)
{
    size_t length;

    return object_sim_bytes(bucket, key_of(step, ".metadata"), &length) != NULL;
}

TEST(a_bucket_gets_whole_ones)
{
    static const enum object_fate fates[] = {OBJECT_LOST, OBJECT_REFUSED, OBJECT_LATE};
    struct object_meeting meeting = {0};
    struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
    uint64_t saved = 0;

    object_sim_set_hook(bucket, object_sim_meet, &meeting);
    options.threads = 1;
    keep.keep_last = 2;
    options.retention = &keep;
    for (size_t f = 0; f < ARRAY_LENGTH(fates); f++)
        for (bool met = true; met;) {
            save_step(series, ++saved);
            meeting = (struct object_meeting){.at = meeting.at + 2, .fate = fates[f]};
            enum sidestep_status status = mirror_to(bucket);
            met = meeting.seen >= meeting.at;
            if (status == SIDESTEP_OK && !is_in_bucket(bucket, saved))
                fail_msg("request %u: it says OK, and it is not there", meeting.at);
            unsigned at = meeting.at;
            meeting.at = 0;
            while (object_sim_late_count(bucket) != 0)
                object_sim_land(bucket, 0);
            object_sim_advance(bucket, OBJECT_DEAD_SECONDS + 1); /* sweeps wait for that */
            if (mirror_to(bucket) != SIDESTEP_OK)
                fail_msg("after request %u: %s", at, err.message);
            if (!is_in_bucket(bucket, saved))
                fail_msg("fate %zu of request %u: step %llu is not there: %s", f, at,
                         (unsigned long long)saved,
                         report.passed_count != 0 ? report.passed[0] : "");
            assert_int_equal(report.mirrored_step, saved);
            meeting.at = met ? at : 1;
        }
    object_sim_free(&bucket);
}

/* Somebody puts a checkpoint of another program under the name. */
struct other {
    struct object_bucket *bucket;
    uint64_t step;
    unsigned seen, at;
    bool has_put;
};

#define THEIRS "of another program"

static enum object_fate put_theirs(void *context, int client UNUSED, const char *request UNUSED,
                                   const char *key UNUSED)
{
    struct other *other = context;

    if (__atomic_add_fetch(&other->seen, 1, __ATOMIC_SEQ_CST) != other->at ||
        is_in_bucket(other->bucket, other->step))
        return OBJECT_DONE;
    other->has_put =
        object_sim_put(other->bucket, key_of(other->step, ".metadata"), THEIRS, sizeof(THEIRS)) &&
        object_sim_put(other->bucket, key_of(other->step, "a.distcp"), THEIRS, sizeof(THEIRS));
    return OBJECT_DONE;
}

static void expect_theirs(const struct other *other, const char *file)
{
    size_t length = 0;
    const uint8_t *bytes = object_sim_bytes(other->bucket, key_of(other->step, file), &length);

    if (bytes == NULL || length != sizeof(THEIRS) || memcmp(bytes, THEIRS, length) != 0)
        fail_msg("request %u: their %s is gone", other->at, file);
}

TEST(what_others_put_under_the_name_stays)
{
    struct other other = {0};
    unsigned put = 0;

    options.threads = 1;
    keep.keep_last = 1;
    options.retention = &keep;
    do {
        struct object_bucket *bucket = object_sim_new(0, OBJECT_MIN_PART_BYTES);
        other = (struct other){.bucket = bucket, .step = other.step + 1, .at = other.at + 1};
        object_sim_set_hook(bucket, put_theirs, &other);
        save_step(series, other.step);
        (void)mirror_to(bucket);
        object_sim_advance(bucket, OBJECT_DEAD_SECONDS + 1); /* sweeps wait for that */
        (void)mirror_to(bucket);
        if (other.has_put) {
            put++;
            expect_theirs(&other, ".metadata");
            expect_theirs(&other, "a.distcp");
        }
        object_sim_free(&bucket);
    } while (other.seen >= other.at && other.at < 200);
    assert_in_range(put, 3, 199);
}

EACH_TEST(set_up, tear_down);
