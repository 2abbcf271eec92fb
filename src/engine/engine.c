/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c -- counts references to an engine, and has the checks that all folders use; see
 * engine.h. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store.h"

enum sidestep_status engine_check(const struct sidestep_engine *engine, struct sidestep_error *err)
{
    if (engine == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "engine is NULL");
    if (engine->pid != getpid())
        return FAIL(err, SIDESTEP_EFORKED,
                    "the engine belongs to process %ld, which forked this one", (long)engine->pid);
    return SIDESTEP_OK;
}

enum sidestep_status engine_copy_failure(const struct sidestep_error *failure,
                                         struct sidestep_error *err)
{
    struct sidestep_error own = *failure;

    own.message[sizeof(own.message) - 1] = '\0';
    own.where[sizeof(own.where) - 1] = '\0';
    own.rank = -1;
    memset(own.reserved, 0, sizeof(own.reserved));
    if (own.status <= SIDESTEP_OK || own.status >= ERROR_STATUS_COUNT)
        return FAIL(err, SIDESTEP_EINVAL,
                    "the program's failure has status %d, which is not a failure: %s", own.status,
                    own.message);
    error_copy(err, &own);
    return (enum sidestep_status)own.status;
}

enum sidestep_status engine_find_store(struct sidestep_engine *engine, const char *path,
                                       struct store **out, struct sidestep_error *err)
{
    *out = engine->store;
    if (!object_url_is_one(path))
        return SIDESTEP_OK;
    return buckets_find(&engine->buckets, path, out, err);
}

void engine_retain(struct sidestep_engine *engine)
{
    atomic_fetch_add(&engine->references, 1);
}

void engine_release(struct sidestep_engine *engine)
{
    if (atomic_fetch_sub(&engine->references, 1) != 1)
        return;
    throttle_destroy(&engine->throttle);
    buckets_release(&engine->buckets);
    free(engine);
}
