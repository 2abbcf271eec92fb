/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * part_sends.h -- for tests of processes that send parts to a mirror, one call at a time: two nodes
 * 'a' and 'b' have parts of step 1, which nobody has sent. Include it after cmocka.h.
 */
#ifndef SUPPORT_PART_SENDS_H
#define SUPPORT_PART_SENDS_H

#include <sys/stat.h>

#include "base/fault.h"
#include "mirror/mirror.h"
#include "support/node_jobs.h"

static char far[128], to[160];
static char save_id[SAVE_ID_HEX];
static uint8_t id[SAVE_ID_BYTES];
static struct sidestep_error err;

/* Two nodes have parts of step 1, which nobody has sent. */
static int set_up(void **test)
{
    struct sidestep_list list = {0};

    if (make_nodes(test) != 0)
        return -1;
    snprintf(far, sizeof(far), "%s/f", scratch.path);
    snprintf(to, sizeof(to), "%s/step-1", far);
    save_steps(2, "ab", false, 1, 1);
    if (mkdir(far, 0777) != 0 ||
        sidestep_list_root(node_path('a', ""), &list, &err) != SIDESTEP_OK || list.count != 1)
        return -1;
    snprintf(save_id, sizeof(save_id), "%s", sidestep_list_entry(&list, 0)->save_id);
    sidestep_list_release(&list);
    return hash_from_hex(save_id, SAVE_ID_BYTES, id) ? 0 : -1;
}

EACH_TEST(set_up, tear_down);

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != SIDESTEP_OK)                                                                 \
            fail_msg("%s", err.message);                                                           \
    } while (0)

static inline struct commit make_commit(struct store *store, uint32_t rank)
{
    return (struct commit){
        .store = store,
        .clock = clock_system(),
        .rank = rank,
        .world_size = 2,
        .request = {
            .timeout_ns = UINT64_C(1000000000), .step = 1, .no_replace = true, .resumes = true}};
}

static inline enum sidestep_status put(struct commit *commit, char node)
{
    struct checkpoint_copy c = {.source = node_path(node, "step-1"),
                                .destination = to,
                                .save = commit,
                                .from = store_posix(),
                                .to = commit->store,
                                .clock = clock_system(),
                                .options.threads = 1};
    enum sidestep_status status = copy_run(&c, NULL, &err);

    if (status == SIDESTEP_OK)
        commit->layout_digest = c.reader->files[0].footer.layout_digest;
    copy_release(&c);
    return status;
}

#endif
