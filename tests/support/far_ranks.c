/* SPDX-License-Identifier: BSD-3-Clause */
/* far_ranks.c -- runs the commit protocol with one thread for each rank. */
#include "support/far_ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define STACK_BYTES ((size_t)256 << 10)
#define DATA_BYTES 8u
#define DIGEST 7
#define GIVE_UP_FACTOR 2u /* as save/save_handle.c does */

struct far_rank {
    struct far_ranks *all;
    pthread_t thread;
    uint32_t rank;
    enum commit_outcome outcome;
    uint64_t began_ns, voted_ns, ended_ns;
};

static void open_commit(const struct far_rank *r, struct commit *commit)
{
    *commit = (struct commit){.store = r->all->store,
                              .clock = clock_system(),
                              .rank = r->rank,
                              .world_size = r->all->size,
                              .request.timeout_ns = r->all->timeout_ms * 1000000u,
                              .request.step = -1,
                              .layout_digest = DIGEST};
    commit_set_save_id(commit, r->all->save_id);
}

/* Make a shard file with one row of a tensor. */
static enum sidestep_status make_file(const struct commit *commit, struct buffer *bytes,
                                      struct sidestep_error *err)
{
    static const uint8_t data[DATA_BYTES] = {1, 2, 3};
    const uint64_t block = hash_block(data, DATA_BYTES);
    const struct sidestep_path_item path[] = {{.key = "weight"}};
    const int64_t shape[] = {commit->world_size, 2}, offsets[] = {commit->rank, 0};
    const int64_t lengths[] = {1, 2};
    struct footer_item item = {.name = "weight",
                               .dtype = SIDESTEP_FLOAT32,
                               .ndim = 2,
                               .shape = shape,
                               .box = {2, offsets, lengths},
                               .path_length = 1,
                               .path = path,
                               .bytes = DATA_BYTES,
                               .data_bytes = DATA_BYTES,
                               .raw_bytes = DATA_BYTES,
                               .raw_hash = hash_block_list(&block, 1),
                               .block_count = 1,
                               .blocks = &block};
    struct footer footer = {.rank = commit->rank,
                            .shard_count = 1,
                            .world_size = commit->world_size,
                            .layout_digest = DIGEST,
                            .count = 1,
                            .items = &item};

    memcpy(footer.save_id, commit->save_id_bytes, SAVE_ID_BYTES);
    buffer_put(bytes, data, sizeof(data));
    TRY(buffer_check(bytes, err));
    return footer_encode(&footer, sizeof(data), bytes, err);
}

static enum sidestep_status write_and_vote(struct commit *commit, struct sidestep_error *err)
{
    struct store_file *file = NULL;
    OWNED_BUFFER bytes = {0};

    TRY(make_file(commit, &bytes, err));
    TRY(commit_join(commit, err));
    TRY(commit_shard_create(commit, 0, 0, &file, err));
    enum sidestep_status status = store_file_write_at(file, bytes.bytes, bytes.length, 0, err);
    if (status != SIDESTEP_OK) {
        store_file_discard(file);
        return status;
    }
    TRY(commit_shard_seal(commit, 0, file, err));
    return commit_vote_yes(commit, err);
}

static enum sidestep_status collect_and_publish(struct commit *commit, enum commit_outcome *outcome,
                                                struct sidestep_error *err)
{
    struct commit_contents contents = {0};

    *outcome = COMMIT_ABORTED;
    enum sidestep_status status = commit_collect_votes(commit, &contents, err);
    if (status == SIDESTEP_OK)
        status = commit_publish(commit, &contents, outcome, err);
    commit_contents_release(&contents);
    return status;
}

static void coordinate(struct far_rank *r, struct commit *commit)
{
    struct sidestep_error *err = &r->all->why;
    enum sidestep_status status = write_and_vote(commit, err);

    r->voted_ns = clock_now(commit->clock);
    r->outcome = COMMIT_ABORTED;
    if (status == SIDESTEP_OK)
        (void)collect_and_publish(commit, &r->outcome, err);
    r->ended_ns = clock_now(commit->clock);
    if (r->outcome == COMMIT_ABORTED)
        commit_abort(commit, err);
}

static void learn(struct far_rank *r, struct commit *commit)
{
    while ((r->outcome = commit_poll_outcome(commit, NULL)) == COMMIT_UNDECIDED) {
        uint64_t waited = clock_now(commit->clock) - r->voted_ns;
        if (waited > GIVE_UP_FACTOR * commit->request.timeout_ns) {
            r->outcome = COMMIT_UNKNOWN;
            return;
        }
        commit->clock->sleep_ms(commit->clock, commit_poll_pause_ms(commit, waited / 1000000));
    }
}

static void follow(struct far_rank *r, struct commit *commit)
{
    struct sidestep_error why = {.rank = -1};

    if (r->all->late == (int64_t)r->rank && r->all->late_ms == UINT64_MAX) {
        r->outcome = COMMIT_ABORTED; /* the rank is dead */
        return;
    }
    if (r->all->late == (int64_t)r->rank)
        commit->clock->sleep_ms(commit->clock, r->all->late_ms);
    enum sidestep_status status = write_and_vote(commit, &why);
    r->voted_ns = clock_now(commit->clock);
    if (status == SIDESTEP_OK) {
        learn(r, commit);
    } else {
        commit_vote_no(commit, &why);
        commit_retract(commit);
        r->outcome = COMMIT_ABORTED;
    }
    r->ended_ns = clock_now(commit->clock);
}

static void *rank_main(void *argument)
{
    struct far_rank *r = argument;
    struct sidestep_error why = {.rank = -1};
    struct commit commit;

    r->began_ns = clock_now(clock_system());
    open_commit(r, &commit);
    enum sidestep_status status = commit_open(&commit, r->all->path, &why);
    if (status == SIDESTEP_OK && r->rank == 0)
        status = commit_begin(&commit, r->all->save_id, &why);
    if (status != SIDESTEP_OK) {
        r->outcome = COMMIT_ABORTED;
        if (r->rank == 0)
            r->all->why = why;
    } else if (r->rank == 0) {
        coordinate(r, &commit);
    } else {
        follow(r, &commit);
    }
    commit_close(&commit);
    return NULL;
}

static void add_up(struct far_ranks *all, const struct far_rank *ranks)
{
    uint64_t voted = 0, learned = 0;

    all->committed = all->aborted = all->unknown = 0;
    for (uint32_t i = 0; i < all->size; i++) {
        all->committed += ranks[i].outcome == COMMIT_COMMITTED;
        all->aborted += ranks[i].outcome == COMMIT_ABORTED;
        all->unknown += ranks[i].outcome == COMMIT_UNKNOWN;
        voted = max_u64(voted, ranks[i].voted_ns);
        learned = max_u64(learned, ranks[i].ended_ns);
    }
    all->vote_s = (double)(voted - ranks[0].began_ns) / 1e9;
    all->commit_s = ((double)ranks[0].ended_ns - (double)voted) / 1e9;
    all->learn_s = ((double)learned - (double)ranks[0].ended_ns) / 1e9;
}

bool far_ranks_save(struct far_ranks *all)
{
    struct far_rank *ranks = calloc(all->size, sizeof(*ranks));
    pthread_attr_t attributes;
    uint32_t started = 0;

    if (ranks == NULL || pthread_attr_init(&attributes) != 0)
        abort();
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (; started < all->size; started++) {
        ranks[started] = (struct far_rank){.all = all, .rank = started};
        if (pthread_create(&ranks[started].thread, &attributes, rank_main, &ranks[started]) != 0)
            break;
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(ranks[i].thread, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (started == all->size)
        add_up(all, ranks);
    free(ranks);
    return started == all->size;
}
