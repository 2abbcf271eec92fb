/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_rights_test.c -- a series whose directories may not be written, or not be read:
 * permissions that change, for a process without privileges; a disk that is mounted read-only, or
 * is full, in a process with mounts of its own.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidestep/sidestep_tools.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define NOBODY 65534

/* Open an engine and a series in a child, and save steps up to ${steps}. */
static bool begin_series(struct sidestep_engine **own, struct sidestep_series **series,
                         uint64_t steps)
{
    bool good = sidestep_engine_open(own, NULL, &err) == SIDESTEP_OK &&
                sidestep_series_open(*own, scratch.path, NULL, series, &err) == SIDESTEP_OK;

    for (uint64_t n = 1; good && n <= steps; n++)
        good = try_save_step(*series, n) == SIDESTEP_OK;
    return good;
}

/* Return the line of the first condition that does not hold. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "# line %d: %s\n", __LINE__, err.message);                             \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static bool load_by_name(struct sidestep_engine *own, uint64_t step)
{
    world_fill(&world, 999);
    return sidestep_load(own, step_path(step), world.state, NULL, NULL, &err) == SIDESTEP_OK &&
           world_check(&world, step) == 0;
}

/* What cannot be read is tried by the search, and listed as unreadable. */
static bool look_says_unreadable(uint64_t step)
{
    struct sidestep_latest_report report = {0};
    struct sidestep_list list = {0};
    enum sidestep_status status =
        sidestep_look(scratch.path, SIDESTEP_VERIFY_STRUCTURE, NULL, &list, &report, &err);
    const struct sidestep_listed *last = sidestep_list_entry(&list, list.count - 1);
    bool found = status == SIDESTEP_EPERM && report.path == NULL && last->step == (int64_t)step &&
                 strcmp(last->state_name, "unreadable") == 0 && last->reason != NULL &&
                 sidestep_list_entry(&list, 0)->state == SIDESTEP_COMMITTED;

    sidestep_latest_report_release(&report);
    sidestep_list_release(&list);
    return found;
}

static int permissions_come_and_go(void)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    static const char *const records[] = {".metadata", ".sidestep.manifest.*", "__0_0.distcp"};
    char dir[256], rejected[2048];
    uint64_t step = 0;
    char *latest = NULL;

    snprintf(dir, sizeof(dir), "%s/.sidestep", scratch.path);
    NEED(begin_series(&own, &series, 2));
    NEED(chmod(scratch.path, 0555) == 0); /* in between */
    NEED(sidestep_series_save(series, 3, world.state, NULL, NULL, &err) == SIDESTEP_EPERM);
    NEED(strstr(err.message, "step-3") != NULL);
    NEED(sidestep_series_delete(series, 1, &err) == SIDESTEP_EPERM && step_exists(1));
    NEED(load_by_name(own, 2));
    NEED(chmod(scratch.path, 0755) == 0);
    NEED(chmod(step_path(1), 0555) == 0); /* to protect it */
    NEED(sidestep_series_delete(series, 1, &err) == SIDESTEP_EPERM && load_by_name(own, 1));
    NEED(chmod(step_path(1), 0755) == 0);
    snprintf(dir, sizeof(dir), "chmod 444 %s/.metadata", step_path(1));
    NEED(system(dir) == 0);
    NEED(sidestep_series_delete(series, 1, &err) == SIDESTEP_EPERM && load_by_name(own, 1));
    snprintf(dir, sizeof(dir), "%s/.sidestep", scratch.path);
    world_fill(&world, 3);
    NEED(sidestep_series_save(series, 3, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    NEED(chmod(scratch.path, 0555) == 0 && chmod(dir, 0555) == 0);
    NEED(sidestep_series_open(own, scratch.path, NULL, &series, &err) == SIDESTEP_EPERM);
    NEED(strstr(err.message, scratch.path) != NULL && series == NULL);
    NEED(load_by_name(own, 3)); /* a reader can */
    NEED(find_newest(scratch.path, SIDESTEP_VERIFY_BEFORE, &latest, &err) == SIDESTEP_OK);
    NEED(strstr(latest, "step-3") != NULL);
    free(latest);
    NEED(chmod(scratch.path, 0755) == 0 && chmod(dir, 0755) == 0);
    NEED(chmod(step_path(3), 0) == 0);
    NEED(sidestep_series_open(own, scratch.path, NULL, &series, &err) == SIDESTEP_OK);
    NEED(sidestep_series_load(series, world.state, NULL, &step, NULL, rejected, &err) ==
         SIDESTEP_EPERM);
    NEED(strstr(err.message, "step-3") != NULL && strstr(err.message, "by naming it") != NULL);
    NEED(find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err) == SIDESTEP_EPERM);
    NEED(look_says_unreadable(3));
    NEED(chmod(step_path(3), 0755) == 0); /* no older one was taken, and it is unchanged */
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        snprintf(dir, sizeof(dir), "chmod %s %s/%s", "000", step_path(3), records[i]);
        NEED(system(dir) == 0);
        NEED(sidestep_series_load(series, world.state, NULL, &step, NULL, rejected, &err) ==
             SIDESTEP_EPERM);
        snprintf(dir, sizeof(dir), "chmod %s %s/%s", "644", step_path(3), records[i]);
        NEED(system(dir) == 0);
    }
    NEED(sidestep_series_load(series, world.state, NULL, &step, NULL, rejected, &err) ==
         SIDESTEP_OK);
    NEED(step == 3 && world_check(&world, 3) == 0 && rejected[0] == '\0');
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    NEED(load_by_name(own, 3));
    return sidestep_engine_close(&own, &err) != SIDESTEP_OK;
}

static enum sidestep_presence presence_of(uint64_t step, enum sidestep_status *status)
{
    struct sidestep_list list = {0};
    enum sidestep_presence found = SIDESTEP_TRASH;

    if (sidestep_list_root(scratch.path, &list, &err) != SIDESTEP_OK)
        return found;
    for (size_t i = 0; i < list.count; i++)
        if (sidestep_list_entry(&list, i)->step == (int64_t)step) {
            found = sidestep_list_entry(&list, i)->state;
            *status = sidestep_list_entry(&list, i)->status;
        }
    sidestep_list_release(&list);
    return found;
}

/* verify: one problem for the file, however many tensors it has. */
static bool verify_says_unreadable(uint64_t step)
{
    struct sidestep_verify_report report = {0};
    bool good = sidestep_verify(step_path(step), NULL, &report, &err) == SIDESTEP_OK &&
                !report.is_ok && report.status == SIDESTEP_EPERM && report.problem_count == 1 &&
                strcmp(sidestep_verify_report_problem(&report, 0)->kind, "permission") == 0 &&
                sidestep_verify_report_problem(&report, 0)->name == NULL;

    sidestep_verify_report_release(&report);
    return good;
}

static bool info_says_unreadable(uint64_t step)
{
    struct sidestep_checkpoint_info info = SIDESTEP_CHECKPOINT_INFO_INIT;
    struct sidestep_checkpoint *checkpoint = NULL;
    bool good = sidestep_checkpoint_open(step_path(step), &checkpoint, &err) == SIDESTEP_OK &&
                sidestep_checkpoint_info(checkpoint, &info) == SIDESTEP_OK && info.damage == NULL &&
                info.damaged_count == 0 && info.unread_count == 1 &&
                info.unread_status == SIDESTEP_EPERM && strstr(info.unread, "__0_0.distcp") != NULL;

    sidestep_checkpoint_close(&checkpoint);
    return good;
}

/* A file that may not be read is unreadable everywhere, and never damaged: for a load, a resume
 * that verifies first, verify, a listing, and a prune. */
static int what_may_not_be_read_is_no_damage(void)
{
    static const char *const records[] = {".metadata", ".sidestep.manifest.*", "__0_0.distcp"};
    struct sidestep_load_options before = SIDESTEP_LOAD_OPTIONS_INIT;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    char command[320], *latest = NULL;
    uint64_t step = 0;

    before.verify = SIDESTEP_VERIFY_BEFORE;
    NEED(begin_series(&own, &series, 3));
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        struct sidestep_verify_report verified = {0};
        struct sidestep_gc_report pruned = {0};
        enum sidestep_status status = SIDESTEP_OK;
        bool is_shard = strcmp(records[i], "__0_0.distcp") == 0;

        snprintf(command, sizeof(command), "chmod 000 %s/%s", step_path(3), records[i]);
        NEED(system(command) == 0);
        NEED(sidestep_load(own, step_path(3), world.state, NULL, NULL, &err) == SIDESTEP_EPERM);
        NEED(sidestep_series_load(series, world.state, &before, &step, NULL, NULL, &err) ==
             SIDESTEP_EPERM);
        NEED(find_newest(scratch.path, SIDESTEP_VERIFY_READ, &latest, &err) == SIDESTEP_EPERM);
        NEED(presence_of(3, &status) == SIDESTEP_UNREADABLE && status == SIDESTEP_EPERM);
        if (is_shard)
            NEED(verify_says_unreadable(3) && info_says_unreadable(3));
        else
            NEED(sidestep_verify(step_path(3), NULL, &verified, &err) == SIDESTEP_EPERM);
        NEED(sidestep_prune(scratch.path, &keep, SIDESTEP_GC_DRY_RUN, &pruned, &err) ==
             SIDESTEP_OK);
        for (size_t k = 0; k < pruned.kept_count; k++)
            NEED(strstr(pruned.kept[k], "does not verify") == NULL);
        sidestep_gc_report_release(&pruned);
        snprintf(command, sizeof(command), "chmod 644 %s/%s", step_path(3), records[i]);
        NEED(system(command) == 0);
        NEED(step_exists(3) && load_by_name(own, 3));
    }
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    return sidestep_engine_close(&own, &err) != SIDESTEP_OK;
}

/* The report of a prune that keeps only the newest. */
static enum sidestep_status prune_told(uint32_t flags, char *text, size_t room)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report = {0};
    enum sidestep_status status = sidestep_prune(scratch.path, &keep, flags, &report, &err);
    size_t used = (size_t)snprintf(text, room, "%llu bytes", (unsigned long long)report.bytes);

    for (size_t i = 0; i < report.removed_count; i++)
        used += (size_t)snprintf(text + used, room - used, "\nremoved %s", report.removed[i]);
    for (size_t i = 0; i < report.kept_count; i++)
        used += (size_t)snprintf(text + used, room - used, "\nkept %s", report.kept[i]);
    sidestep_gc_report_release(&report);
    return status;
}

/* Does a dry run report ${words}, and the real one the same? */
static bool dry_run_is_true(const char *words)
{
    char dry[2048], real[2048];
    bool is_same = prune_told(SIDESTEP_GC_DRY_RUN, dry, sizeof(dry)) == SIDESTEP_OK &&
                   prune_told(0, real, sizeof(real)) == SIDESTEP_OK && strcmp(dry, real) == 0;

    if (!is_same || strstr(dry, words) == NULL)
        fprintf(stderr, "# dry run: %s\n# real run: %s\n", dry, real);
    return is_same && strstr(dry, words) != NULL;
}

static int dry_runs_are_true(void)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_checkpoint *reading = NULL;
    char path[256], marks[256], text[2048];

    snprintf(marks, sizeof(marks), "%s/.sidestep", scratch.path);
    NEED(begin_series(&own, &series, 2));
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    NEED(chmod(scratch.path, 0555) == 0);
    NEED(dry_run_is_true("step-1: the directory that it is in may not be written to"));
    NEED(chmod(scratch.path, 0755) == 0 && chmod(step_path(1), 0555) == 0);
    NEED(dry_run_is_true("step-1: its directory may not be written to"));
    snprintf(path, sizeof(path), "%s/.metadata", step_path(1));
    NEED(chmod(step_path(1), 0755) == 0 && chmod(path, 0444) == 0);
    NEED(dry_run_is_true("step-1: its .metadata may not be written to"));
    NEED(chmod(path, 0644) == 0);
    NEED(sidestep_checkpoint_open(step_path(1), &reading, &err) == SIDESTEP_OK);
    NEED(dry_run_is_true("step-1: it is being read"));
    sidestep_checkpoint_close(&reading);
    NEED(chmod(marks, 0555) == 0); /* then the real one does not even begin */
    NEED(prune_told(SIDESTEP_GC_DRY_RUN, text, sizeof(text)) == SIDESTEP_OK);
    NEED(strstr(text, "step-1: .sidestep of its series may not be written to") != NULL);
    NEED(prune_told(0, text, sizeof(text)) == SIDESTEP_EPERM);
    NEED(chmod(marks, 0755) == 0 && step_exists(1));
    NEED(prune_told(SIDESTEP_GC_DRY_RUN, text, sizeof(text)) == SIDESTEP_OK && step_exists(1));
    NEED(strstr(text, "removed") != NULL && strncmp(text, "0 bytes", 7) != 0);
    char *dry = strdup(text);
    NEED(prune_told(0, text, sizeof(text)) == SIDESTEP_OK && !step_exists(1));
    NEED(strcmp(dry, text) == 0);
    free(dry);
    return sidestep_engine_close(&own, &err) != SIDESTEP_OK;
}

static bool resumes(struct sidestep_series *series, uint64_t step, uint64_t content)
{
    uint64_t got = 0;
    char *latest = NULL;

    world_fill(&world, 999);
    if (sidestep_series_load(series, world.state, NULL, &got, NULL, NULL, &err) != SIDESTEP_OK ||
        find_newest(scratch.path, SIDESTEP_VERIFY_READ, &latest, &err) != SIDESTEP_OK)
        return false;
    bool is_same = strcmp(latest, step_path(step)) == 0;
    free(latest);
    return got == step && is_same && world_check(&world, content) == 0;
}

/* A run goes back, and what is newer cannot be read: it is left behind nevertheless, and what is
 * saved under its name later is not. */
static int unreadable_ones_are_left(void)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_metric metric = {"loss", 1};

    NEED(begin_series(&own, &series, 3));
    NEED(resumes(series, 3, 3));
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    NEED(chmod(step_path(3), 0) == 0);
    NEED(sidestep_series_open(own, scratch.path, NULL, &series, &err) == SIDESTEP_OK);
    NEED(sidestep_series_load_step(series, 1, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    NEED(resumes(series, 1, 1));
    /* What could not be told from its successor is not marked at all. */
    NEED(sidestep_series_note(series, 2, &metric, 1, NULL, 0, &err) == SIDESTEP_OK);
    NEED(chmod(step_path(2), 0) == 0 && sidestep_pin(step_path(2), true, &err) == SIDESTEP_EPERM);
    NEED(strstr(err.message, "cannot be read now") != NULL && chmod(step_path(2), 0755) == 0);
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK); /* it has saved nothing */
    NEED(chmod(step_path(3), 0755) == 0);
    NEED(sidestep_series_open(own, scratch.path, NULL, &series, &err) == SIDESTEP_OK);
    NEED(resumes(series, 1, 1));
    world_fill(&world, 33);
    NEED(sidestep_series_save(series, 3, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    NEED(resumes(series, 3, 33));
    /* What this incarnation has saved itself could not be told from what it will save. */
    NEED(chmod(step_path(3), 0) == 0);
    NEED(sidestep_series_load_step(series, 1, world.state, NULL, NULL, &err) == SIDESTEP_EPERM);
    NEED(strstr(err.message, "step-3' is newer and cannot be read") != NULL);
    NEED(sidestep_series_note(series, 3, &metric, 1, NULL, 0, &err) == SIDESTEP_EPERM);
    NEED(chmod(step_path(3), 0755) == 0 && resumes(series, 3, 33));
    NEED(sidestep_series_load_step(series, 1, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    NEED(resumes(series, 1, 1));
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    return sidestep_engine_close(&own, &err) != SIDESTEP_OK;
}

static bool fails_at_the_newest(enum sidestep_status status)
{
    return status == SIDESTEP_EPERM && strstr(err.message, "run7-101.dcp") != NULL;
}

/* In a series whose names end differently: an older one is never the newest, whether another one
 * shows the template or not, and there is never "nothing yet". */
static int newest_of_a_template_is_unreadable(void)
{
    static const char *const shut[] = {"run7-101.dcp", "run7-099.dcp"}; /* one, then both */
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    char path[256], *latest = NULL;
    uint64_t step;

    options.name = "run7-{step:03}.dcp";
    NEED(sidestep_engine_open(&own, NULL, &err) == SIDESTEP_OK);
    NEED(sidestep_series_open(own, scratch.path, &options, &series, &err) == SIDESTEP_OK);
    NEED(try_save_step(series, 99) == SIDESTEP_OK && try_save_step(series, 101) == SIDESTEP_OK);
    for (size_t i = 0; i < sizeof(shut) / sizeof(shut[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", scratch.path, shut[i]);
        NEED(chmod(path, 0) == 0);
        NEED(fails_at_the_newest(
            find_newest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, &latest, &err)));
        NEED(fails_at_the_newest(
            sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err)));
    }
    for (size_t i = 0; i < sizeof(shut) / sizeof(shut[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", scratch.path, shut[i]);
        NEED(chmod(path, 0755) == 0);
    }
    NEED(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err) == SIDESTEP_OK);
    NEED(step == 101);
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    return sidestep_engine_close(&own, &err) != SIDESTEP_OK;
}

#define CANNOT_COME 77 /* a directory above is closed to others, as /root is */

static void expect_of_nobody(int (*what)(void))
{
    char path[PATH_MAX];
    int status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("skipped: sanitizers follow no threads that a forked child starts\n");
    skip();
#endif
    assert_int_equal(chmod(scratch.path, 0755), 0);
    if (getuid() == 0)
        assert_int_equal(chown(scratch.path, NOBODY, NOBODY), 0);
    assert_non_null(realpath(scratch.path, path));
    pid_t child = fork();
    if (child == 0) {
        bool dropped = getuid() != 0 || (setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        if (dropped && access(path, R_OK | W_OK | X_OK) != 0)
            _exit(CANNOT_COME);
        _exit(dropped ? what() : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_COME) {
        print_message("skipped: a directory above this one is closed to other users\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(a_root_that_may_not_be_written_says_so)
{
    expect_of_nobody(permissions_come_and_go);
}

TEST(a_dry_run_reports_what_a_real_run_does)
{
    expect_of_nobody(dry_runs_are_true);
}

TEST(a_file_without_permission_is_not_damage)
{
    expect_of_nobody(what_may_not_be_read_is_no_damage);
}

TEST(going_back_leaves_unreadable_checkpoints_behind)
{
    expect_of_nobody(unreadable_ones_are_left);
}

TEST(the_newest_is_not_passed_over)
{
    expect_of_nobody(newest_of_a_template_is_unreadable);
}

/* ---- a disk that is mounted read-only, in a process with mounts of its own */

#define CANNOT_MOUNT 77

static bool is_quiet_refusal(enum sidestep_status status)
{
    return status == SIDESTEP_EPERM && err.sys_errno == EROFS &&
           strstr(err.message, "Read-only file system") != NULL;
}

static int disk_becomes_read_only(void)
{
    const unsigned long read_only = MS_REMOUNT | MS_RDONLY;
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report;
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    char *latest = NULL, rejected[2048];
    uint64_t step = 0;

    NEED(begin_series(&own, &series, 2));
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    NEED(mount("disk", scratch.path, "tmpfs", read_only, NULL) == 0);
    /* No run begins there, and commands that write say why not. */
    NEED(is_quiet_refusal(sidestep_series_open(own, scratch.path, NULL, &series, &err)));
    NEED(series == NULL && strstr(err.message, scratch.path) != NULL);
    NEED(is_quiet_refusal(sidestep_pin(step_path(1), true, &err)));
    NEED(is_quiet_refusal(sidestep_prune(scratch.path, &keep, 0, &report, &err)));
    NEED(is_quiet_refusal(sidestep_save(own, step_path(3), world.state, NULL, NULL, &err)));
    /* Readers need not write. */
    NEED(sidestep_prune(scratch.path, &keep, SIDESTEP_GC_DRY_RUN, &report, &err) == SIDESTEP_OK);
    NEED(report.removed_count == 0 && report.kept_count == 2);
    NEED(strstr(report.kept[0], "step-1: the directory that it is in may not be written") != NULL);
    sidestep_gc_report_release(&report);
    NEED(find_newest(scratch.path, SIDESTEP_VERIFY_BEFORE, &latest, &err) == SIDESTEP_OK);
    NEED(strcmp(latest, step_path(2)) == 0);
    free(latest);
    NEED(load_by_name(own, 1) && load_by_name(own, 2));
    /* Nothing of all this was lost. */
    NEED(mount("disk", scratch.path, "tmpfs", MS_REMOUNT, NULL) == 0);
    NEED(step_exists(1) && step_exists(2) && !step_exists(3));
    NEED(sidestep_series_open(own, scratch.path, NULL, &series, &err) == SIDESTEP_OK);
    NEED(sidestep_series_load(series, world.state, NULL, &step, NULL, rejected, &err) ==
         SIDESTEP_OK);
    NEED(step == 2 && world_check(&world, 2) == 0);
    NEED(sidestep_series_save(series, 3, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    return sidestep_engine_close(&own, &err) != SIDESTEP_OK;
}

static bool fill_disk(const char *path)
{
    static const char page[4096];
    FILE *file = fopen(path, "w");

    if (file == NULL)
        return false;
    setvbuf(file, NULL, _IONBF, 0);
    while (fwrite(page, 1, sizeof(page), file) == sizeof(page))
        continue;
    bool is_full = errno == ENOSPC;
    return fclose(file) == 0 && is_full;
}

static int disk_is_full(void)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 1};
    struct sidestep_gc_report report;
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    char *latest = NULL, filler[256];

    snprintf(filler, sizeof(filler), "%s/notes.txt", scratch.path);
    NEED(begin_series(&own, &series, 3));
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    NEED(fill_disk(filler));
    NEED(sidestep_series_open(own, scratch.path, NULL, &series, &err) == SIDESTEP_ENOSPC);
    NEED(series == NULL && strstr(err.message, scratch.path) != NULL);
    NEED(sidestep_save(own, step_path(4), world.state, NULL, NULL, &err) == SIDESTEP_ENOSPC);
    NEED(!step_exists(4) && load_by_name(own, 1)); /* readers are not affected */
    NEED(find_newest(scratch.path, SIDESTEP_VERIFY_BEFORE, &latest, &err) == SIDESTEP_OK);
    NEED(strcmp(latest, step_path(3)) == 0);
    free(latest);
    NEED(sidestep_prune(scratch.path, &keep, 0, &report, &err) == SIDESTEP_OK);
    NEED(report.removed_count == 2 && !step_exists(1) && !step_exists(2)); /* deletion helps */
    sidestep_gc_report_release(&report);
    NEED(sidestep_series_open(own, scratch.path, NULL, &series, &err) == SIDESTEP_OK);
    NEED(resumes(series, 3, 3));
    NEED(sidestep_series_save(series, 4, world.state, NULL, NULL, &err) == SIDESTEP_OK);
    NEED(sidestep_series_close(&series, &err) == SIDESTEP_OK);
    return sidestep_engine_close(&own, &err) != SIDESTEP_OK;
}

static int on_own_disk(int (*what)(void), const char *size)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("disk", scratch.path, "tmpfs", 0, size) != 0)
        return CANNOT_MOUNT;
    return what();
}

static void expect_on_disk(int (*what)(void), const char *size)
{
    int status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("skipped: sanitizers follow no threads that a forked child starts\n");
    skip();
#endif
    pid_t child = fork();
    if (child == 0)
        _exit(on_own_disk(what, size));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_MOUNT) {
        print_message("skipped: nothing can be mounted here without more rights\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(a_read_only_disk_says_so)
{
    expect_on_disk(disk_becomes_read_only, "size=64m");
}

TEST(a_full_disk_is_reported_and_can_be_pruned)
{
    expect_on_disk(disk_is_full, "size=4m");
}

EACH_TEST(one_rank_setup, one_rank_teardown);
