/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lock_file.h -- files whose lock says that their owner is alive and at work.
 *
 * The lock belongs to the file, but others find the file by its name.  Whoever sweeps may take the
 * lock between the creation of a file and the lock of its creator, remove the name, and let go:
 * the creator would then hold the lock of a file that nobody sees.  A process that opened the file
 * earlier can hold such a lock as well.  So a lock counts only if, after it was taken, the name
 * still leads to the locked file.  (The number of links does not tell: a mark gets more names.)
 *
 * Whoever holds a lock that counts is the only one who removes or replaces the name.
 */
#ifndef COMMIT_LOCK_FILE_H
#define COMMIT_LOCK_FILE_H

#include "store/store.h"

struct commit;

/* Lock ${file}, which was opened for writing as ${name} in ${dir}.  Never waits.
 * ELOCKED: somebody else holds the lock.
 * ENOTFOUND: the name is gone, or leads to another file: close ${file} and begin again.
 * EUNSUPPORTED: this storage has no locks. */
enum sidestep_status lock_file_acquire(struct store_dir *dir, const char *name,
                                       struct store_file *file, struct sidestep_error *err);

enum lock_file_kind {
    LOCK_FILE_NEW,    /* the name must not exist */
    LOCK_FILE_SHARED, /* several processes take turns; who finds no file makes one */
};
/* C: open ${name} in ${dir}, a file of this kind, and lock it; begins again when somebody sweeps
 * the file, and waits while somebody else holds the lock.
 * ELOCKED: that took longer than the save's timeout.  EABORTED: the program gave the save up.
 * ENOTFOUND: ${dir} was removed.
 * EUNSUPPORTED: ${*out} is open, and not locked, because this storage has no locks. */
enum sidestep_status lock_file_create(struct commit *commit, struct store_dir *dir,
                                      const char *name, enum lock_file_kind kind,
                                      struct store_file **out, struct sidestep_error *err);

#endif
