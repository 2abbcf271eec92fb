/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror_parts_test.c -- the processes that send parts to a mirror, one call at a time: what they
 * leave alone when a call fails, when another process writes the same, and when the save that they
 * go on with has ended; and what they take from outside.
 */
#include <errno.h>
#include <glob.h>

#include "support/part_sends.h"

static void begin(struct commit *commit)
{
    *commit = make_commit(store_posix(), 0);
    OK(commit_open(commit, to, &err));
    OK(commit_begin(commit, id, &err));
}

static void join(struct commit *commit)
{
    *commit = make_commit(store_posix(), 1);
    OK(commit_open(commit, to, &err));
    commit_set_save_id(commit, id);
    OK(commit_join(commit, &err));
}

static const char *in_saving(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/.sidestep.%s.saving/%s", far, save_id, name);
    return path;
}

static ino_t inode_of(const char *path)
{
    struct stat stat;

    return lstat(path, &stat) == 0 ? stat.st_ino : 0;
}

/* All names in a directory, which must not change. */
static void read_names(const char *dir, char *names, size_t bytes)
{
    char pattern[512];
    glob_t found = {0};

    names[0] = '\0';
    snprintf(pattern, sizeof(pattern), "%s/*", dir);
    (void)glob(pattern, GLOB_PERIOD, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++)
        snprintf(names + strlen(names), bytes - strlen(names), "%s\n",
                 strrchr(found.gl_pathv[i], '/') + 1);
    globfree(&found);
}

/* A sealed file stays, whatever fails in a process that goes on. */
TEST(what_is_sealed_stays)
{
    struct commit commit;
    bool fired = true;

    begin(&commit);
    OK(put(&commit, 'a'));
    ino_t sealed = inode_of(in_saving("__0_0.distcp"));
    assert_true(sealed != 0);
    for (unsigned long nth = 1; fired; nth++) {
        fault_arm("posix.", nth, false, EIO);
        enum sidestep_status status = put(&commit, 'a');
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_true(fired || status == SIDESTEP_OK);
        assert_int_equal(inode_of(in_saving("__0_0.distcp")), sealed);
    }
    OK(put(&commit, 'a'));
    assert_int_equal(inode_of(in_saving("__0_0.distcp")), sealed);
    commit_close(&commit);
}

/* Damage that was read does not remove it either: all begins anew. */
TEST(what_is_sealed_and_damaged_ends_the_save)
{
    struct commit commit;

    begin(&commit);
    OK(put(&commit, 'a'));
    assert_int_equal(truncate(in_saving("__0_0.distcp"), 100), 0);
    ino_t sealed = inode_of(in_saving("__0_0.distcp"));
    assert_int_equal(put(&commit, 'a'), SIDESTEP_EDISAGREE);
    assert_int_equal(inode_of(in_saving("__0_0.distcp")), sealed);
    assert_false(copy_can_resume(SIDESTEP_EDISAGREE));
    commit_close(&commit);
}

/* A process that is late changes nothing in a checkpoint that the others have published. */
TEST(a_late_process_leaves_what_is_published_alone)
{
    OWNED_BY(commit_contents_release) struct commit_contents contents = {0};
    static char names[4096], later[4096];
    enum commit_outcome outcome;
    struct commit commit, other;
    bool fired = true;

    begin(&commit);
    join(&other);
    OK(put(&commit, 'a'));
    OK(put(&other, 'b'));
    OK(commit_collect_votes(&commit, &contents, &err));
    OK(commit_publish(&commit, &contents, &outcome, &err));
    commit_close(&commit);
    read_names(to, names, sizeof(names));
    ino_t sealed = inode_of(node_path('f', "step-1/__1_0.distcp"));
    assert_true(sealed != 0);
    for (unsigned long nth = 1; fired; nth++) {
        fault_arm("posix.", nth, false, EIO);
        (void)put(&other, 'b');
        fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        read_names(to, later, sizeof(later));
        assert_string_equal(later, names);
        assert_int_equal(inode_of(node_path('f', "step-1/__1_0.distcp")), sealed);
    }
    commit_close(&other);
}

/* Send both parts, and publish them, which fails from call ${fails_at} on; 0: it does not. */
static enum sidestep_status send(unsigned long fails_at, bool *fired)
{
    OWNED_BY(commit_contents_release) struct commit_contents contents = {0};
    enum commit_outcome outcome;
    struct commit commit, other;

    begin(&commit);
    join(&other);
    OK(put(&commit, 'a'));
    OK(put(&other, 'b'));
    OK(commit_collect_votes(&commit, &contents, &err));
    fault_arm("posix.", fails_at, true, EIO);
    enum sidestep_status status = commit_publish(&commit, &contents, &outcome, &err);
    *fired = fault_fired() != NULL;
    fault_arm("", 0, false, 0);
    commit_close(&other);
    commit_close(&commit);
    return status;
}

/* Of a process that ended while it published, the next one also finds records. */
TEST(publishing_is_gone_on_with_wherever_it_ended)
{
    bool fired = true, fires;

    for (unsigned long nth = 1; fired; nth++) {
        (void)send(nth, &fired);
        if (inode_of(node_path('f', "step-1")) == 0)
            OK(send(0, &fires));
        assert_true(inode_of(node_path('f', "step-1/.metadata")) != 0);
        shell("rm -r %s%s", to, "");
    }
}

static struct store_file *create(struct commit *commit, const char *name, const char *text)
{
    struct store_file *file = NULL;

    OK(store_file_create(commit->dir, name, 0, &file, &err));
    OK(store_file_write_at(file, text, strlen(text), 0, &err));
    return file;
}

/* Two processes that send the same file: whoever was overtaken must not seal what the other one is
 * still writing. */
TEST(two_writers_of_a_file_are_told_apart)
{
    char written[FILE_NAME_BYTES], final[FILE_NAME_BYTES];
    struct commit commit, other;
    struct stat stat;

    begin(&commit);
    join(&other);
    commit_names_for(&commit, 1, 0, written, final);
    struct store_file *mine = create(&commit, written, "mine");
    OK(store_unlink(other.dir, written, &err));
    struct store_file *theirs = create(&other, written, "th");
    assert_int_equal(commit_seal_for(&commit, written, final, mine, &err), SIDESTEP_EABORTED);
    OK(store_file_write_at(theirs, "eirs!", 5, 2, &err));
    OK(commit_seal_for(&other, written, final, theirs, &err));
    assert_int_equal(lstat(in_saving(final), &stat), 0);
    assert_int_equal(stat.st_size, 7);
    commit_close(&other);
    commit_close(&commit);
}

/* A process that refuses in the name of a rank does not use the name under which another one writes
 * a file of it: it would give that file, or take it. */
TEST(a_refusal_uses_no_name_of_a_file)
{
    struct sidestep_error why = {.message = "no part of it"};
    struct commit commit, other;
    char name[128], text[64] = "";

    begin(&commit);
    join(&other);
    struct store_file *file = create(&commit, "__1_0.distcp.part", "half");
    ino_t before = inode_of(in_saving("__1_0.distcp.part"));
    commit_vote_no(&other, &why);
    assert_int_equal(inode_of(in_saving("__1_0.distcp.part")), before);
    snprintf(name, sizeof(name), "__1.%s.failed", save_id);
    FILE *f = fopen(in_saving(name), "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    assert_string_equal(text, why.message);
    store_file_discard(file);
    commit_close(&other);
    commit_close(&commit);
}

/* ---- another process answers */

static struct mirror_parts for_parts = {.timeout_ns = UINT64_C(1000000000)};

static struct mirror_look make_look(char node)
{
    return (struct mirror_look){.parts = &for_parts,
                                .near = {.root = node_path(node, ""), .store = store_posix()},
                                .far = {.root = far, .store = store_posix()},
                                .options.threads = 1,
                                .clock = clock_system()};
}

static void write_sending(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/.sidestep", far);
    (void)mkdir(path, 0777);
    snprintf(path, sizeof(path), "%s/.sidestep/sending", far);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "save %s attempt 00112233445566778899aabbccddeeff ranks 2 name %s\n", save_id, name);
    fclose(f);
}

static bool has_refused(void)
{
    char name[128];

    snprintf(name, sizeof(name), "__1.%s.failed", save_id);
    return inode_of(in_saving(name)) != 0;
}

static bool has_voted(void)
{
    char name[128];

    snprintf(name, sizeof(name), "__1.%s.yes", save_id);
    return inode_of(in_saving(name)) != 0;
}

static enum sidestep_status answer_refusing(struct mirror_answer *answered, const char *refused)
{
    struct mirror_look m = make_look('b');
    bool again;

    OK(throttle_init(&m.throttle, false, 0, NULL, &err));
    enum sidestep_status status = mirror_answer(&m, answered, refused, &again, &err);
    throttle_destroy(&m.throttle);
    return status;
}

static enum sidestep_status answer(struct mirror_answer *answered, bool refuses)
{
    return answer_refusing(answered, refuses ? save_id : "");
}

/* "I cannot look" is not "I have none". */
TEST(a_part_that_cannot_be_read_is_not_refused)
{
    struct mirror_answer answered = {0};
    char manifest[256], kept[300];
    struct commit commit;

    begin(&commit);
    write_sending("step-1");
    snprintf(manifest, sizeof(manifest), "%s/.sidestep.manifest.%s", node_path('b', "step-1"),
             save_id);
    snprintf(kept, sizeof(kept), "%s.kept", manifest);
    assert_int_equal(rename(manifest, kept), 0);
    assert_int_equal(symlink(strrchr(manifest, '/') + 1, manifest), 0);
    assert_int_not_equal(answer(&answered, true), SIDESTEP_OK);
    assert_false(has_refused());
    assert_int_equal(rename(kept, manifest), 0);
    OK(answer(&answered, true));
    assert_true(has_voted());
    commit_close(&commit);
}

/* Nor is a part whose sending fails for now: the next call sends it. */
TEST(whatever_fails_a_part_is_sent_by_a_later_call)
{
    for (unsigned long nth = 1;; nth += 3) {
        struct mirror_answer answered = {0};
        struct commit commit;
        begin(&commit);
        write_sending("step-1");
        fault_arm("posix.", nth, false, EIO);
        (void)answer(&answered, true);
        bool fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_false(has_refused());
        OK(answer(&answered, true));
        assert_true(has_voted());
        commit_abort(&commit, &err);
        commit_remove_outcome(&commit);
        commit_close(&commit);
        if (!fired)
            return;
    }
}

/* But not for ever, because rank 0 takes each attempt for progress. */
TEST(a_part_that_fails_for_long_is_refused)
{
    struct mirror_answer answered = {0};
    struct commit commit;
    const char *file = node_path('b', "step-1/__1_0.distcp");

    begin(&commit);
    write_sending("step-1");
    shell("mv %1$s %1$s.kept && ln -s %2$s %1$s", file, "__1_0.distcp");
    assert_int_not_equal(answer(&answered, true), SIDESTEP_OK);
    usleep(500000);
    assert_int_not_equal(answer(&answered, true), SIDESTEP_OK);
    assert_false(has_refused());
    usleep(600000);
    assert_int_not_equal(answer(&answered, true), SIDESTEP_OK);
    assert_true(has_refused());
    commit_close(&commit);
}

/* What must be refused is one save, and another one may be sent meanwhile. */
TEST(only_the_save_that_was_waited_for_is_refused)
{
    struct mirror_answer answered = {0};
    struct commit commit;

    begin(&commit);
    write_sending("step-1");
    shell("rm -r %s%s", node_path('b', "step-1"), "");
    OK(answer_refusing(&answered, "00112233445566778899aabbccddeeff"));
    assert_true(answered.is_wanted);
    assert_false(has_refused());
    assert_int_not_equal(answer_refusing(&answered, save_id), SIDESTEP_OK);
    assert_true(has_refused());
    commit_close(&commit);
}

/* Who begins a save waits for the lock of its marker, but not if nobody wants it any more. */
static enum sidestep_status give_up(void *context UNUSED, const struct commit *commit UNUSED,
                                    struct sidestep_error *why)
{
    return FAIL(why, SIDESTEP_EABORTED, "the series was closed");
}

TEST(waiting_for_a_marker_ends_when_the_series_does)
{
    const struct commit_guard guard = {give_up, give_up, NULL};
    struct commit commit, late = make_commit(store_posix(), 0);

    begin(&commit);
    late.request.guard = &guard;
    OK(commit_open(&late, to, &err));
    assert_int_equal(commit_begin(&late, id, &err), SIDESTEP_EABORTED);
    commit_close(&late);
    commit_close(&commit);
}

/* Who reads a part holds it, as a checkpoint. */
TEST(a_part_that_is_read_is_not_deleted)
{
    OWNED_DIR *root = NULL;
    struct reader *r = NULL;

    OK(store_dir_open(store_posix(), NULL, node_path('a', ""), &root, &err));
    OK(reader_open(store_posix(), node_path('a', "step-1"), READER_SHARED_LOCK | READER_PARTS, &r,
                   &err));
    assert_int_equal(prune_delete(root, NULL, "step-1", save_id, NULL, &err), SIDESTEP_ELOCKED);
    assert_true(has('a', "step-1"));
    OK(prune_make_way(root, NULL, "step-1", &err)); /* for a save of that step */
    assert_false(has('a', "step-1"));
    reader_close(&r);
}

/* The command on a node cannot tell what others go on with. */
TEST(the_command_leaves_what_was_begun)
{
    struct commit commit;

    begin(&commit);
    OK(put(&commit, 'a'));
    commit_close(&commit);
    fault_arm("mirror.silence", 1, true, 0);
    assert_int_equal(sidestep_mirror(node_path('b', ""), far, NULL, NULL, &err),
                     SIDESTEP_ETIMEDOUT);
    fault_arm("", 0, false, 0);
    assert_true(inode_of(in_saving("__0_0.distcp")) != 0);
}

/* No space may become space. */
TEST(a_part_that_has_no_space_now_is_sent_by_a_later_call)
{
    struct mirror_answer answered = {0};
    struct commit commit;

    begin(&commit);
    write_sending("step-1");
    fault_arm("posix.pwrite|posix.fallocate", 1, true, ENOSPC);
    assert_int_equal(answer(&answered, true), SIDESTEP_ENOSPC);
    fault_arm("", 0, false, 0);
    assert_false(has_refused());
    OK(answer(&answered, true));
    assert_true(has_voted());
    commit_close(&commit);
}

/* The name comes from outside: it must not lead out of the mirror. */
TEST(a_name_that_leads_elsewhere_is_not_taken)
{
    static const char *const names[] = {"..", ".", ".sidestep", ".sidestep.x", "a/b"};
    struct mirror_answer answered = {0};
    char saving[256], pending[512];

    /* What is "f/.." would be written beside, in the directory of the scratch directory. */
    snprintf(far, sizeof(far), "%s/x/f", scratch.path);
    snprintf(saving, sizeof(saving), "%s/.sidestep.%s.saving", scratch.path, save_id);
    snprintf(pending, sizeof(pending), "%s/.sidestep.%s.pending", saving, save_id);
    shell("mkdir -p %s %s", far, saving);
    shell("touch %s%s", pending, "");
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        char refusal[512];
        write_sending(names[i]);
        (void)answer(&answered, true);
        snprintf(refusal, sizeof(refusal), "%s/__1.%s.failed", saving, save_id);
        assert_int_equal(inode_of(refusal), 0);
    }
}
