/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * selection.h -- decides which checkpoint of a root is taken, which are kept, and which deleted.
 *
 * choose.h finds the newest valid checkpoint of a listing and says what it passed over and why.
 * retention.h decides, as a pure function of a listing, what may go.  prune.h looks, decides,
 * checks and deletes; kept.h looks and decides, to show it.  space_report.h says what deleting
 * would free when storage is full.
 *
 * What comes in: a listing of catalog/, and a policy.
 * What goes out: an index into the listing; or a report of what was deleted and what was kept.
 *
 * Rules: the newest valid checkpoint is never deleted.  What cannot be read now is neither chosen
 * nor deleted, and ends a search for the newest: older ones are not taken silently in its place.
 *
 * Ownership: listings stay the caller's.
 *
 * Threads: one thread per call.  Several processes may prune one root: each deletion takes the
 * name away first, so a deleted checkpoint is never half there.
 */
#ifndef SELECTION_SELECTION_H
#define SELECTION_SELECTION_H

#include "selection/choose.h"
#include "selection/kept.h"
#include "selection/prune.h"
#include "selection/space_report.h"

#endif
