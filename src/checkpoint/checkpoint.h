/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checkpoint.h -- a checkpoint on storage, opened and read.
 *
 * reader.h opens a DCP directory through one directory descriptor and checks `.metadata`, manifest
 * and footers against each other before any tensor is read.  foreign.h opens what other programs
 * wrote (safetensors, torch.save()) as if it were a checkpoint.  parallel_read.h reads many
 * stretches of many files in order.  missing.h says what a directory is that is no checkpoint.
 *
 * What comes in: a path, and flags that say what to tolerate.
 * What goes out: struct reader: metadata, files and items, with the place, size and hashes of
 * each; then the bytes of items, checked.
 *
 * Ownership: the reader owns everything it returns, until reader_close().
 *
 * Threads: opening runs on one thread.  Afterwards several threads may read items of one reader.
 *
 * Nothing here writes, locks or renames.  A reader may hold a shared lock, so that nobody deletes
 * what is being read.
 *
 * Trust: every byte is hostile; see format/.
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include "checkpoint/foreign.h"
#include "checkpoint/missing.h"
#include "checkpoint/parallel_read.h"
#include "checkpoint/reader.h"

#endif
