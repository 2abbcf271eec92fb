/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replicas.h -- tensors that all ranks have under one name, but do not declare to be replicated.
 *
 * If their bytes are equal on all ranks, each rank writes a part of them.  If they differ, the
 * lowest rank writes its own.  That is decided in the call, for each save anew, and before anything
 * is staged: each rank hashes its bytes, and an all-reduce compares the hashes.  The snapshot is
 * taken in the same call, so what was compared is what is saved.  Nothing on storage tells one way
 * from the other.
 *
 * A save hashes only the tensors that were equal in the save before.  Its one digest of them goes
 * with the agreement of save.c.  If the digests differ, a second all-reduce finds out which tensors
 * do, and the ranks plan anew without them.  Such tensors are not looked at again, until the layout
 * changes.
 *
 * Threads: the thread that calls.  The engine's stagers hash.
 */
#ifndef SAVE_REPLICAS_H
#define SAVE_REPLICAS_H

#include "engine/engine.h"
#include "plan/plan.h"

/* Fewer bytes, of all such tensors together, are not worth it. */
#define REPLICAS_MIN_BYTES ((uint64_t)16 << 20)
/* Tensors of less than this part of it are left to the lowest rank.  They weigh little, and are
 * the ones that differ: statistics, counters. */
#define REPLICAS_MIN_TENSOR_PART 256u

struct replica {
    size_t entry;  /* in the state */
    uint64_t hash; /* of its bytes, in this call ... */
    bool has_hash; /* ... unless this rank cannot read them */
    bool is_equal; /* on all ranks, when they were compared last, or not compared yet */
};

/* What is hashed in one piece. */
struct replica_block {
    const uint8_t *bytes;
    size_t length;
};

/* What an engine keeps of them.  Zero but for ${wanted} and ${min_bytes}: nothing is known. */
struct replicas {
    /* As the engine was opened; LOWEST once a save was incremental. */
    enum sidestep_replicas wanted;
    uint64_t min_bytes; /* constant: REPLICAS_MIN_BYTES, less in tests of small states */
    /* This rank would have shared, and others would not: it does not try again.  For saves whose
     * state may change meanwhile, and for the others. */
    bool outvoted[2];
    /* For the thread that calls.  Equal on all ranks, but for hashes. */
    bool planned;       /* the plan was made for a save that shares */
    bool known;         /* the rest is of the layout of the plan */
    bool hashed;        /* the hashes are of this call */
    uint64_t bytes;     /* of the tensors that are shared; 0: too few */
    struct arena arena; /* for all below */
    struct replica *list;
    size_t count;
    bool *declared;  /* per entry of the state: it is shared */
    uint64_t *words; /* for the all-reduce: two of each */
    struct replica_block *blocks;
    uint64_t *block_hashes;
};

void replicas_release(struct replicas *replicas);
/* Forget the layout, because that of some rank has changed. */
void replicas_forget(struct replicas *replicas);
/* Would this rank share such tensors in a save?  ${still}: nobody changes the state meanwhile.
 * ${copies}: the call copies it. */
bool replicas_are_wanted(const struct replicas *replicas, const struct sidestep_engine *engine,
                         bool still, bool copies);
/* Record that this rank would have shared, but others would not. */
void replicas_note_outvoted(struct replicas *replicas, bool still);
/* Hash the tensors that are shared.  Adds to the times of ${info}.
 * Call devices_detect_driver() before, in the same call of the program. */
void replicas_hash(struct sidestep_engine *engine, const struct sidestep_state_dict *state,
                   struct sidestep_save_info *info) ON_THREAD(CALLER);
/* Set ${words} for an all-reduce by maximum, after which words[1] is ~words[0] only if all ranks
 * have hashed the same bytes. */
void replicas_digest(const struct replicas *replicas, uint64_t words[2]);
/* Make a plan for a save that shares.  Compares the tensors one by one, and sets ${info->differs}
 * if some were found to differ.  Collective. */
enum sidestep_status replicas_plan_all(struct sidestep_engine *engine,
                                       const struct sidestep_state_dict *state,
                                       struct sidestep_save_info *info, struct sidestep_error *err)
    ON_THREAD(CALLER);

#endif
