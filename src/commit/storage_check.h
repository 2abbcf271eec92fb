/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * storage_check.h -- checks whether a storage can keep a save whole.
 *
 * A save writes at any place of a file, gives files their names when they are durable, and gives a
 * new directory its name in one step. Network file systems can do that. Mounts of object stores
 * cannot, or only seem to. A save would notice that at its end, or only after a crash. So rank 0
 * tries it in small before the first save to a place, and so does the doctor.
 */
#ifndef COMMIT_STORAGE_CHECK_H
#define COMMIT_STORAGE_CHECK_H

#include "store/store.h"

struct commit;

/* EUNSUPPORTED: ${dir} cannot keep what is saved in it. The message says why, as a clause that
 * follows the name of the storage. Other failures, such as a full disk, are OK here: the save
 * reports them. ${in_place}: a save there renames no directory. */
enum sidestep_status storage_check(struct store_dir *dir, bool in_place,
                                   struct sidestep_error *err);

/* The same for the directory of a save or a series, with a message that says what to do. Only
 * network storage is tried. */
enum sidestep_status storage_check_network(struct store_dir *dir, bool in_place,
                                           struct sidestep_error *err);
/* Rank 0, before it begins: check the directory, unless it is the one that was checked last
 * (${commit->request.checked}). */
enum sidestep_status storage_check_commit(struct commit *commit, struct sidestep_error *err);

#endif
