/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay_main.c -- runs a fuzz target without a fuzzer, so that each `make check` repeats what
 * fuzzing has found. replay PATH... feeds each file, and all files of each folder, to
 * LLVMFuzzerTestOneInput(): whole, cut short, and with single bits flipped. Every input ends at an
 * inaccessible page. The output is TAP, one test per file.
 */
#include <fts.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../tests/support/guard.h"

/* Per file, spread evenly over it. */
#define CUTS 64
#define FLIPS 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many inputs the parser accepted, if the target counts them: if it accepts none, nothing that
 * comes after the parser is tested. */
extern unsigned long fuzz_accepted __attribute__((weak));

static void feed(const uint8_t *bytes, size_t length)
{
    uint8_t *copy = guard_copy(bytes, length);

    LLVMFuzzerTestOneInput(copy, length);
    guard_free(copy);
}

static void feed_variants(uint8_t *bytes, size_t length)
{
    feed(bytes, length);
    for (size_t i = 0; i < CUTS && i < length; i++)
        feed(bytes, length <= CUTS ? i : (size_t)((double)length / CUTS * (double)i));
    for (size_t back = 1; back <= CUTS && back < length; back++)
        feed(bytes, length - back);
    for (size_t i = 0; i < FLIPS && length != 0; i++) {
        size_t at = (size_t)((double)length / FLIPS * (double)i);
        uint8_t bit = (uint8_t)(1u << i % 8);
        bytes[at] ^= bit;
        feed(bytes, length);
        bytes[at] ^= bit;
    }
}

static bool feed_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(size + 1);
    bool whole = file != NULL && bytes != NULL && fread(bytes, 1, size, file) == size;

    if (whole)
        feed_variants(bytes, size);
    free(bytes);
    if (file != NULL)
        fclose(file);
    return whole;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

int main(int argc, char **argv)
{
    unsigned count = 0, failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    feed((const uint8_t *)"", 0);
    FTS *walk = argc > 1 ? fts_open(argv + 1, FTS_PHYSICAL | FTS_NOCHDIR, by_name) : NULL;
    if (walk == NULL) {
        fprintf(stderr, "usage: %s PATH...\n", argv[0]);
        return 2;
    }
    for (FTSENT *entry = fts_read(walk); entry != NULL; entry = fts_read(walk)) {
        bool is_file = entry->fts_info == FTS_F;
        if (!is_file && entry->fts_info != FTS_NS && entry->fts_info != FTS_DNR)
            continue;
        printf("# %s\n", entry->fts_path);
        bool fed = is_file && feed_file(entry->fts_accpath, (size_t)entry->fts_statp->st_size);
        printf("%s %u - %s\n", fed ? "ok" : "not ok", ++count, entry->fts_path);
        failed += !fed;
    }
    fts_close(walk);
    if (&fuzz_accepted != NULL) {
        bool any = fuzz_accepted != 0;
        printf("%s %u - some inputs are accepted\n", any ? "ok" : "not ok", ++count);
        failed += !any;
    }
    printf("1..%u\n", count);
    return count == 0 || failed != 0;
}
