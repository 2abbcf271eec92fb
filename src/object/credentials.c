/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials.c -- keeps credentials, and renews them.  credentials_choose.c chooses the source. */
#include "object/credentials.h"

#include <sys/mman.h>
#include <time.h>

#include "object/credentials_choose.h"
#include "object/secret.h"

#define RENEW_SECONDS 300     /* before they expire they are renewed */
#define USELESS_SECONDS 15    /* before they expire they are not used any more */
#define RETRY_NS 10000000000u /* between renewals, while the credentials can be used */

struct credentials {
    struct credentials_source source; /* constant */
    struct {
        struct lock lock LOCK_KIND(CREDENTIALS);
        struct lock_condition renewed;
        bool is_renewing GUARDED_BY(&lock);
        uint64_t generation GUARDED_BY(&lock);
        uint64_t next_try_ns GUARDED_BY(&lock);
    } shared;
    /* In a mapping of its own; the lock protects it. */
    struct secrets {
        struct credentials_set set, before; /* before the last renewal */
        char signed_for[9 + 64];            /* day and region of ${key} */
        uint8_t key[SIGN_KEY_BYTES];
    } * secrets;
};

/* If the kernel supports it, core dumps omit the mapping, and forked children see zeros. */
static enum sidestep_status map_secrets(struct credentials *credentials, struct sidestep_error *err)
{
    size_t bytes = sizeof(*credentials->secrets);
    void *memory = fault_hit("memory") ? MAP_FAILED
                                       : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return FAIL_NOMEM(err, bytes);
    (void)madvise(memory, bytes, MADV_DONTDUMP);
    (void)madvise(memory, bytes, MADV_WIPEONFORK);
    credentials->secrets = memory;
    return SIDESTEP_OK;
}

static void wipe_set(struct credentials_set *set)
{
    explicit_bzero(set, sizeof(*set));
}

/* Get credentials from the source.  One thread at a time. */
static enum sidestep_status fetch(struct credentials *credentials, struct sidestep_error *err)
{
    const struct credentials_source *source = &credentials->source;
    OWNED_BY(wipe_set) struct credentials_set set = {.ends = 0};
    enum sidestep_status status = source->fetch(source, &set, err);

    if (status != SIDESTEP_OK) {
        error_wrap(err, "credentials from %s", source->origin);
        return status;
    }
    lock_acquire(&credentials->shared.lock);
    credentials->secrets->before = credentials->secrets->set;
    credentials->secrets->set = set;
    credentials->secrets->signed_for[0] = '\0';
    credentials->shared.generation++;
    lock_release(&credentials->shared.lock);
    return SIDESTEP_OK;
}

void credentials_free(struct credentials *credentials)
{
    if (credentials == NULL)
        return;
    if (credentials->secrets != NULL) {
        explicit_bzero(credentials->secrets, sizeof(*credentials->secrets));
        (void)munmap(credentials->secrets, sizeof(*credentials->secrets));
    }
    if (credentials->source.token != NULL)
        explicit_bzero((char *)(uintptr_t)credentials->source.token,
                       strlen(credentials->source.token));
    arena_release(&credentials->source.arena);
    lock_condition_destroy(&credentials->shared.renewed);
    lock_destroy(&credentials->shared.lock);
    free(credentials);
}

static void free_owned(struct credentials **credentials)
{
    credentials_free(*credentials);
}

enum sidestep_status credentials_new(const struct credentials_config *config,
                                     struct credentials **out, struct sidestep_error *err)
{
    OWNED_BY(free_owned) struct credentials *credentials = memory_new(1, sizeof(*credentials));

    *out = NULL;
    if (credentials == NULL)
        return FAIL_NOMEM(err, sizeof(*credentials));
    lock_init(&credentials->shared.lock, LOCK_CREDENTIALS);
    lock_condition_init(&credentials->shared.renewed);
    TRY(map_secrets(credentials, err));
    TRY(credentials_choose(config, &credentials->source, err));
    enum sidestep_status status = fetch(credentials, err);
    if (status != SIDESTEP_OK && credentials->source.fetch == credentials_from_machine)
        credentials_explain_none(config, err);
    TRY(status);
    *out = TAKE(credentials);
    return SIDESTEP_OK;
}

/* Renew, or wait for the thread that does.  Releases the lock in the meantime. */
static enum sidestep_status renew_locked(struct credentials *credentials,
                                         struct sidestep_error *err)
    REQUIRES(&credentials->shared.lock)
{
    uint64_t generation = credentials->shared.generation;
    struct sidestep_error why;

    if (credentials->shared.is_renewing) {
        while (credentials->shared.is_renewing)
            lock_wait(&credentials->shared.lock, &credentials->shared.renewed);
        if (credentials->shared.generation != generation)
            return SIDESTEP_OK;
    }
    credentials->shared.is_renewing = true;
    lock_release(&credentials->shared.lock);
    enum sidestep_status status = fetch(credentials, &why);
    lock_acquire(&credentials->shared.lock);
    credentials->shared.is_renewing = false;
    credentials->shared.next_try_ns = clock_now(clock_system()) + RETRY_NS;
    if (status != SIDESTEP_OK)
        error_copy(err, &why);
    lock_wake_all(&credentials->shared.renewed);
    return status;
}

/* Renew the credentials if they expire soon. */
static enum sidestep_status renew_if_needed(struct credentials *credentials,
                                            struct sidestep_error *err)
    REQUIRES(&credentials->shared.lock)
{
    int64_t ends = credentials->secrets->set.ends;
    int64_t left = ends != 0 ? ends - (int64_t)time(NULL) : INT64_MAX;
    struct sidestep_error why;

    if (left > RENEW_SECONDS || !credentials->source.is_renewable)
        return SIDESTEP_OK;
    if (left > USELESS_SECONDS && (credentials->shared.is_renewing ||
                                   clock_now(clock_system()) < credentials->shared.next_try_ns))
        return SIDESTEP_OK;
    enum sidestep_status status = renew_locked(credentials, &why);
    if (status == SIDESTEP_OK || left > USELESS_SECONDS)
        return SIDESTEP_OK;
    return error_copy(err, &why);
}

/* Derive the key of that day and region, unless it is the last one.  The lock is held. */
static void update_key(struct secrets *secrets, const char *time, const char *region)
{
    char wanted[sizeof(secrets->signed_for)];

    memset(wanted, 0, sizeof(wanted));
    memcpy(wanted, time, 8);
    strncat(wanted, region, sizeof(wanted) - 9);
    if (strcmp(secrets->signed_for, wanted) == 0)
        return;
    sign_key(secrets->set.secret, time, region, "s3", secrets->key);
    memcpy(secrets->signed_for, wanted, sizeof(wanted));
}

enum sidestep_status credentials_identify(struct credentials *credentials, const char *time,
                                          const char *region, struct credentials_identity *identity,
                                          struct sidestep_error *err)
{
    struct secrets *secrets = credentials->secrets;

    lock_acquire(&credentials->shared.lock);
    enum sidestep_status status = renew_if_needed(credentials, err);
    if (status == SIDESTEP_OK) {
        update_key(secrets, time, region);
        memcpy(identity->access_key, secrets->set.access_key, sizeof(identity->access_key));
        memcpy(identity->token, secrets->set.token, sizeof(identity->token));
        memcpy(identity->key, secrets->key, sizeof(identity->key));
        identity->generation = credentials->shared.generation;
    }
    lock_release(&credentials->shared.lock);
    return status;
}

enum sidestep_status credentials_renew(struct credentials *credentials, uint64_t generation,
                                       struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    lock_acquire(&credentials->shared.lock);
    if (credentials->shared.generation == generation)
        status = renew_locked(credentials, err);
    lock_release(&credentials->shared.lock);
    return status;
}

bool credentials_are_renewable(const struct credentials *credentials)
{
    return credentials->source.is_renewable;
}

void credentials_blank(struct credentials *credentials, char *text)
{
    const struct secrets *secrets = credentials->secrets;

    lock_acquire(&credentials->shared.lock);
    secret_blank(text, secrets->set.token);
    secret_blank(text, secrets->set.secret);
    secret_blank(text, secrets->before.token);
    secret_blank(text, secrets->before.secret);
    lock_release(&credentials->shared.lock);
}

const char *credentials_origin(const struct credentials *credentials)
{
    return credentials->source.origin;
}
