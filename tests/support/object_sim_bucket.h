/* SPDX-License-Identifier: BSD-3-Clause */
/* object_sim_bucket.h -- the contents of a simulated bucket: objects, uploads, late requests. Hold
 * the lock of the bucket to use them. */
#ifndef SUPPORT_OBJECT_SIM_BUCKET_H
#define SUPPORT_OBJECT_SIM_BUCKET_H

#include <pthread.h>

#include "support/object_sim.h"

#define MAX_CLIENTS 64
#define BEGIN_OF_TIME 1700000000 /* at which the bucket's clock starts */

struct object {
    char key[OBJECT_KEY_BYTES];
    uint8_t *bytes;
    size_t length;
    uint64_t version; /* the tag */
    int64_t modified;
    char maker[OBJECT_MAKER_BYTES];
};

struct sim_part {
    uint8_t *bytes;
    size_t length;
    uint64_t version;
};

struct upload {
    uint64_t id; /* 0: this element of the array is free */
    char key[OBJECT_KEY_BYTES];
    int64_t began;
    char maker[OBJECT_MAKER_BYTES];
    struct sim_part *parts;
    unsigned count;
};

enum late_kind { KIND_PUT, KIND_COMPLETE, KIND_DELETE };
/* A request that was sent and is not carried out yet. */
struct late {
    enum late_kind kind;
    char key[OBJECT_KEY_BYTES];
    uint8_t *bytes;
    size_t length;
    bool if_absent;
    char if_tag[OBJECT_TAG_BYTES];
    char maker[OBJECT_MAKER_BYTES];
    uint64_t upload;
    int64_t signed_at;
};

struct object_bucket {
    pthread_mutex_t lock;
    unsigned flags;
    size_t min_part_bytes;
    object_hook *hook;
    void *context;
    struct object *objects; /* in byte order of their keys */
    size_t count, capacity;
    struct upload *uploads;
    size_t upload_count;
    struct late *late;
    size_t late_count;
    uint64_t versions;
    uint64_t requests;
    int64_t now;
    bool dead[MAX_CLIENTS];
};

struct object *bucket_get(struct object_bucket *b, const char *key);
void bucket_tag_of(uint64_t version, char tag[OBJECT_TAG_BYTES]);
enum sidestep_status bucket_check_condition(struct object_bucket *b, const char *key,
                                            bool if_absent, const char *if_tag,
                                            struct sidestep_error *err);
/* Takes ownership of ${bytes}. ${maker}: as in struct object_condition. */
enum sidestep_status bucket_store_object(struct object_bucket *b, const char *key, uint8_t *bytes,
                                         size_t length, const char *maker,
                                         struct sidestep_error *err);
void bucket_note_condition(struct late *late, const struct object_condition *condition);
void bucket_remove_object(struct object_bucket *b, const char *key);
uint8_t *bucket_copy_of(const void *bytes, size_t length);
struct upload *bucket_find_upload(struct object_bucket *b, const char *id);
void bucket_drop_upload(struct upload *u);
enum sidestep_status bucket_complete(struct object_bucket *b, struct upload *u, unsigned count,
                                     struct sidestep_error *err);
void bucket_fill_info(const struct object_bucket *b, const struct object *o,
                      struct object_info *info);
void bucket_add_late(struct object_bucket *b, struct late late);

#endif
