/* SPDX-License-Identifier: BSD-3-Clause */
/* curl_loop.h -- the simplest way to move bytes to and from an object store: libcurl, one thread,
 * several connections that are kept, no signature. Its requests are those of an upload in parts,
 * and reads of ranges. */
#ifndef BENCH_CURL_LOOP_H
#define BENCH_CURL_LOOP_H

#include "bench.h"

struct curl_loop {
    const char *url; /* of the bucket */
    unsigned connections;
    uint64_t piece_bytes; /* of a part, or of a range */
    bool hashes;          /* SHA-256 of every part, as a signature over plain HTTP needs it */
};

/* Upload ${bytes} as ${key}; delete nothing. Returns seconds. */
double curl_loop_put(const struct curl_loop *loop, const char *key, const void *memory,
                     uint64_t bytes);
/* Read the first ${bytes} of ${key}. Returns seconds. */
double curl_loop_get(const struct curl_loop *loop, const char *key, void *memory, uint64_t bytes);
/* Delete ${key}. */
void curl_loop_delete(const struct curl_loop *loop, const char *key);
/* Get a small text, with a NUL. */
void curl_loop_text(const char *url, char *text, size_t bytes);

#endif
