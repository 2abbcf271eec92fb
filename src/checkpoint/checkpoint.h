/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checkpoint.h -- opens a checkpoint on storage and reads it.
 *
 * Five parts:
 *  - reader.h opens a DCP directory through one directory descriptor.  It checks `.metadata`,
 *    manifest and footers against each other before any tensor is read.  For a load, it opens and
 *    checks only the files that a rank needs.
 *  - foreign.h opens files of other programs (safetensors, torch.save()) like a checkpoint.
 *  - parallel_read.h reads many ranges of many files in order.
 *  - missing.h explains why a directory has no `.metadata`.
 *  - weights.h finds out which files of a set of weights are missing.
 *
 * What comes in: a path, and flags that say what to tolerate.
 * What goes out: struct reader, with the metadata, and with the location, size and hashes of each
 * file and item; then the bytes of items, checked.
 *
 * Ownership: the reader owns everything it returns, until reader_close().
 *
 * Threads: one thread opens a reader. Afterwards several threads may read items of it.
 *
 * Nothing here writes or renames. A reader may hold a shared lock, so that nobody deletes what is
 * being read.
 *
 * Trust: no byte is trusted; see format/.
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include "checkpoint/foreign.h"
#include "checkpoint/missing.h"
#include "checkpoint/parallel_read.h"
#include "checkpoint/reader.h"
#include "checkpoint/weights.h"

#endif
