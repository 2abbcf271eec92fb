/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * catalog.h -- lists the checkpoints under a root, with their states and annotations.
 *
 * Five parts:
 *  - list.h lists a root: committed, damaged, saving, dead, another program's.
 *  - annotations.h keeps pins, tags and metrics as small files in ROOT/.sidestep.
 *  - lineage.h decides which checkpoints a resume skips, and why.
 *  - foreign_layouts.h knows the checkpoints of other frameworks.
 *  - gc_report.h collects what was removed and what was kept.
 *
 * What comes in: the path of a root.
 * What goes out: entries with name, step, time, state, and a reason that a person can read.
 *
 * Ownership: a list owns its strings until it is released.
 *
 * Threads: one thread makes a list; helper threads open the files. Afterwards the list is only
 * read.
 *
 * Other processes save, delete and rename while a root is listed. A listing starts over when names
 * disappear meanwhile. It never waits for a lock.
 */
#ifndef CATALOG_CATALOG_H
#define CATALOG_CATALOG_H

#include "catalog/annotations.h"
#include "catalog/foreign_layouts.h"
#include "catalog/gc_report.h"
#include "catalog/lineage.h"
#include "catalog/list.h"

#endif
