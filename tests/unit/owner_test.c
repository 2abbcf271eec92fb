/* SPDX-License-Identifier: BSD-3-Clause */
/* owner_test.c -- a save is dead if its owner has ended, and only if that can be told. */
#include <errno.h>
#include <unistd.h>

#include "base/owned.h"
#include "root/root.h"
#include "support/store_sim.h"
#include "support/unit.h"

#define ID "0123456789abcdef0123456789abcdef"
#define MARKER ".sidestep." ID ".pending"

/* A save whose files are in the root of a disk; client 0 owns it, client 1 looks at it. */
struct fixture {
    struct sim *sim;
    struct store_ops ops; /* of client 1: those of the disk, except traits */
    struct store_file *marker;
    struct owner owner;
    struct sidestep_error err;
};

static enum sidestep_status traits_of_network(struct store_dir *dir, struct store_traits *out,
                                              struct sidestep_error *err)
{
    (void)dir;
    (void)err;
    *out = (struct store_traits){.is_network = true, .type_name = "nfs"};
    return SIDESTEP_OK;
}

static enum sidestep_status no_traits(struct store_dir *dir, struct store_traits *out,
                                      struct sidestep_error *err)
{
    (void)dir;
    (void)out;
    return error_set(err, SIDESTEP_EIO, EIO, HERE, "traits");
}

static void begin(struct fixture *f, unsigned flags)
{
    *f = (struct fixture){.sim = sim_new(flags)};
    assert_non_null(f->sim);
}

static void end(struct fixture *f)
{
    store_file_discard(f->marker);
    sim_free(&f->sim);
}

static void make_marker(struct fixture *f, const char *text)
{
    OWNED_DIR *dir = NULL;

    assert_int_equal(store_dir_open(sim_store(f->sim, 0), NULL, "/", &dir, NULL), SIDESTEP_OK);
    assert_int_equal(store_file_create(dir, MARKER, 0, &f->marker, NULL), SIDESTEP_OK);
    assert_int_equal(store_file_write_at(f->marker, text, strlen(text), 0, NULL), SIDESTEP_OK);
}

/* Does client 1 find the save dead? ${traits} NULL: those of the disk, which is local. */
static bool is_dead(struct fixture *f,
                    enum sidestep_status (*traits)(struct store_dir *dir, struct store_traits *out,
                                                   struct sidestep_error *err))
{
    struct store *stranger = sim_store(f->sim, 1);
    const struct store_ops *before = stranger->ops;
    OWNED_DIR *dir = NULL;

    f->ops = *before;
    if (traits != NULL)
        f->ops.dir_traits = traits;
    stranger->ops = &f->ops;
    assert_int_equal(store_dir_open(stranger, NULL, "/", &dir, &f->err), SIDESTEP_OK);
    assert_int_equal(root_read_owner(dir, ID, &f->owner, &f->err), SIDESTEP_OK);
    store_dir_close(TAKE(dir));
    stranger->ops = before;
    return f->owner.is_dead;
}

TEST(an_owner_that_ends_is_dead)
{
    struct fixture f;

    begin(&f, 0);
    make_marker(&f, "target step-12\nowner 4711\nhost node-3\nrun " ID "\nstep 12\n");
    assert_int_equal(store_file_lock(f.marker, true, &f.err), SIDESTEP_OK);
    assert_false(is_dead(&f, NULL));
    assert_string_equal(f.owner.marker.target, "step-12");
    assert_string_equal(f.owner.marker.owner, "4711");
    assert_string_equal(f.owner.marker.host, "node-3");
    assert_int_equal(f.owner.marker.step, 12);
    sim_client_die(f.sim, 0);
    assert_true(is_dead(&f, NULL));
    end(&f);
}

/* Network storage may not show locks of other hosts, but those of this host. */
TEST(on_network_storage_only_this_host_is_known)
{
    char text[160], host[64] = "";
    struct fixture f;

    (void)gethostname(host, sizeof(host) - 1);
    for (int ours = 0; ours <= 1; ours++) {
        begin(&f, 0);
        snprintf(text, sizeof(text), "target a\nowner 1\nhost %s%s\n", host, ours ? "" : "-2");
        make_marker(&f, text);
        assert_true(is_dead(&f, traits_of_network) == (ours == 1));
        assert_true(is_dead(&f, NULL));
        assert_false(is_dead(&f, no_traits));
        end(&f);
    }
}

TEST(an_unknown_owner_is_not_dead)
{
    struct fixture f;

    begin(&f, SIM_NO_LOCKS);
    make_marker(&f, "target a\nowner 1\nhost node-3\n");
    assert_false(is_dead(&f, NULL));
    assert_string_equal(f.owner.marker.target, "a");
    end(&f);
}

/* The marker is made before any other file: without one, the save was killed before that. */
TEST(a_save_without_a_marker_is_dead)
{
    struct fixture f;

    begin(&f, 0);
    assert_true(is_dead(&f, NULL));
    assert_string_equal(f.owner.marker.target, "");
    assert_int_equal(f.owner.marker.step, -1);
    assert_false(is_dead(&f, traits_of_network));
    end(&f);
}

TEST(a_marker_without_meaning_shows_nothing)
{
    static const char *const texts[] = {
        "", "step 12", "step -1\n", "step 99999999999999999999\n", "target\n\n\nowner", "\xff\xfe"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct fixture f;
        begin(&f, 0);
        make_marker(&f, texts[i]);
        assert_true(is_dead(&f, NULL));
        assert_int_equal(f.owner.marker.step, i == 1 ? 12 : -1);
        assert_string_equal(f.owner.marker.target, "");
        end(&f);
    }
}
