/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_probe.c -- finds out what an object store supports, with a new object that it deletes
 * afterwards. */
#include "root/bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "object/object.h"

#define MAX_SKEW_SECONDS 300 /* stores refuse signatures that differ by 15 minutes */

static void probe_conditions(struct doctor *doctor, struct object_client *client, const char *key)
{
    const struct object_condition absent = {.if_absent = true};
    struct sidestep_error why = {0};
    enum sidestep_status status = client->ops->put(client, key, "doctor\n", 7, &absent, NULL, &why);

    if (status == SIDESTEP_EEXISTS)
        doctor_add_finding(doctor, "conditions", SIDESTEP_ALLOWED_YES, NULL,
                           "If-None-Match is obeyed: of two saves or runs at once, one wins");
    else if (status == SIDESTEP_OK || status == SIDESTEP_EUNSUPPORTED)
        doctor_add_finding(doctor, "conditions", SIDESTEP_ALLOWED_PARTLY,
                           "Let only one run save to a root, and one save to a name at a time.",
                           "conditional requests are %s: what is there is compared before and "
                           "after each commit instead",
                           status == SIDESTEP_OK ? "ignored" : "refused");
    else
        doctor_add_finding(doctor, "conditions", SIDESTEP_ALLOWED_FACT, NULL, "not known: %s",
                           why.message);
}

static void probe_clock(struct doctor *doctor, struct object_client *client, const char *key)
{
    struct sidestep_error why = {0};
    struct object_info info = {0};
    enum sidestep_status status = client->ops->head(client, key, &info, &why);
    int64_t skew = (int64_t)time(NULL) - info.now;

    if (status != SIDESTEP_OK || info.now == 0)
        doctor_add_finding(doctor, "clock", SIDESTEP_ALLOWED_FACT, NULL, "not known: %s",
                           status != SIDESTEP_OK ? why.message
                                                 : "the store does not tell its time");
    else if (llabs(skew) > MAX_SKEW_SECONDS)
        doctor_add_finding(doctor, "clock", SIDESTEP_ALLOWED_PARTLY,
                           "Set the clock of this host (NTP).",
                           "differs from that of the store by %lld s; from 900 s on, the store "
                           "refuses requests",
                           (long long)skew);
    else
        doctor_add_finding(doctor, "clock", SIDESTEP_ALLOWED_YES, NULL,
                           "differs from that of the store by %lld s", (long long)skew);
}

/* Delete the object. Before that, ask for the deletion of a version that does not exist. */
static void probe_deletion(struct doctor *doctor, struct object_client *client, const char *key)
{
    const char *const keys[] = {key};
    struct sidestep_error why = {0};
    enum sidestep_status conditional =
        client->ops->delete_version(client, key, "\"a tag that no object has\"", NULL);
    enum sidestep_status status = client->ops->delete_keys(client, keys, 1, &why);

    if (status != SIDESTEP_OK)
        doctor_add_finding(doctor, "deletes", SIDESTEP_ALLOWED_NO,
                           "Allow s3:DeleteObject, or old checkpoints and leftovers stay.", "%s",
                           why.message);
    else
        doctor_add_finding(doctor, "deletes", SIDESTEP_ALLOWED_YES, NULL,
                           "old checkpoints and leftovers can be removed%s",
                           conditional == SIDESTEP_EEXISTS
                               ? ""
                               : "; If-Match of a deletion is ignored, so let nobody save to a "
                                 "name while it is deleted");
}

static enum sidestep_status choose_key(struct store_dir *dir, char key[OBJECT_KEY_BYTES],
                                       struct sidestep_error *err)
{
    uint64_t number;

    TRY(random_bytes(&number, sizeof(number), err));
    int used = snprintf(key, OBJECT_KEY_BYTES, "%s.sidestep.doctor.%016llx",
                        object_store_prefix(dir), (unsigned long long)number);
    return used > 0 && (size_t)used < OBJECT_KEY_BYTES
               ? SIDESTEP_OK
               : error_set(err, SIDESTEP_EINVAL, ENAMETOOLONG, HERE, "the key of a probe");
}

enum sidestep_status bucket_probe(struct doctor *doctor, struct store *store, const char *url,
                                  struct sidestep_error *err)
{
    struct object_client *client = object_store_client(store);
    struct sidestep_error why = {0};
    OWNED_DIR *dir = NULL;
    char key[OBJECT_KEY_BYTES];

    TRY(store_dir_open(store, NULL, url, &dir, err));
    TRY(choose_key(dir, key, err));
    doctor_add_finding(doctor, "endpoint", SIDESTEP_ALLOWED_FACT, NULL, "%s",
                       client->ops->describe(client));
    enum sidestep_status status = client->ops->put(client, key, "doctor\n", 7, NULL, NULL, &why);
    if (status == SIDESTEP_ENOMEM) {
        error_copy(err, &why);
        return status;
    }
    doctor_add_writable(doctor, status, "objects can be put here", &why);
    if (status != SIDESTEP_OK)
        return SIDESTEP_OK;
    probe_conditions(doctor, client, key);
    probe_clock(doctor, client, key);
    probe_deletion(doctor, client, key);
    return SIDESTEP_OK;
}
