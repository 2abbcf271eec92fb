/* SPDX-License-Identifier: BSD-3-Clause */
/* store_sim_test.c -- the simulated disk loses what it may lose, and nothing else. */
#include "base/owned.h"
#include "support/store_sim.h"
#include "support/unit.h"

#define ALL UINT64_MAX
#define NOTHING 0u

struct bench {
    struct sim *sim;
    struct store_dir *root;
    struct sidestep_error err;
};

#define assert_ok(call) assert_int_equal((call), SIDESTEP_OK)
#define OWNED_SIM __attribute__((cleanup(sim_free))) struct sim

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    *state = b;
    b->sim = sim_new(0);
    return (int)store_dir_open(sim_store(b->sim, 0), NULL, "/", &b->root, NULL);
}

static int teardown(void **state)
{
    struct bench *b = *state;

    store_dir_close(b->root);
    sim_free(&b->sim);
    free(b);
    return 0;
}

static void put(struct store_dir *at, const char *name, const char *text, bool sync)
{
    OWNED_FILE *file = NULL;

    assert_ok(store_file_create(at, name, 0, &file, NULL));
    assert_ok(store_file_write_at(file, text, strlen(text), 0, NULL));
    if (sync)
        assert_ok(store_file_sync(file, NULL));
}

static struct store_dir *make_dir(struct store_dir *at, const char *name)
{
    struct store_dir *dir = NULL;

    assert_ok(store_dir_make(at, name, NULL));
    assert_ok(store_dir_open(at->store, at, name, &dir, NULL));
    return dir;
}

/* The content of ${path}; "-": there is no such file. */
static const char *contents(struct sim *sim, const char *path)
{
    static char text[64];
    OWNED_DIR *root = NULL;
    OWNED_FILE *file = NULL;
    struct store_stat st;

    assert_ok(store_dir_open(sim_store(sim, 1), NULL, "/", &root, NULL));
    enum sidestep_status status = store_file_open(root, path, 0, &file, NULL);
    if (status == SIDESTEP_ENOTFOUND)
        return "-";
    assert_ok(status);
    assert_ok(store_file_stat(file, &st, NULL));
    assert_ok(store_file_read_at(file, text, st.size, 0, NULL));
    text[st.size] = '\0';
    return text;
}

static void assert_after_crash(struct bench *b, uint64_t ops, uint64_t files, const char *path,
                               const char *expected)
{
    OWNED_SIM *left = sim_crash_bits(b->sim, ops, files);

    assert_non_null(left);
    assert_string_equal(contents(left, path), expected);
    assert_int_equal(sim_pending_count(left), 0);
    assert_int_equal(sim_dirty_count(left), 0);
}

TEST(names_and_contents_are_synced_apart)
{
    struct bench *b = *fixture;

    put(b->root, "f", "text", false);
    assert_int_equal(sim_pending_count(b->sim), 1);
    assert_int_equal(sim_dirty_count(b->sim), 1);
    assert_after_crash(b, NOTHING, SIM_NEW, "f", "-");
    assert_after_crash(b, ALL, SIM_NEW, "f", "text");
    assert_after_crash(b, ALL, SIM_TORN, "f", "te");
    assert_after_crash(b, ALL, SIM_OLD, "f", "");
    assert_after_crash(b, ALL, SIM_EMPTY, "f", "");
    assert_ok(store_dir_sync(b->root, &b->err));
    assert_after_crash(b, NOTHING, SIM_EMPTY, "f", "");
    put(b->root, "g", "text", true);
    assert_after_crash(b, NOTHING, SIM_NEW, "g", "-");
    assert_int_equal(sim_dirty_count(b->sim), 1);
    assert_ok(store_dir_sync(b->root, &b->err));
    assert_after_crash(b, NOTHING, SIM_EMPTY, "g", "text");
}

TEST(old_contents_stay_until_synced)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = NULL;

    put(b->root, "f", "old", true);
    assert_ok(store_dir_sync(b->root, &b->err));
    assert_ok(store_file_open(b->root, "f", STORE_WRITE, &file, &b->err));
    assert_ok(store_file_write_at(file, "newer!", 6, 0, &b->err));
    assert_after_crash(b, NOTHING, SIM_OLD, "f", "old");
    assert_after_crash(b, NOTHING, SIM_NEW, "f", "newer!");
    assert_after_crash(b, NOTHING, SIM_TORN, "f", "new");
    assert_after_crash(b, NOTHING, SIM_EMPTY, "f", "");
    assert_ok(store_file_sync(file, &b->err));
    assert_after_crash(b, NOTHING, SIM_EMPTY, "f", "newer!");
}

TEST(a_rename_is_durable_by_either_directory)
{
    for (int by_source = 0; by_source < 2; by_source++) {
        (void)teardown(fixture);
        assert_int_equal(setup(fixture), 0);
        struct bench *b = *fixture;
        OWNED_DIR *from = make_dir(b->root, "from"), *to = make_dir(b->root, "to");
        assert_ok(store_dir_sync(b->root, &b->err));
        put(from, "f", "text", true);
        assert_ok(store_rename(from, "f", to, "g", STORE_NOREPLACE, &b->err));
        assert_after_crash(b, NOTHING, 0, "to/g", "-");
        assert_after_crash(b, 1, 0, "from/f", "text");
        assert_ok(store_dir_sync(by_source ? from : to, &b->err));
        assert_int_equal(sim_pending_count(b->sim), 0);
        assert_after_crash(b, NOTHING, 0, "to/g", "text");
        assert_after_crash(b, NOTHING, 0, "from/f", "-");
    }
}

TEST(operations_that_depend_on_a_lost_one_are_lost)
{
    struct bench *b = *fixture;

    put(b->root, "a", "1", true);                                                /* 0 */
    assert_ok(store_rename(b->root, "a", b->root, "b", STORE_REPLACE, &b->err)); /* 1 */
    put(b->root, "a", "2", true);                                                /* 2 */
    assert_ok(store_unlink(b->root, "b", &b->err));                              /* 3 */
    assert_int_equal(sim_pending_count(b->sim), 4);
    assert_after_crash(b, 1 << 1, 0, "b", "-");
    assert_after_crash(b, 1 << 0 | 1 << 2, 0, "a", "1");
    assert_after_crash(b, 1 << 0 | 1 << 3, 0, "a", "1");
    assert_after_crash(b, 1 << 0 | 1 << 1, 0, "b", "1");
    assert_after_crash(b, 1 << 2, 0, "a", "2");
    assert_after_crash(b, ALL, 0, "a", "2");
    assert_after_crash(b, ALL, 0, "b", "-");
}

TEST(an_exchange_happens_whole_or_not)
{
    struct bench *b = *fixture;
    OWNED_DIR *d = make_dir(b->root, "d");

    put(b->root, "a", "1", true);
    put(d, "b", "2", true);
    assert_ok(store_dir_sync(b->root, &b->err));
    assert_ok(store_dir_sync(d, &b->err));
    assert_ok(store_rename(b->root, "a", d, "b", STORE_EXCHANGE, &b->err));
    assert_after_crash(b, NOTHING, 0, "a", "1");
    assert_after_crash(b, NOTHING, 0, "d/b", "2");
    assert_after_crash(b, ALL, 0, "a", "2");
    assert_after_crash(b, ALL, 0, "d/b", "1");
}

TEST(a_lost_directory_loses_its_names)
{
    struct bench *b = *fixture;
    OWNED_DIR *d = make_dir(b->root, "d");

    put(d, "f", "text", true);
    assert_ok(store_dir_sync(d, &b->err));
    assert_after_crash(b, NOTHING, 0, "d/f", "-");
    assert_after_crash(b, ALL, 0, "d/f", "text");
}

TEST(a_failed_sync_may_lose_its_changes_or_not)
{
    for (int lost = 0; lost < 2; lost++) {
        (void)teardown(fixture);
        assert_int_equal(setup(fixture), 0);
        struct bench *b = *fixture;
        put(b->root, "f", "text", true);
        sim_fail_sync(b->sim, 1, lost);
        assert_int_equal(store_dir_sync(b->root, &b->err), SIDESTEP_EIO);
        assert_after_crash(b, NOTHING, 0, "f", "-");
        assert_ok(store_dir_sync(b->root, &b->err));
        assert_after_crash(b, NOTHING, 0, "f", lost ? "-" : "text");
        /* What depends on it is lost, too; the rest is fine. */
        assert_ok(store_rename(b->root, "f", b->root, "g", STORE_REPLACE, &b->err));
        put(b->root, "h", "other", true);
        assert_ok(store_dir_sync(b->root, &b->err));
        assert_after_crash(b, NOTHING, 0, "g", lost ? "-" : "text");
        assert_after_crash(b, NOTHING, 0, "h", "other");
        assert_after_crash(b, ALL, 0, "g", "text");
    }
}

TEST(a_failed_sync_of_contents_too)
{
    for (int lost = 0; lost < 2; lost++) {
        (void)teardown(fixture);
        assert_int_equal(setup(fixture), 0);
        struct bench *b = *fixture;
        OWNED_FILE *file = NULL;
        assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
        assert_ok(store_dir_sync(b->root, &b->err));
        assert_ok(store_file_write_at(file, "text", 4, 0, &b->err));
        sim_fail_sync(b->sim, 1, lost);
        assert_int_equal(store_file_sync(file, &b->err), SIDESTEP_EIO);
        assert_ok(store_file_sync(file, &b->err));
        assert_string_equal(contents(b->sim, "f"), "text");
        assert_after_crash(b, NOTHING, SIM_EMPTY, "f", lost ? "" : "text");
    }
}

TEST(own_sync_covers_own_operations_only)
{
    struct bench *b = *fixture;
    OWNED_DIR *other = NULL;

    sim_set_flags(b->sim, SIM_OWN_SYNC);
    assert_ok(store_dir_open(sim_store(b->sim, 1), NULL, "/", &other, &b->err));
    put(b->root, "mine", "m", true);
    put(other, "theirs", "t", true);
    assert_ok(store_dir_sync(b->root, &b->err));
    assert_after_crash(b, NOTHING, 0, "mine", "m");
    assert_after_crash(b, NOTHING, 0, "theirs", "-");
    assert_ok(store_dir_sync(other, &b->err));
    assert_after_crash(b, NOTHING, 0, "theirs", "t");
}

TEST(dead_clients_do_nothing_and_hold_no_lock)
{
    struct bench *b = *fixture;
    OWNED_DIR *other = NULL;
    OWNED_FILE *held = NULL, *wanted = NULL;

    assert_ok(store_file_create(b->root, "f", 0, &held, &b->err));
    assert_ok(store_file_lock(held, true, &b->err));
    assert_ok(store_dir_open(sim_store(b->sim, 1), NULL, "/", &other, &b->err));
    assert_ok(store_file_open(other, "f", STORE_WRITE, &wanted, &b->err));
    assert_int_equal(store_file_lock(wanted, true, &b->err), SIDESTEP_ELOCKED);
    sim_client_die(b->sim, 0);
    assert_ok(store_file_lock(wanted, true, &b->err));
    assert_int_equal(store_file_write_at(held, "x", 1, 0, &b->err), SIDESTEP_EIO);
    assert_non_null(strstr(b->err.message, "this client is dead"));
    assert_int_equal(store_dir_make(b->root, "d", &b->err), SIDESTEP_EIO);
    assert_int_equal(store_file_close(TAKE(held), &b->err), SIDESTEP_EIO);
    assert_string_equal(contents(b->sim, "f"), "");
    assert_int_equal(sim_pending_count(b->sim), 1);
}

struct watcher {
    struct sim *sim;
    char log[128];
    int countdown;
};

static void watch(void *context, int client, const char *op, const char *name)
{
    struct watcher *w = context;
    size_t used = strlen(w->log);

    snprintf(w->log + used, sizeof(w->log) - used, "%d %s %s;", client, op, name);
    if (--w->countdown == 0)
        sim_client_die(w->sim, client);
}

TEST(the_hook_comes_before_and_can_kill)
{
    struct bench *b = *fixture;
    struct watcher watcher = {.sim = b->sim, .countdown = 3};
    OWNED_FILE *file = NULL;

    sim_set_hook(b->sim, watch, &watcher);
    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    assert_ok(store_file_write_at(file, "text", 4, 0, &b->err));
    assert_int_equal(store_file_sync(file, &b->err), SIDESTEP_EIO);
    assert_string_equal(watcher.log, "0 file_create f;0 file_write_at f;0 file_sync f;");
    sim_set_hook(b->sim, NULL, NULL);
    assert_int_equal(sim_dirty_count(b->sim), 1);
}

TEST(clones_are_independent)
{
    struct bench *b = *fixture;
    OWNED_SIM *clone = NULL;
    OWNED_DIR *root = NULL;
    OWNED_FILE *file = NULL;

    put(b->root, "f", "first", false);
    clone = sim_clone(b->sim);
    assert_true(sim_hash(clone) == sim_hash(b->sim));
    assert_ok(store_dir_open(sim_store(clone, 0), NULL, "/", &root, &b->err));
    assert_ok(store_file_open(root, "f", STORE_WRITE, &file, &b->err));
    assert_ok(store_file_write_at(file, "other", 5, 0, &b->err));
    assert_ok(store_dir_sync(root, &b->err));
    assert_string_equal(contents(clone, "f"), "other");
    assert_string_equal(contents(b->sim, "f"), "first");
    assert_int_equal(sim_pending_count(b->sim), 1);
    assert_int_equal(sim_pending_count(clone), 0);
    assert_true(sim_hash(clone) != sim_hash(b->sim));
}

TEST(the_hash_is_of_what_can_be_seen)
{
    struct bench *b = *fixture;
    OWNED_DIR *d = make_dir(b->root, "d");
    uint64_t before;

    put(d, "f", "text", true);
    before = sim_hash(b->sim);
    put(d, "g", "text", true);
    assert_true(sim_hash(b->sim) != before);
    assert_ok(store_rename(d, "g", b->root, "g", STORE_REPLACE, &b->err));
    assert_true(sim_hash(b->sim) != before);
    assert_ok(store_unlink(b->root, "g", &b->err));
    assert_true(sim_hash(b->sim) == before);
    assert_ok(store_rename(b->root, "d", b->root, "e", STORE_REPLACE, &b->err));
    assert_true(sim_hash(b->sim) != before);
}

TEST(missing_storage_features_are_unsupported)
{
    struct bench *b = *fixture;
    OWNED_FILE *file = NULL;

    put(b->root, "g", "", true);
    assert_ok(store_file_create(b->root, "f", 0, &file, &b->err));
    sim_set_flags(b->sim, SIM_NO_NOREPLACE | SIM_NO_EXCHANGE | SIM_NO_LOCKS | SIM_NO_LINKS);
    assert_int_equal(store_rename(b->root, "f", b->root, "h", STORE_NOREPLACE, &b->err),
                     SIDESTEP_EUNSUPPORTED);
    assert_int_equal(store_rename(b->root, "f", b->root, "g", STORE_EXCHANGE, &b->err),
                     SIDESTEP_EUNSUPPORTED);
    assert_int_equal(store_file_lock(file, true, &b->err), SIDESTEP_EUNSUPPORTED);
    assert_int_equal(store_link(b->root, "f", b->root, "h", &b->err), SIDESTEP_EUNSUPPORTED);
    assert_ok(store_rename(b->root, "f", b->root, "h", STORE_REPLACE, &b->err));
}

/* The control of the whole rig. There are several ways to publish a file. Only with a sync of the
 * contents, and then of the name, no power loss leaves a name without contents, or loses a reported
 * success. */
static size_t count_bad_images(bool sync_contents, bool sync_name)
{
    OWNED_SIM *sim = sim_new(0);
    OWNED_DIR *root = NULL;
    size_t bad = 0;

    assert_ok(store_dir_open(sim_store(sim, 0), NULL, "/", &root, NULL));
    put(root, "tmp", "text", sync_contents);
    assert_ok(store_rename(root, "tmp", root, "final", STORE_NOREPLACE, NULL));
    if (sync_name)
        assert_ok(store_dir_sync(root, NULL));
    for (uint64_t ops = 0; ops < 1u << sim_pending_count(sim); ops++)
        for (uint64_t files = 0; files < 1u << 2 * sim_dirty_count(sim); files++) {
            OWNED_SIM *left = sim_crash_bits(sim, ops, files);
            bad += strcmp(contents(left, "final"), "text") != 0;
        }
    return bad;
}

TEST(only_the_right_order_has_no_bad_image)
{
    assert_int_equal(count_bad_images(true, true), 0);
    assert_true(count_bad_images(false, true) > 0);
    assert_true(count_bad_images(true, false) > 0);
    assert_true(count_bad_images(false, false) > 0);
}

EACH_TEST(setup, teardown);
