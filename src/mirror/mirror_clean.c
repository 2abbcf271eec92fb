/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_clean.c -- deletes at the mirror what its retention does not keep, and what interrupted
 * copies left there; see mirror.h. */
#include "mirror/mirror.h"
#include "root/root.h"

static enum sidestep_status check_cancelled(void *context, struct sidestep_error *err)
{
    const struct mirror_look *m = context;

    if (m->options.cancel != NULL && *m->options.cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "the call was cancelled");
    return SIDESTEP_OK;
}

static enum sidestep_status prune(struct mirror_look *m, struct lease *lease,
                                  struct sidestep_error *err)
{
    if (m->findings->pruned == NULL)
        m->findings->pruned = gc_report_new(m->far.root);
    if (m->findings->pruned == NULL)
        return FAIL_NOMEM(err, sizeof(*m->findings->pruned));
    struct prune prune = {.store = m->far.store,
                          .path = m->far.root,
                          .root = m->far.dir,
                          .annotations_dir = lease->dir,
                          .retention = &m->retention,
                          .run_id = m->run_id,
                          .may_delete = check_cancelled,
                          .context = m,
                          .report = m->findings->pruned};
    TRY(prune_run(&prune, err));
    if (prune.failure.status == SIDESTEP_OK)
        return SIDESTEP_OK;
    return error_copy(err, &prune.failure);
}

/* May another process go on with a part that it sends? */
static bool may_be_sent(const struct mirror_look *m, size_t i)
{
    return m->entries[i].state == SIDESTEP_PART && !m->items[i].is_there &&
           !mirror_leads_parts(m, &m->entries[i]);
}

static bool has_parts_to_send(const struct mirror_look *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (may_be_sent(m, i))
            return true;
    return false;
}

/* Nothing is left to be sent, so no interrupted copy is left to be gone on with. */
static enum sidestep_status sweep(struct mirror_look *m, struct sidestep_error *err)
{
    struct sweep sweep = {.store = m->far.store, .parent = m->far.dir, .mode = SWEEP_ALL};

    TRY(root_sweep(&sweep, err));
    return root_sweep_below(&sweep, err);
}

enum sidestep_status mirror_clean(struct mirror_look *m, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct lease lease = {0};

    if (!m->has_unnamed && !has_parts_to_send(m))
        TRY(sweep(m, err));
    if (!m->retention.wanted)
        return SIDESTEP_OK;
    enum sidestep_status status = lease_acquire_to_delete(&lease, m->far.store, m->far.root, &why);
    if (status == SIDESTEP_ELOCKED) /* by a run; or for long by another mirror */
        return SIDESTEP_OK;
    if (status == SIDESTEP_OK)
        status = prune(m, &lease, &why);
    lease_release(&lease);
    return status == SIDESTEP_OK ? status : error_copy(err, &why);
}
