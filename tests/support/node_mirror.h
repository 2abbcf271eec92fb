/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node_mirror.h -- node_jobs.h, and a mirror that looks like the directory of a node 'f'. Each test
 * begins without it. Include it after cmocka.h.
 */
#ifndef SUPPORT_NODE_MIRROR_H
#define SUPPORT_NODE_MIRROR_H

#include "base/fault.h"
#include "support/node_jobs.h"

static char far[128];
static struct sidestep_mirror_options to_mirror;
static struct sidestep_retention far_keep;

static int set_up(void **test)
{
    if (make_nodes(test) != 0)
        return -1;
    snprintf(far, sizeof(far), "%s/f", scratch.path);
    to_mirror = (struct sidestep_mirror_options)SIDESTEP_MIRROR_OPTIONS_INIT;
    far_keep = (struct sidestep_retention)SIDESTEP_RETENTION_INIT;
    return 0;
}

EACH_TEST(set_up, tear_down);

static inline struct job make_job(int ranks, const char *nodes, bool resumes)
{
    return (struct job){
        .ranks = ranks, .nodes = nodes, .resumes = resumes, .mirror = far, .to_mirror = &to_mirror};
}

/* The mirror has this step, whole. */
static inline void expect_verified(uint64_t step)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};
    char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu", far, (unsigned long long)step);
    if (sidestep_verify(path, NULL, &report, &err) != SIDESTEP_OK)
        fail_msg("%s", err.message);
    assert_true(report.is_ok);
    sidestep_verify_report_release(&report);
}

#endif
