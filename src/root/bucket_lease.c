/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bucket_lease.c -- takes the next incarnation of a series in a bucket, which has no locks: the
 * incarnation alone decides.
 *
 * ROOT/.sidestep/state names the run, the incarnation and its holder, by a token that only the
 * holder knows. A process that starts puts the state again with the next incarnation, on the
 * condition that the state has not changed. So each incarnation has one holder. The previous holder
 * finds out at its next commit (lease_check()), and can commit no more: a second trainer ends the
 * first one.
 *
 * If a store has no conditions, the last put of the state wins: after its put, a process waits a
 * moment and reads the state back.
 */
#include "root/bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "object/object.h"

#define TRIES 32u                      /* how often others may take the incarnation first */
#define SETTLE_NS UINT64_C(2000000000) /* without conditions: wait for the puts of others */

/* Read the state and its tag, "" if there is no state. ${*is_lost}: there is none, or it is
 * damaged. */
static enum sidestep_status read_state(struct object_client *client, const char *key,
                                       struct lease_state *state, char tag[OBJECT_TAG_BYTES],
                                       bool *is_lost, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct object_info info = {0};
    OWNED_BUFFER text = {0};

    tag[0] = '\0';
    *is_lost = true;
    enum sidestep_status status =
        client->ops->get_all(client, key, LEASE_MAX_BYTES, &text, &info, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK) {
        error_copy(err, &why);
        return status;
    }
    buffer_put_u8(&text, 0);
    TRY(buffer_check(&text, err));
    memcpy(tag, info.tag, OBJECT_TAG_BYTES);
    *is_lost = lease_state_parse((const char *)text.bytes, state, NULL) != SIDESTEP_OK;
    return SIDESTEP_OK;
}

/* Is the state ours? ${tag} receives its tag. */
static enum sidestep_status is_ours(struct lease *lease, const char *key, bool *ours,
                                    char tag[OBJECT_TAG_BYTES], struct sidestep_error *err)
{
    struct object_client *client = object_store_client(lease->store);
    struct lease_state state = {0};
    bool is_lost;

    TRY(read_state(client, key, &state, tag, &is_lost, err));
    *ours = !is_lost && strcmp(state.token, lease->token) == 0;
    return SIDESTEP_OK;
}

static void format_state(const struct lease *lease, struct buffer *text)
{
    char host[64] = "?", holder[100];

    (void)gethostname(host, sizeof(host) - 1);
    snprintf(holder, sizeof(holder), "process %ld on %s", (long)getpid(), host);
    lease_state_format(lease, holder, text);
}

/* Set the incarnation after that of ${state}, and a new token. */
static enum sidestep_status choose_incarnation(struct lease *lease, const struct lease_state *state,
                                               bool is_lost, struct sidestep_error *err)
{
    uint8_t id[SAVE_ID_BYTES];

    TRY(random_bytes(id, sizeof(id), err));
    hash_to_hex(id, sizeof(id), lease->token);
    return lease_choose_next(lease, state->run_id, state->incarnation, is_lost, err);
}

/* For a store that has no conditions, or ignores them: put the state, wait, and read it back. */
static enum sidestep_status put_and_read_back(struct lease *lease, const char *key,
                                              const struct buffer *text, bool *taken,
                                              struct sidestep_error *err)
{
    struct object_client *client = object_store_client(lease->store);
    struct clock *clock = clock_system();
    struct backoff backoff = {.max_ms = 100};
    char tag[OBJECT_TAG_BYTES];

    TRY(client->ops->put(client, key, text->bytes, text->length, NULL, NULL, err));
    uint64_t until = clock_now(clock) + SETTLE_NS;
    while (clock_now(clock) < until)
        backoff_sleep(&backoff, clock);
    return is_ours(lease, key, taken, tag, err);
}

/* Put the state if it still has ${tag}. ${*taken}: the state is ours. */
static enum sidestep_status try_put(struct lease *lease, const char *key, const char *tag,
                                    bool *taken, struct sidestep_error *err)
{
    struct object_client *client = object_store_client(lease->store);
    struct object_condition condition = {.if_absent = tag[0] == '\0',
                                         .if_tag = tag[0] != '\0' ? tag : NULL};
    const struct object_condition absent = {.if_absent = true};
    struct sidestep_error why = {.rank = -1};
    char now[OBJECT_TAG_BYTES];
    OWNED_BUFFER text = {0};

    format_state(lease, &text);
    TRY(buffer_check(&text, err));
    if (fault_hit("lease.condition")) /* a fault on purpose, which tests must notice */
        condition = (struct object_condition){0};
    enum sidestep_status status =
        client->ops->put(client, key, text.bytes, text.length, &condition, NULL, &why);
    *taken = status == SIDESTEP_OK;
    if (status == SIDESTEP_EUNSUPPORTED)
        return put_and_read_back(lease, key, &text, taken, err);
    if (status != SIDESTEP_OK) { /* an attempt whose answer was lost may have succeeded */
        TRY(is_ours(lease, key, taken, now, err));
        if (!*taken && strcmp(now, tag) == 0) { /* nobody else has taken it either */
            error_copy(err, &why);
            return status;
        }
        return SIDESTEP_OK;
    }
    /* Probe: a store that ignores conditions puts the same text again. */
    status = client->ops->put(client, key, text.bytes, text.length, &absent, NULL, NULL);
    return status == SIDESTEP_OK && !fault_hit("lease.condition")
               ? put_and_read_back(lease, key, &text, taken, err)
               : SIDESTEP_OK;
}

enum sidestep_status bucket_take_lease(struct lease *lease, const char *path UNUSED,
                                       bool starts_run, struct sidestep_error *err)
{
    struct object_client *client = object_store_client(lease->store);
    struct lease_state state = {0};
    char key[OBJECT_KEY_BYTES], tag[OBJECT_TAG_BYTES];
    bool is_lost, taken = false;

    if (!starts_run) /* a new incarnation would end the run that saves there */
        return SIDESTEP_OK;
    int used = snprintf(key, sizeof(key), "%s" LEASE_STATE, object_store_prefix(lease->dir));
    if (used < 0 || (size_t)used >= sizeof(key))
        return error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "the key of the state");
    for (unsigned attempt = 0; attempt < TRIES; attempt++) {
        TRY(read_state(client, key, &state, tag, &is_lost, err));
        TRY(choose_incarnation(lease, &state, is_lost, err));
        TRY(try_put(lease, key, tag, &taken, err));
        if (taken)
            return SIDESTEP_OK;
    }
    return FAIL(err, SIDESTEP_ELOCKED,
                "others open this series again and again (now %s): let only one run use it",
                state.holder[0] != '\0' ? state.holder : "another process");
}
