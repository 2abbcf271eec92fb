/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_other_test.c -- files of other programs are "ok" only if all of them were read. */
#include <errno.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/owned.h"
#include "sidestep/sidestep_tools.h"
#include "support/one_scratch.h"

static char checkpoint[256];
static struct sidestep_error err;

/* As transformers writes them under FSDP: a DCP in a directory, zip files, JSON, a text. */
static int setup(void **state)
{
    char command[1024];

    (void)state;
    if (!scratch_make(&scratch, NULL))
        return -1;
    snprintf(checkpoint, sizeof(checkpoint), "%s/checkpoint-7", scratch.path);
    snprintf(command, sizeof(command),
             "mkdir %s && cp -r tests/golden/torch-2.14.1/nested %s/pytorch_model_fsdp_0 && "
             "cp tests/golden/torch-2.14.1/tensor.pt %s/optimizer.pt && cd %s && "
             "echo '{\"global_step\": 7}' >trainer_state.json && echo words >merges.txt && "
             "chmod -R u+w .",
             checkpoint, checkpoint, checkpoint, checkpoint);
    return system(command) == 0 ? 0 : -1;
}

static enum sidestep_status verify(struct sidestep_verify_report *report,
                                   const struct sidestep_verify_options *options)
{
    return sidestep_verify(checkpoint, options, report, &err);
}

/* An error, a problem, or the whole answer: never "ok" for what was not read. */
TEST(a_failed_read_is_never_ok)
{
    static const char *const points[] = {"memory", "posix"};
    OWNED_BY(sidestep_verify_report_release) struct sidestep_verify_report whole = {0};

    assert_int_equal(verify(&whole, NULL), SIDESTEP_OK);
    for (size_t p = 0; p < ARRAY_LENGTH(points); p++) {
        bool fired = true;
        unsigned long nth = 1, found = 0;
        for (; fired; nth++) {
            OWNED_BY(sidestep_verify_report_release) struct sidestep_verify_report report = {0};
            fault_arm(points[p], nth, false, p == 0 ? ENOMEM : EIO);
            enum sidestep_status status = verify(&report, NULL);
            fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            assert_true(fired || status == SIDESTEP_OK);
            if (status == SIDESTEP_OK && report.is_ok) {
                assert_int_equal(report.checked_bytes, whole.checked_bytes);
                assert_int_equal(report.unchecked_count, whole.unchecked_count);
            } else if (status == SIDESTEP_OK) {
                if (report.status != SIDESTEP_EIO) /* and no damage */
                    fail_msg("%s %lu: %s: %s", points[p], nth,
                             sidestep_verify_report_problem(&report, 0)->file,
                             sidestep_verify_report_problem(&report, 0)->message);
                found++;
            }
        }
        assert_true(nth > 10 && (p == 0 || found > 3));
    }
}

static uint64_t last_done, last_total;

static void note_progress(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    assert_true(done >= last_done && done <= total && (last_total == 0 || total == last_total));
    last_done = done;
    last_total = total;
}

TEST(progress_reaches_the_end)
{
    OWNED_BY(sidestep_verify_report_release) struct sidestep_verify_report report = {0};
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;

    last_done = last_total = 0;
    options.on_progress = note_progress;
    assert_int_equal(verify(&report, &options), SIDESTEP_OK);
    assert_true(last_total > 10000 && last_done == last_total);
}

TEST(a_cancelled_verify_returns_ecancelled)
{
    OWNED_BY(sidestep_verify_report_release) struct sidestep_verify_report report = {0};
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    const bool volatile cancel = true;

    options.cancel = &cancel;
    assert_int_equal(verify(&report, &options), SIDESTEP_ECANCELLED);
    assert_true(!report.is_ok && report.owner == NULL);
}

ALL_TESTS(setup, scratch_teardown);
