/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lock_file.h -- lock files: the lock says that the owner of the file is alive and at work.
 *
 * The lock belongs to the file, but others find the file by its name. Between the creation of a
 * file and the lock of its creator, a sweep can take the lock, remove the name, and release the
 * lock. Then the creator would hold the lock of a file that nobody sees. A process that opened the
 * file earlier can hold such a lock, too. So a lock counts only if, after it was taken, the name
 * still leads to the locked file. (The number of links cannot serve as a check: a marker gets more
 * names.)
 *
 * Only the holder of a lock that counts removes or replaces the name.
 */
#ifndef COMMIT_LOCK_FILE_H
#define COMMIT_LOCK_FILE_H

#include "store/store.h"

struct commit;

/* Lock ${file}, which was opened for writing as ${name} in ${dir}. Never waits.
 * ELOCKED: another process holds the lock.
 * ENOTFOUND: the name is gone, or leads to another file. Close ${file} and start over.
 * EUNSUPPORTED: this storage has no locks. */
enum sidestep_status lock_file_acquire(struct store_dir *dir, const char *name,
                                       struct store_file *file, struct sidestep_error *err);

enum lock_file_kind {
    LOCK_FILE_NEW,    /* the name must not exist */
    LOCK_FILE_SHARED, /* several processes take turns; the file is created if missing */
};
/* Rank 0: open ${name} in ${dir}, a file of this kind, and lock it. Starts over when the file is
 * swept, and waits while another process holds the lock.
 * ELOCKED: that took longer than the save's timeout.
 * EABORTED: the program cancelled the save.
 * ENOTFOUND: ${dir} was removed.
 * EUNSUPPORTED: ${*out} is open, but not locked, because this storage has no locks. */
enum sidestep_status lock_file_create(struct commit *commit, struct store_dir *dir,
                                      const char *name, enum lock_file_kind kind,
                                      struct store_file **out, struct sidestep_error *err);

#endif
