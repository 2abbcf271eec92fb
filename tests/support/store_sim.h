/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_sim.h -- a disk in memory that forgets: a store for exploring what a power loss may leave.
 *
 * The model.  Names and contents are volatile until synced, and nothing implies anything else:
 *  - Each change of names (create, mkdir, link, unlink, rmdir, rename, exchange) is one atomic
 *    operation that belongs to the one or two directories that it touches.  It becomes durable by
 *    store_dir_sync() of either, together with the earlier ones on the same names.
 *  - store_file_sync() makes size and bytes of one file durable, not its name.
 *  - A power loss keeps what is durable, and of the rest any choice: of the pending operations
 *    any subset (one that finds its names not as it left them is dropped as well), of each file
 *    that was not synced nothing, the last synced contents, all, or the first half.
 * Inodes keep their numbers over clones and crashes.  There are no symbolic links, no permissions;
 * names have at most SIM_NAME_BYTES - 1 bytes, files at most 16 MiB.
 *
 * A disk may be used by several threads; a clone is another disk, which shares nothing.
 */
#ifndef SUPPORT_STORE_SIM_H
#define SUPPORT_STORE_SIM_H

#include <stdio.h>

#include "store/store.h"

#define SIM_NAME_BYTES 96
#define SIM_MAX_CLIENTS 16

struct sim;

/* What this storage cannot do, and how much its syncs mean. */
#define SIM_NO_NOREPLACE 1u
#define SIM_NO_EXCHANGE 2u
#define SIM_NO_LOCKS 4u
#define SIM_NO_LINKS 8u
#define SIM_OWN_SYNC 16u /* store_dir_sync() covers the caller's own operations only */

/* NULL when memory is short, as for all that return a disk.  An empty root, "/". */
struct sim *sim_new(unsigned flags);
void sim_free(struct sim **sim);
/* The same disk again: names, pending operations, locks and dead clients; no hook, no handles. */
struct sim *sim_clone(struct sim *sim);
void sim_set_flags(struct sim *sim, unsigned flags);

/* The disk as ${client} (0 to SIM_MAX_CLIENTS - 1) sees it; lives as long as the disk.  Paths of
 * store_dir_open() without a directory start at the root. */
struct store *sim_store(struct sim *sim, int client);

/* Called before every operation of every client, without locks held: may switch to another
 * coroutine, or kill the client, in which case the operation is not done.  ${op}: as in struct
 * store_ops; ${name}: as given, or of the handle. */
void sim_set_hook(struct sim *sim,
                  void (*before_op)(void *context, int client, const char *op, const char *name),
                  void *context);

/* ${client} is gone: its locks are free, and all that it calls from now on fails with EIO and
 * does nothing (handles can still be closed). */
void sim_client_die(struct sim *sim, int client);

/* The ${nth} sync from now (from 1; 0: none), of file or directory, fails with EIO.  With ${lost},
 * later ones say OK about the same bytes and names, and make nothing of them durable. */
void sim_fail_sync(struct sim *sim, unsigned nth, bool lost);

/* ---- power loss */

enum sim_contents { SIM_EMPTY, SIM_OLD, SIM_NEW, SIM_TORN };

/* Operations on names, and files that have contents, which a power loss now may take away. */
size_t sim_pending_count(const struct sim *sim);
size_t sim_dirty_count(const struct sim *sim);

/* The disk after a power loss in which pending operation i stays if keep(context, i), and dirty
 * file i comes back as contents(context, i).  Nobody is dead, nothing locked, all durable. */
struct sim *sim_crash(struct sim *sim, bool (*keep)(void *context, size_t op),
                      enum sim_contents (*contents)(void *context, size_t file), void *context);
/* The same, with bit i of ${ops} and bits 2 i and 2 i + 1 of ${files} for choices; those beyond
 * stay as SIM_NEW. */
struct sim *sim_crash_bits(struct sim *sim, uint64_t ops, uint64_t files);

/* Equal for disks on which a newly started client sees the same, inode numbers apart. */
uint64_t sim_hash(const struct sim *sim);
/* For people: all names, then what is pending. */
void sim_print(const struct sim *sim, FILE *to);

#endif
