/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vote_test.c -- a rank without free file descriptors still votes, and sees the outcome of rank 0
 * (C). Otherwise the others would wait for the deadline of a save that has failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "commit/commit.h"
#include "support/scratch.h"
#include "support/store_fault.h"
#include "support/unit.h"

#define MOST_DESCRIPTORS 256

static const uint8_t id[SAVE_ID_BYTES] = {0xab, 1, 2};

/* Two ranks of one save, in this process. */
struct pair {
    struct scratch scratch;
    struct store *store; /* fails on command */
    char path[128];
    struct commit c, r;
    int held[MOST_DESCRIPTORS];
    size_t held_count;
};

static void init(struct pair *p, struct commit *commit, uint32_t rank)
{
    *commit = (struct commit){.store = p->store,
                              .clock = clock_system(),
                              .rank = rank,
                              .world_size = 2,
                              .request.timeout_ns = UINT64_C(3000000000),
                              .request.step = -1,
                              .layout_digest = 7};
    assert_int_equal(commit_open(commit, p->path, NULL), SIDESTEP_OK);
}

/* Up to the moment when both have joined. */
static void begin_over(struct pair *p, bool in_place, struct store *under)
{
    memset(p, 0, sizeof(*p));
    assert_true(scratch_make(&p->scratch, NULL));
    p->store = store_fault_new(under);
    assert_non_null(p->store);
    snprintf(p->path, sizeof(p->path), "%s/ckpt", p->scratch.path);
    if (in_place)
        assert_int_equal(mkdir(p->path, 0777), 0);
    init(p, &p->c, 0);
    init(p, &p->r, 1);
    assert_int_equal(commit_begin(&p->c, id, NULL), SIDESTEP_OK);
    assert_int_equal(p->c.files.in_place, in_place);
    commit_set_save_id(&p->r, id);
    p->r.files.in_place = in_place;
    assert_int_equal(commit_join(&p->r, NULL), SIDESTEP_OK);
}

static void begin(struct pair *p, bool in_place)
{
    begin_over(p, in_place, store_posix());
}

static void end(struct pair *p)
{
    commit_close(&p->c);
    commit_close(&p->r);
    store_fault_free(&p->store);
    scratch_remove(&p->scratch);
}

/* Take those that are reserved for this, too, as a faster thread would. */
static void take_spares(struct pair *p)
{
    store_dir_close(p->c.files.spare);
    store_dir_close(p->r.files.spare);
    p->c.files.spare = p->r.files.spare = NULL;
}

static void take_descriptors(struct pair *p)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = MOST_DESCRIPTORS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (p->held_count < MOST_DESCRIPTORS) {
        int fd = open("/dev/null", O_RDONLY);
        if (fd < 0)
            break;
        p->held[p->held_count++] = fd;
    }
    assert_int_equal(errno, EMFILE);
}

static void give_descriptors(struct pair *p)
{
    while (p->held_count != 0)
        (void)close(p->held[--p->held_count]);
}

/* Check that C finds the failure when it counts, before its deadline. */
static void expect_no(struct pair *p, const char *words)
{
    struct commit_contents count = {0};
    struct sidestep_error err = {0};
    uint64_t since = clock_now(p->c.clock);

    assert_int_equal(commit_vote_yes(&p->c, NULL), SIDESTEP_OK);
    assert_int_equal(commit_collect_votes(&p->c, &count, &err), SIDESTEP_EPEER);
    assert_true(clock_now(p->c.clock) - since < p->c.request.timeout_ns);
    commit_contents_release(&count);
    assert_non_null(strstr(err.message, "rank 1: "));
    assert_non_null(strstr(err.message, words));
    assert_int_equal(err.rank, 1);
}

/* Nothing of the save is left after an abort. */
static void expect_clean(struct pair *p, bool in_place)
{
    struct sidestep_error why = {.message = "given up"};

    commit_abort(&p->c, &why);
    commit_remove_outcome(&p->c);
    if (in_place)
        assert_int_equal(rmdir(p->path), 0);
    assert_int_equal(rmdir(p->scratch.path), 0);
}

TEST(a_rank_says_no_with_its_reason)
{
    struct sidestep_error why = {.message = "the disk is on fire"};
    struct pair p;

    for (int in_place = 0; in_place <= 1; in_place++) {
        begin(&p, in_place != 0);
        commit_vote_no(&p.r, &why);
        expect_no(&p, "the disk is on fire");
        expect_clean(&p, in_place != 0);
        end(&p);
    }
}

static bool is_there(struct pair *p, const char *format)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;

    snprintf(name, sizeof(name), format, p->r.save_id);
    return store_stat(p->r.dir, name, &stat, NULL) == SIDESTEP_OK;
}

/* The file was made, and then the server had no space for its attributes, or the like. Rank 0 may
 * have counted it, so nothing is taken back. */
TEST(a_vote_that_may_be_there_is_not_taken_back)
{
    static const int errors[] = {EIO,    ENOSPC, EDQUOT, EACCES, EROFS,
                                 ENOENT, EMFILE, EEXIST, ESTALE, ETIMEDOUT};
    struct pair p;

    for (size_t i = 0; i < 2 * ARRAY_LENGTH(errors); i++) {
        begin(&p, i % 2 != 0);
        fault_arm("store.file_create.reply", 1, false, errors[i / 2]);
        assert_int_equal(commit_vote_yes(&p.r, NULL), SIDESTEP_OK);
        assert_non_null(fault_fired());
        fault_arm("", 0, false, 0);
        assert_true(is_there(&p, "__1.%s.yes"));
        assert_false(is_there(&p, "__1.%s.failed"));
        expect_clean(&p, i % 2 != 0);
        end(&p);
    }
}

/* If it is not there, and cannot be made, rank 0 learns why, and decides. */
TEST(a_vote_that_cannot_be_made_is_reported)
{
    struct pair p;

    for (int in_place = 0; in_place <= 1; in_place++) {
        begin(&p, in_place != 0);
        fault_arm("store.file_create|store.link", 1, true, EACCES);
        assert_int_equal(commit_vote_yes(&p.r, NULL), SIDESTEP_OK);
        fault_arm("", 0, false, 0);
        assert_false(is_there(&p, "__1.%s.yes"));
        expect_clean(&p, in_place != 0);
        end(&p);
    }
}

TEST(a_rank_says_no_without_a_descriptor)
{
    struct sidestep_error why = {.message = "too many open files"};
    struct pair p;

    for (int i = 0; i < 4; i++) {
        bool in_place = (i & 1) != 0, no_spare = (i & 2) != 0;

        begin(&p, in_place);
        if (no_spare)
            take_spares(&p);
        take_descriptors(&p);
        commit_vote_no(&p.r, &why);
        give_descriptors(&p);
        expect_no(&p, no_spare ? "could not write why" : "too many open files");
        expect_clean(&p, in_place);
        end(&p);
    }
}

/* Without a descriptor or a link, the part file that the rank has begun serves as its "no". */
TEST(a_rank_says_no_by_its_part_file)
{
    struct sidestep_error why = {.message = "too many open files"};
    struct pair p;

    for (int in_place = 0; in_place <= 1; in_place++) {
        struct store_file *file = NULL;

        begin(&p, in_place != 0);
        assert_int_equal(commit_shard_create(&p.r, 0, 0, &file, NULL), SIDESTEP_OK);
        assert_int_equal(store_file_write_at(file, "PK\3\4\0\0", 6, 0, NULL), SIDESTEP_OK);
        store_file_discard(file);
        take_spares(&p);
        take_descriptors(&p);
        fault_arm("store.link", 1, true, EPERM);
        commit_vote_no(&p.r, &why);
        fault_arm("", 0, false, 0);
        give_descriptors(&p);
        expect_no(&p, "could not write why");
        expect_clean(&p, in_place != 0);
        end(&p);
    }
}

/* The part of its work that needs a descriptor fails, and it reports that. */
TEST(a_rank_joins_without_a_descriptor)
{
    struct sidestep_error why = {0};
    struct store_file *file = NULL;
    struct pair p;

    for (int in_place = 0; in_place <= 1; in_place++) {
        begin(&p, in_place != 0);
        store_dir_close(p.r.dir);
        p.r.dir = NULL;
        take_descriptors(&p);
        assert_int_equal(commit_join(&p.r, NULL), SIDESTEP_OK);
        take_descriptors(&p);
        assert_int_not_equal(commit_shard_create(&p.r, 0, 0, &file, &why), SIDESTEP_OK);
        assert_int_equal(why.sys_errno, EMFILE);
        commit_vote_no(&p.r, &why);
        give_descriptors(&p);
        expect_no(&p, "could not write why");
        expect_clean(&p, in_place != 0);
        end(&p);
    }
}

TEST(a_rank_votes_without_a_descriptor)
{
    char name[FILE_NAME_BYTES];
    struct store_stat stat;
    struct pair p;

    begin(&p, false);
    take_spares(&p);
    take_descriptors(&p);
    assert_int_equal(commit_vote_yes(&p.r, NULL), SIDESTEP_OK);
    give_descriptors(&p);
    file_name_format(FILE_NAME_VOTE, p.r.save_id, 1, 0, name);
    assert_int_equal(store_stat(p.r.dir, name, &stat, NULL), SIDESTEP_OK);
    end(&p);
}

/* In place C cannot even list its files: the others must learn the outcome nevertheless. */
TEST(the_outcome_is_reported_without_a_descriptor)
{
    struct sidestep_error why = {.message = "too many open files"}, err = {0};
    struct pair p;

    for (int i = 0; i < 4; i++) {
        bool in_place = (i & 1) != 0, no_spare = (i & 2) != 0;

        begin(&p, in_place);
        assert_int_equal(commit_check_aborted(&p.r, &err), SIDESTEP_OK);
        if (no_spare)
            take_spares(&p);
        take_descriptors(&p);
        commit_abort(&p.c, &why);
        give_descriptors(&p);
        assert_int_equal(commit_poll_outcome(&p.r, &err), COMMIT_ABORTED);
        assert_int_equal(err.status, SIDESTEP_EABORTED);
        assert_non_null(
            strstr(err.message, no_spare ? "rank 0 gave up save ab0102" : "too many open files"));
        if (in_place && !no_spare) /* to empty a trash directory takes two */
            expect_clean(&p, true);
        end(&p);
    }
}

/* ---- a rank that looks after each step of another */

static struct commit *looker;
static unsigned looks, reasons;

static void look(void)
{
    struct sidestep_error err = {0};

    if (looker == NULL)
        return;
    looks++;
    if (commit_poll_outcome(looker, &err) != COMMIT_ABORTED)
        return;
    reasons++;
    assert_non_null(strstr(err.message, "the disk is on fire"));
}

static enum sidestep_status create_and_look(struct store_dir *at, const char *name, uint32_t flags,
                                            struct store_file **out, struct sidestep_error *err)
{
    enum sidestep_status status = store_posix()->ops->file_create(at, name, flags, out, err);

    look();
    return status;
}

static enum sidestep_status rename_and_look(struct store_dir *from_dir, const char *from,
                                            struct store_dir *to_dir, const char *to,
                                            enum store_rename_mode mode, struct sidestep_error *err)
{
    enum sidestep_status status = store_posix()->ops->rename(from_dir, from, to_dir, to, mode, err);

    look();
    return status;
}

/* Whenever it looks, it finds the whole reason, or a save that is under way. */
TEST(a_rank_finds_the_whole_reason)
{
    struct sidestep_error why = {.message = "the disk is on fire"};
    struct store_ops ops = *store_posix()->ops;
    struct store watched = *store_posix();
    struct pair p;

    watched.ops = &ops;
    ops.file_create = create_and_look;
    ops.rename = rename_and_look;
    for (int in_place = 0; in_place <= 1; in_place++) {
        looks = reasons = 0;
        begin_over(&p, in_place != 0, &watched);
        looker = &p.r;
        commit_abort(&p.c, &why);
        looker = NULL;
        assert_true(looks >= 2);
        assert_true(reasons != 0);
        commit_remove_outcome(&p.c);
        end(&p);
    }
}

static enum sidestep_status is_fenced(void *context, const struct commit *commit,
                                      struct sidestep_error *err)
{
    (void)context;
    (void)commit;
    return FAIL(err, SIDESTEP_EABORTED, "another process has opened it");
}

/* Its votes are gone: it learns why, before its deadline. */
TEST(a_rank_of_a_swept_save_does_not_wait)
{
    static const struct commit_guard guard = {.check = is_fenced, .holds = is_fenced};
    struct commit_contents count = {0};
    struct sidestep_error err = {0};
    struct pair p;

    begin(&p, false);
    p.c.request.guard = &guard;
    assert_int_equal(commit_vote_yes(&p.c, NULL), SIDESTEP_OK);
    assert_int_equal(commit_collect_votes(&p.c, &count, &err), SIDESTEP_EABORTED);
    assert_non_null(strstr(err.message, "another process"));
    commit_contents_release(&count);
    expect_clean(&p, false);
    end(&p);
}
