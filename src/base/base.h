/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base.h -- what every other folder builds on: errors, memory, threads, checked arithmetic.
 *
 * Nothing here knows what a checkpoint is.
 *
 * What comes in: sizes, bytes and threads of the caller.
 * What goes out: memory (memory.h is the only caller of malloc), errors (error.h: a status to
 * branch on, a sentence to read), owned locals that clean up after themselves (owned.h), bounded
 * readers and writers of bytes (cursor.h, buffer.h), checked sums (checked.h), threads (thread.h,
 * workers.h) and time (clock.h, so that tests can simulate it).
 *
 * Ownership: an arena owns what was allocated from it, and frees all of it at once.  The struct
 * that holds a pointer owns everything else.  OWNED marks a local that owns.
 *
 * Threads: any thread may call a function, unless its header says otherwise.  A struct has no lock,
 * except for workers, budgets and members called "shared" (lock.h).
 *
 * Failure: a function that can fail returns enum sidestep_status and fills a struct
 * sidestep_error. Nothing prints, exits or aborts.  fault.h lets tests fail each allocation and
 * system call.
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include "base/budget.h"
#include "base/buffer.h"
#include "base/cgroup.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/cursor.h"
#include "base/edit_distance.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/hash_table.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/nontemporal_copy.h"
#include "base/options.h"
#include "base/owned.h"
#include "base/priority.h"
#include "base/random.h"
#include "base/seccomp.h"
#include "base/source.h"
#include "base/thread.h"
#include "base/trace.h"
#include "base/utf8.h"
#include "base/workers.h"

#endif
