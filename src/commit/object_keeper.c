/* SPDX-License-Identifier: BSD-3-Clause */
/* object_keeper.c -- puts the marker of a save again and again, so that nobody takes the save for
 * dead; see object_form.h. */
#include "commit/object_form.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"

struct object_keeper {
    struct object_client *client;
    struct clock *clock;
    char key[OBJECT_KEY_BYTES];
    char text[512];
    pthread_t thread;
    bool has_thread;
    struct {
        struct lock lock LOCK_KIND(KEEPER);
        struct lock_condition changed;
        uint64_t put_at_ns; /* when the last successful put was sent */
        bool ends;
    } shared;
};

/* Locked: wait until the next refresh. False: the keeper ends. */
static bool wait_for_refresh(struct object_keeper *keeper) REQUIRES(&keeper->shared.lock)
{
    uint64_t until_ns = clock_now(clock_system()) + OBJECT_REFRESH_SECONDS * UINT64_C(1000000000);

    while (!keeper->shared.ends)
        if (!lock_wait_until(&keeper->shared.lock, &keeper->shared.changed, until_ns))
            return !keeper->shared.ends;
    return false;
}

static void *refresh_marker(void *argument)
{
    struct object_keeper *keeper = argument;
    struct object_client *client = keeper->client;

    lock_acquire(&keeper->shared.lock);
    while (wait_for_refresh(keeper)) {
        lock_release(&keeper->shared.lock);
        uint64_t sent_at = clock_now(keeper->clock);
        enum sidestep_status status = client->ops->put(client, keeper->key, keeper->text,
                                                       strlen(keeper->text), NULL, NULL, NULL);
        lock_acquire(&keeper->shared.lock);
        if (status == SIDESTEP_OK)
            keeper->shared.put_at_ns = sent_at;
    }
    lock_release(&keeper->shared.lock);
    return NULL;
}

enum sidestep_status object_keeper_start(struct object_client *client, const char *key,
                                         const char *text, struct clock *clock,
                                         struct object_keeper **out, struct sidestep_error *err)
{
    struct object_keeper *keeper = memory_new(1, sizeof(*keeper));

    assert(*out == NULL && strlen(key) < sizeof(keeper->key) &&
           strlen(text) < sizeof(keeper->text));
    if (keeper == NULL)
        return FAIL_NOMEM(err, sizeof(*keeper));
    keeper->client = client;
    keeper->clock = clock;
    snprintf(keeper->key, sizeof(keeper->key), "%s", key);
    snprintf(keeper->text, sizeof(keeper->text), "%s", text);
    keeper->shared.put_at_ns = clock_now(clock);
    lock_init(&keeper->shared.lock, LOCK_KEEPER);
    lock_condition_init(&keeper->shared.changed);
    *out = keeper;
    /* Threads cannot wait by a simulated clock. */
    if (clock == clock_system())
        TRY(thread_start(&keeper->thread, "sidestep-alive", refresh_marker, keeper, err));
    keeper->has_thread = clock == clock_system();
    return SIDESTEP_OK;
}

uint64_t object_keeper_age_ns(struct object_keeper *keeper)
{
    lock_acquire(&keeper->shared.lock);
    uint64_t age_ns = clock_now(keeper->clock) - keeper->shared.put_at_ns;
    lock_release(&keeper->shared.lock);
    return age_ns;
}

void object_keeper_stop(struct object_keeper **out)
{
    struct object_keeper *keeper = TAKE(*out);

    if (keeper == NULL)
        return;
    lock_acquire(&keeper->shared.lock);
    keeper->shared.ends = true;
    lock_wake_all(&keeper->shared.changed);
    lock_release(&keeper->shared.lock);
    if (keeper->has_thread)
        (void)pthread_join(keeper->thread, NULL);
    lock_condition_destroy(&keeper->shared.changed);
    lock_destroy(&keeper->shared.lock);
    free(keeper);
}
