/* SPDX-License-Identifier: BSD-3-Clause */
/* sweep_test.c -- a one-off save removes what dead one-off saves left beside it, whatever their
 * names, and nothing else. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/owned.h"
#include "commit/sweep.h"
#include "support/scratch.h"
#include "support/store_sim.h"
#include "support/unit.h"

#define RUN "00000000000000000000000000000001"

static const struct leftover {
    const char *what, *kind;
    const char *marker; /* NULL: it has none */
    bool is_locked, is_deleted;
    bool stays;
} leftovers[] = {
    {"of the same name", "saving", "target mine\nrun \n", false, false, false},
    {"of another name", "saving", "target epoch=3\nrun \n", false, false, false},
    {"of a save under way", "saving", "target epoch=4\nrun \n", true, false, true},
    {"of a series", "saving", "target step-3\nrun " RUN "\n", false, false, true},
    {"of an owner that has not said who it is", "saving", "", false, false, true},
    {"of a copy to another name", "saving", "target copy\nrun \nresumable yes\n", false, false,
     true},
    {"of a copy to the same name", "saving", "target mine\nrun \nresumable yes\n", false, false,
     false},
    {"of a save that was aborted", "trash", "target epoch=5\nrun \n", false, false, false},
    {"of a deletion", "trash", NULL, false, true, false},
    {"of a deletion under way", "trash", NULL, true, true, true},
};
#define COUNT (sizeof(leftovers) / sizeof(leftovers[0]))

static void name_of(size_t i, char out[64])
{
    snprintf(out, 64, ".sidestep.%032zx.%s", i + 1, leftovers[i].kind);
}

static void make_file(struct store_dir *dir, const char *name, const char *text, bool is_locked)
{
    OWNED_FILE *file = NULL;

    assert_int_equal(store_file_create(dir, name, 0, &file, NULL), SIDESTEP_OK);
    if (text[0] != '\0')
        assert_int_equal(store_file_write_at(file, text, strlen(text), 0, NULL), SIDESTEP_OK);
    if (!is_locked)
        return;
    assert_int_equal(store_file_lock(file, true, NULL), SIDESTEP_OK);
    (void)TAKE(file); /* the client keeps it until the disk goes */
}

static void make_leftover(struct store_dir *root, size_t i)
{
    const struct leftover *one = &leftovers[i];
    OWNED_DIR *dir = NULL;
    char name[64], marker[64];

    name_of(i, name);
    assert_int_equal(store_dir_make(root, name, NULL), SIDESTEP_OK);
    assert_int_equal(store_dir_open(root->store, root, name, &dir, NULL), SIDESTEP_OK);
    make_file(dir, "__0_0.distcp", "tensors", false);
    snprintf(marker, sizeof(marker), ".sidestep.%032zx.pending", i + 1);
    if (one->marker != NULL)
        make_file(dir, marker, one->marker, one->is_locked);
    if (one->is_deleted)
        make_file(dir, ".metadata", "", one->is_locked);
}

TEST(a_one_off_save_removes_what_dead_ones_left)
{
    struct sim *sim = sim_new(0);
    OWNED_DIR *others = NULL, *root = NULL;
    struct store_stat stat;
    char name[64];

    assert_non_null(sim);
    assert_int_equal(store_dir_open(sim_store(sim, 0), NULL, "/", &others, NULL), SIDESTEP_OK);
    assert_int_equal(store_dir_open(sim_store(sim, 1), NULL, "/", &root, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < COUNT; i++)
        make_leftover(others, i);
    sweep_one_off(root->store, root, "mine");
    for (size_t i = 0; i < COUNT; i++) {
        name_of(i, name);
        enum sidestep_status status = store_stat(root, name, &stat, NULL);
        if (status != (leftovers[i].stays ? SIDESTEP_OK : SIDESTEP_ENOTFOUND))
            fail_msg("%s: it %s", leftovers[i].what, status == SIDESTEP_OK ? "stays" : "is gone");
    }
    store_dir_close(TAKE(root));
    store_dir_close(TAKE(others));
    sim_free(&sim);
}

/* What rank 0 left for the others goes with the first save on the next day, and not before: a save
 * beside it may be alive. */
TEST(a_one_off_save_removes_outcomes_of_yesterday)
{
    static const struct {
        const char *name;
        time_t age;
        bool stays;
    } files[] = {
        {".sidestep." RUN ".outcome", 2 * 24 * 3600, false},
        {".sidestep.00000000000000000000000000000002.outcome", 3600, true},
        {"outcome", 2 * 24 * 3600, true},
    };
    struct scratch scratch;
    char path[PATH_MAX];

    assert_true(scratch_make(&scratch, NULL));
    OWNED_DIR *root = NULL;
    assert_int_equal(store_dir_open(store_posix(), NULL, scratch.path, &root, NULL), SIDESTEP_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        struct timespec times[2] = {{.tv_sec = time(NULL) - files[i].age}};
        times[1] = times[0];
        make_file(root, files[i].name, "why", false);
        snprintf(path, sizeof(path), "%s/%s", scratch.path, files[i].name);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    sweep_one_off(root->store, root, "mine");
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", scratch.path, files[i].name);
        if ((access(path, F_OK) == 0) != files[i].stays)
            fail_msg("%s: it %s", files[i].name, files[i].stays ? "is gone" : "stays");
    }
    scratch_remove(&scratch);
}
