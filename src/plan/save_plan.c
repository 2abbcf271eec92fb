/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_plan.c -- see save_plan.h: makes the plans of all ranks, on rank 0.
 *
 * It first assigns what only one rank can write: boxes that one rank has, objects, and boxes
 * that some rank does not declare replicated.  Copies of the latter may differ, so the lowest rank
 * always writes them.  Then it assigns the replicated boxes.  The result depends only on the
 * tables, so the same layout gives the same plan at each save.
 */
#include "plan/save_plan.h"

#include <assert.h>
#include <stdlib.h>

#include "base/base.h"
#include "codec/codec.h"
#include "model/model.h"
#include "plan/save_plan_encoding.h"
#include "plan/save_plan_table.h"
#include "plan/shares.h"
#include "plan/tiling.h"

/* A box that several ranks have and declare replicated: claims[0 .. count). */
struct shared_box {
    struct plan_claim **claims;
    size_t count;
    uint64_t bytes;
    size_t order; /* in which the boxes were found, so that the sort is unambiguous */
};

struct builder {
    struct plan_tables *tables;
    const uint32_t *hosts; /* per rank: the number of its host; NULL: all are on one */
    struct arena arena;    /* for all below */
    uint64_t *load;        /* per rank: bytes that it writes so far */
    uint64_t *host_load;   /* per host: bytes that its ranks write so far */
    struct box *boxes;     /* distinct boxes of the current tensor */
    size_t *box_claims;    /* the first claim of each of them */
    struct share *shares;  /* of the ranks that might write the current shared box */
    struct shared_box *shared;
    size_t shared_count;
};

static void builder_release(struct builder *b)
{
    arena_release(&b->arena);
}

/* Allocate scratch arrays for the name with the most claims, and for all shared boxes. */
static enum sidestep_status builder_init(struct builder *b, struct sidestep_error *err)
{
    const struct plan_tables *tables = b->tables;
    size_t claims = 1;

    for (size_t i = 0; i < tables->name_count; i++)
        claims = max_u64(claims, tables->names[i].claim_count);
    b->load = arena_new(&b->arena, tables->world_size, sizeof(*b->load));
    b->host_load = arena_new(&b->arena, tables->world_size, sizeof(*b->host_load));
    b->boxes = arena_new(&b->arena, claims, sizeof(*b->boxes));
    b->box_claims = arena_new(&b->arena, claims + 1, sizeof(*b->box_claims));
    b->shares = arena_new(&b->arena, claims, sizeof(*b->shares));
    b->shared = arena_new(&b->arena, tables->count / 2, sizeof(*b->shared));
    if (b->load == NULL || b->host_load == NULL || b->boxes == NULL || b->box_claims == NULL ||
        b->shares == NULL || b->shared == NULL)
        return FAIL_NOMEM(err, tables->count / 2 * sizeof(*b->shared));
    return SIDESTEP_OK;
}

static uint64_t box_bytes(const struct plan_entry *name, const struct box *box)
{
    return box_volume(box) * sidestep_dtype_size(name->dtype);
}

/* ---------------------------------------------------------------- one name */

static int compare_boxes(const struct box *a, const struct box *b)
{
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->offsets[d] != b->offsets[d])
            return a->offsets[d] < b->offsets[d] ? -1 : 1;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->lengths[d] != b->lengths[d])
            return a->lengths[d] < b->lengths[d] ? -1 : 1;
    return 0;
}

/* By box, then by rank. */
static int compare_claims(const void *a, const void *b)
{
    const struct plan_claim *x = *(struct plan_claim *const *)a;
    const struct plan_claim *y = *(struct plan_claim *const *)b;
    int order = compare_boxes(&x->box, &y->box);

    if (order == 0)
        order = x->rank < y->rank ? -1 : x->rank > y->rank;
    return order;
}

/* Sort the claims, and list the distinct boxes.  Box k has claims [box_claims[k],
 * box_claims[k+1]). */
static enum sidestep_status group_boxes(struct builder *b, const struct plan_entry *name,
                                        size_t *box_count, struct sidestep_error *err)
{
    struct plan_claim **claims = name->claims;
    size_t count = 0;

    qsort(claims, name->claim_count, sizeof(struct plan_claim *), compare_claims);
    for (size_t i = 0; i < name->claim_count; i++) {
        bool same = i != 0 && box_equal(&claims[i]->box, &claims[i - 1]->box);

        if (same && claims[i]->rank == claims[i - 1]->rank)
            return FAIL(err, SIDESTEP_EINVAL, "'%s': rank %u lists the box %s twice",
                        display_name(name->name).text, claims[i]->rank,
                        display_box(&claims[i]->box).text);
        if (same)
            continue;
        b->box_claims[count] = i;
        b->boxes[count++] = claims[i]->box;
    }
    b->box_claims[count] = name->claim_count;
    *box_count = count;
    return SIDESTEP_OK;
}

static enum sidestep_status fail_overlap(const struct builder *b, const struct plan_entry *name,
                                         size_t box_count, size_t culprit,
                                         struct sidestep_error *err)
{
    int64_t offsets[SIDESTEP_MAX_NDIM], lengths[SIDESTEP_MAX_NDIM];

    if (culprit == SIZE_MAX)
        return FAIL(err, SIDESTEP_EINVAL, "'%s': boxes of several ranks overlap",
                    display_name(name->name).text);
    for (size_t k = 0; k < box_count; k++)
        if (k != culprit && box_intersect(&b->boxes[k], &b->boxes[culprit], offsets, lengths))
            return FAIL(err, SIDESTEP_EINVAL,
                        "'%s': the box %s of rank %u overlaps the box %s of rank %u",
                        display_name(name->name).text, display_box(&b->boxes[culprit]).text,
                        name->claims[b->box_claims[culprit]]->rank, display_box(&b->boxes[k]).text,
                        name->claims[b->box_claims[k]]->rank);
    assert(false); /* tiling_check() found one */
    return SIDESTEP_EINVAL;
}

static enum sidestep_status check_tiling(const struct builder *b, const struct plan_entry *name,
                                         size_t box_count, struct sidestep_error *err)
{
    enum tiling_result result;
    size_t culprit;

    TRY(tiling_check(name->ndim, name->shape, b->boxes, box_count, &result, &culprit, err));
    if (result == TILING_OVERLAP)
        return fail_overlap(b, name, box_count, culprit, err);
    if (result == TILING_GAP)
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s': the boxes of all ranks leave gaps in the shape %s (the lowest rank that "
                    "lists it is %u)",
                    display_name(name->name).text, display_shape(name->ndim, name->shape).text,
                    name->first_rank);
    return SIDESTEP_OK;
}

static uint32_t host_of(const struct builder *b, uint32_t rank)
{
    return b->hosts != NULL ? b->hosts[rank] : 0;
}

static void add_load(struct builder *b, uint32_t rank, uint64_t bytes)
{
    b->load[rank] += bytes;
    b->host_load[host_of(b, rank)] += bytes;
}

static void assign_whole(struct builder *b, struct plan_claim *claim, uint64_t bytes)
{
    claim->part = &claim->box;
    add_load(b, claim->rank, bytes);
}

static bool is_replicated(struct plan_claim *const *claims, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((claims[i]->flags & SIDESTEP_TENSOR_REPLICATED) == 0)
            return false;
    return count > 1;
}

/* All ranks have the box. */
static void mark_common(struct plan_tables *tables, struct plan_claim *const *claims, size_t count)
{
    tables->common_count++;
    for (size_t i = 0; i < count; i++)
        claims[i]->common = tables->common_count;
}

/* Assign each box to its only possible writer, or leave it to balance(). */
static enum sidestep_status plan_tensor(struct builder *b, const struct plan_entry *name,
                                        struct sidestep_error *err)
{
    struct plan_claim *first = name->claims[0];
    size_t box_count = 0;

    TRY(group_boxes(b, name, &box_count, err));
    TRY(check_tiling(b, name, box_count, err));
    /* A tensor without elements is saved, too: its lowest rank writes one box of 0 bytes. */
    if (box_volume(&(struct box){name->ndim, name->shape, name->shape}) == 0)
        assign_whole(b, first, 0);
    for (size_t k = 0; k < box_count; k++) {
        struct plan_claim **claims = &name->claims[b->box_claims[k]];
        size_t count = b->box_claims[k + 1] - b->box_claims[k];
        uint64_t bytes = box_bytes(name, &b->boxes[k]);

        if (bytes == 0)
            continue;
        if (is_replicated(claims, count)) {
            b->shared[b->shared_count] = (struct shared_box){claims, count, bytes, b->shared_count};
            b->shared_count++;
        } else {
            assign_whole(b, claims[0], bytes);
            if (count > 1 && count == b->tables->world_size)
                mark_common(b->tables, claims, count);
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status plan_object(const struct plan_entry *name, struct sidestep_error *err)
{
    for (size_t i = 1; i < name->claim_count; i++)
        if (name->claims[i]->rank == name->claims[i - 1]->rank)
            return FAIL(err, SIDESTEP_EINVAL, "'%s': rank %u lists the object twice",
                        display_name(name->name).text, name->claims[i]->rank);
    name->claims[0]->part = &name->claims[0]->box;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- replicated boxes */

static int compare_shared(const void *a, const void *b)
{
    const struct shared_box *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The outermost dimension with several rows.  If a box is cut there, each part is contiguous. */
static uint32_t row_dimension(const struct box *box)
{
    uint32_t d = 0;

    while (d < box->ndim && box->lengths[d] <= 1)
        d++;
    return d;
}

/* How a shared box is cut. */
struct cut {
    uint32_t d; /* the dimension of the rows */
    uint64_t rows;
    uint64_t row_bytes;
    uint64_t min_rows; /* of a part: PLAN_SPLIT_BYTES / 2 */
    size_t parts;      /* at most */
};

/* The parts have at least PLAN_SPLIT_BYTES / 2 each. */
static struct cut find_cut(const struct shared_box *shared)
{
    const struct box *box = &shared->claims[0]->box;
    struct cut cut = {.d = row_dimension(box), .parts = 1};

    if (shared->bytes <= PLAN_SPLIT_BYTES || cut.d == box->ndim)
        return cut;
    cut.rows = (uint64_t)box->lengths[cut.d];
    cut.row_bytes = shared->bytes / cut.rows;
    cut.min_rows = (PLAN_SPLIT_BYTES / 2 + cut.row_bytes - 1) / cut.row_bytes;
    cut.parts = (size_t)max_u64(1, min_u64(cut.rows / cut.min_rows, shared->count));
    return cut;
}

/* Assign rows [begin, begin + rows) of its box to ${claim}. */
static enum sidestep_status assign_rows(struct builder *b, struct plan_claim *claim, uint32_t d,
                                        int64_t begin, int64_t rows, uint64_t row_bytes,
                                        struct sidestep_error *err)
{
    struct arena *arena = &b->tables->arena;
    size_t bytes = claim->box.ndim * sizeof(int64_t);
    struct box *part = arena_new(arena, 1, sizeof(*part));
    int64_t *offsets = arena_copy(arena, claim->box.offsets, bytes);
    int64_t *lengths = arena_copy(arena, claim->box.lengths, bytes);

    if (part == NULL || offsets == NULL || lengths == NULL)
        return FAIL_NOMEM(err, 2 * bytes + sizeof(*part));
    offsets[d] += begin;
    lengths[d] = rows;
    *part = (struct box){claim->box.ndim, offsets, lengths};
    claim->part = part;
    add_load(b, claim->rank, (uint64_t)rows * row_bytes);
    return SIDESTEP_OK;
}

/* Divide a shared box among its ranks, and put those that write a part first, in their order.
 * Returns how many these are. */
static size_t choose_writers(struct builder *b, const struct shared_box *shared,
                             const struct cut *cut)
{
    size_t writers = 0;

    for (size_t i = 0; i < shared->count; i++) {
        uint32_t rank = shared->claims[i]->rank, host = host_of(b, rank);
        b->shares[i] = (struct share){
            .index = i, .host = host, .host_load = b->host_load[host], .load = b->load[rank]};
    }
    shares_divide(b->shares, shared->count, shared->bytes);
    for (size_t i = 0; i < shared->count; i++)
        writers += b->shares[i].bytes >= 1;
    writers = (size_t)max_u64(1, min_u64(writers, cut->parts));
    shares_choose(b->shares, shared->count, writers);
    return writers;
}

/* What a writer's share has above the least that a part has. */
static double above_least(const struct share *share, const struct cut *cut)
{
    double least = (double)(cut->min_rows * cut->row_bytes);

    return share->bytes > least ? share->bytes - least : 0;
}

/* Split a shared box by rows, in the order of the ranks, so that loads become as equal as parts of
 * at least ${cut->min_rows} allow. */
static enum sidestep_status split(struct builder *b, const struct shared_box *shared,
                                  const struct cut *cut, struct sidestep_error *err)
{
    size_t writers = choose_writers(b, shared, cut);
    uint64_t spare = cut->rows - writers * cut->min_rows, left = spare;
    double above = 0;
    int64_t begin = 0;

    if (writers == 1) {
        assign_whole(b, shared->claims[b->shares[0].index], shared->bytes);
        return SIDESTEP_OK;
    }
    for (size_t i = 0; i < writers; i++)
        above += above_least(&b->shares[i], cut);
    for (size_t i = 0; i < writers; i++) { /* from now on, ${bytes} are the spare rows of each */
        double part = above > 0 ? above_least(&b->shares[i], cut) / above : 1 / (double)writers;
        b->shares[i].bytes = (double)min_u64(left, (uint64_t)(part * (double)spare));
        left -= (uint64_t)b->shares[i].bytes;
    }
    for (size_t i = 0; i < writers; i++) {
        uint64_t more = left / (writers - i) + (left % (writers - i) != 0);
        int64_t rows = (int64_t)(cut->min_rows + (uint64_t)b->shares[i].bytes + more);

        left -= more;
        TRY(assign_rows(b, shared->claims[b->shares[i].index], cut->d, begin, rows, cut->row_bytes,
                        err));
        begin += rows;
    }
    assert(left == 0 && begin == (int64_t)cut->rows);
    return SIDESTEP_OK;
}

/* Is ${a} a better writer of a whole box than ${b}, which has a lower rank? */
static bool writes_less(const struct builder *b, const struct plan_claim *a,
                        const struct plan_claim *other)
{
    uint64_t mine = b->host_load[host_of(b, a->rank)];
    uint64_t others = b->host_load[host_of(b, other->rank)];

    return mine != others ? mine < others : b->load[a->rank] < b->load[other->rank];
}

/* Assign the replicated boxes, the largest first. */
static enum sidestep_status balance(struct builder *b, struct sidestep_error *err)
{
    qsort(b->shared, b->shared_count, sizeof(*b->shared), compare_shared);
    for (size_t i = 0; i < b->shared_count; i++) {
        const struct shared_box *shared = &b->shared[i];
        struct plan_claim *least = shared->claims[0];
        struct cut cut = find_cut(shared);

        if (cut.parts > 1) {
            TRY(split(b, shared, &cut, err));
            continue;
        }
        for (size_t k = 1; k < shared->count; k++)
            if (writes_less(b, shared->claims[k], least))
                least = shared->claims[k];
        assign_whole(b, least, shared->bytes);
    }
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the whole plan */

/* The digest of all that the plan depends on.  The tables contain the digests of the ranks, which
 * cover the paths, too. */
static uint64_t digest_of(const void *const *tables, const size_t *table_bytes, uint32_t world_size,
                          struct arena *arena)
{
    uint64_t *digests = arena_new(arena, (size_t)world_size, sizeof(*digests));

    if (digests == NULL)
        return 0;
    for (uint32_t rank = 0; rank < world_size; rank++)
        digests[rank] = hash_block(tables[rank], table_bytes[rank]);
    uint64_t digest = hash_block_list(digests, world_size).low;
    return digest != 0 ? digest : 1;
}

enum sidestep_status save_plan_build(const void *const *tables, const size_t *table_bytes,
                                     uint32_t world_size, const uint32_t *hosts, struct buffer *out,
                                     size_t *sizes, struct sidestep_error *err)
{
    OWNED_BY(save_plan_table_release) struct plan_tables decoded = {0};
    OWNED_BY(builder_release) struct builder b = {.tables = &decoded, .hosts = hosts};

    if (world_size < 1 || world_size > SIDESTEP_MAX_RANKS)
        return FAIL(err, SIDESTEP_EINVAL, "%u ranks; the limits are 1 and %u", world_size,
                    SIDESTEP_MAX_RANKS);
    TRY(save_plan_table_decode(tables, table_bytes, world_size, &decoded, err));
    TRY(builder_init(&b, err));
    for (size_t i = 0; i < decoded.name_count; i++) {
        const struct plan_entry *name = &decoded.names[i];

        TRY(name->is_object ? plan_object(name, err) : plan_tensor(&b, name, err));
    }
    TRY(balance(&b, err));
    uint64_t digest = digest_of(tables, table_bytes, world_size, &b.arena);
    if (digest == 0)
        return FAIL_NOMEM(err, world_size * sizeof(uint64_t));
    return save_plan_encode(&decoded, digest, out, sizes, err);
}
