/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_sim.h -- a simulated disk in memory, to explore what a power loss may leave.
 *
 * The model. Names and contents are volatile until synced, and no operation syncs anything else:
 *  - Each change of names (create, mkdir, link, unlink, rmdir, rename, exchange) is one atomic
 *    operation that belongs to the one or two directories that it touches. store_dir_sync() of
 *    either makes it durable, together with the earlier ones on the same names.
 *  - store_file_sync() makes size and bytes of one file durable, not its name.
 *  - A power loss keeps what is durable and an arbitrary part of the rest: any subset of the
 * pending operations (an operation that no longer applies is dropped), and of each file that was
 * not synced nothing, the last synced contents, all, or the first half. Inodes keep their numbers
 * over clones and crashes. There are no symbolic links and no permissions. Names have at most
 * SIM_NAME_BYTES - 1 bytes, files at most 16 MiB.
 *
 * Several threads may use a disk; a clone is another disk, which shares nothing.
 */
#ifndef SUPPORT_STORE_SIM_H
#define SUPPORT_STORE_SIM_H

#include <stdio.h>

#include "store/store.h"

#define SIM_NAME_BYTES 96
#define SIM_MAX_CLIENTS 16

struct sim;

/* Features that the disk lacks, and what its syncs cover. */
#define SIM_NO_NOREPLACE 1u
#define SIM_NO_EXCHANGE 2u
#define SIM_NO_LOCKS 4u
#define SIM_NO_LINKS 8u
#define SIM_OWN_SYNC 16u /* store_dir_sync() covers the caller's own operations only */

/* A disk with an empty root, "/". NULL: out of memory, like all that return a disk. */
struct sim *sim_new(unsigned flags);
void sim_free(struct sim **sim);
/* A copy of the disk, with names, pending operations, locks and dead clients; no hook, no handles.
 */
struct sim *sim_clone(struct sim *sim);
void sim_set_flags(struct sim *sim, unsigned flags);

/* The disk as ${client} (0 to SIM_MAX_CLIENTS - 1) sees it; lives as long as the disk. Paths of
 * store_dir_open() without a directory start at the root. */
struct store *sim_store(struct sim *sim, int client);

/* ${hook} runs before every operation of every client, without locks held. It may switch to another
 * coroutine, or kill the client; then the operation is not done. ${op}: as in struct store_ops;
 * ${name}: as given, or of the handle. */
void sim_set_hook(struct sim *sim,
                  void (*before_op)(void *context, int client, const char *op, const char *name),
                  void *context);

/* Kill ${client}: its locks are free, and all its later calls do nothing and fail with EIO (it can
 * still close handles). */
void sim_client_die(struct sim *sim, int client);

/* Make the ${nth} sync from now (from 1; 0: none), of a file or directory, fail with EIO. With
 * ${lost}, later ones return OK for the same bytes and names, but make nothing durable. */
void sim_fail_sync(struct sim *sim, unsigned nth, bool lost);

/* ---- power loss */

enum sim_contents { SIM_EMPTY, SIM_OLD, SIM_NEW, SIM_TORN };

/* The number of pending operations on names, and of files with contents, that a power loss may
 * lose. */
size_t sim_pending_count(const struct sim *sim);
size_t sim_dirty_count(const struct sim *sim);

/* The disk after a power loss.  No client is dead, nothing is locked, all is durable.  Bit i of
 * ${ops}: pending operation i stays.  Bits 2 i and 2 i + 1 of ${files}: the contents of dirty file
 * i; others stay as SIM_NEW. */
struct sim *sim_crash_bits(struct sim *sim, uint64_t ops, uint64_t files);

/* Equal for disks on which a new client sees the same contents, except for inode numbers. */
uint64_t sim_hash(const struct sim *sim);
/* Print all names, then what is pending. */
void sim_print(const struct sim *sim, FILE *to);

#endif
