/* SPDX-License-Identifier: BSD-3-Clause */
/* curl_loop.h -- moves bytes to and from an object store in the simplest way: with libcurl, on one
 * thread and several connections that stay open, without signatures. It uploads in parts and reads
 * ranges. */
#ifndef BENCH_CURL_LOOP_H
#define BENCH_CURL_LOOP_H

#include "bench.h"

struct curl_loop {
    const char *url; /* of the bucket */
    unsigned connections;
    uint64_t piece_bytes; /* size of a part or of a range */
    bool hashes;          /* compute the SHA-256 of every part, as a signature needs it */
};

/* Upload ${bytes} as ${key}. Returns seconds. */
double curl_loop_put(const struct curl_loop *loop, const char *key, const void *memory,
                     uint64_t bytes);
/* Read the first ${bytes} of ${key}. Returns seconds. */
double curl_loop_get(const struct curl_loop *loop, const char *key, void *memory, uint64_t bytes);
void curl_loop_delete(const struct curl_loop *loop, const char *key);
/* Get a small text, and end it with a NUL. */
void curl_loop_text(const char *url, char *text, size_t bytes);

#endif
