/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baseline_io.h -- reads and writes files in a simple and fast way, for comparison with sidestep.
 * It shares no code with the library, so that a mistake there cannot affect both.
 */
#ifndef CLI_BASELINE_IO_H
#define CLI_BASELINE_IO_H

#include <stdbool.h>
#include <stdint.h>

#include <sidestep/sidestep.h>

#define CLI_BASELINE_IO_BYTES ((uint64_t)4 << 20) /* per request */

/** cli_baseline_io_now(): the time in seconds, from any starting point. */
double cli_baseline_io_now(void);
/** cli_baseline_io_map(bytes, err): zeroed memory, on huge pages if possible; NULL: none. */
unsigned char *cli_baseline_io_map(uint64_t bytes, struct sidestep_error *err);
/** cli_baseline_io_write(path, memory, bytes, &direct, &seconds, err): write ${bytes}, a multiple
 * of CLI_BASELINE_IO_BYTES, to a new file: fallocate, one request at a time, fsync.  ${*direct}: it
 * used O_DIRECT. */
enum sidestep_status cli_baseline_io_write(const char *path, const unsigned char *memory,
                                           uint64_t bytes, bool *direct, double *seconds,
                                           struct sidestep_error *err);
/** cli_baseline_io_read(path, memory, bytes, &seconds, err): read that file from the disk. */
enum sidestep_status cli_baseline_io_read(const char *path, unsigned char *memory, uint64_t bytes,
                                          double *seconds, struct sidestep_error *err);
/** cli_baseline_io_drop_cache(directory): drop its files from the page cache. */
void cli_baseline_io_drop_cache(const char *directory);

#endif
