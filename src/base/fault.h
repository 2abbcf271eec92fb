/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault.h -- fault points, where tests make a call fail.  Release builds have none.
 *
 * Each primitive that can fail calls fault_hit("point") once.  A test arms "fail the n-th hit", or
 * "the n-th and all later ones", runs the whole operation, and checks what a reader would see.
 * With n = 1, 2, 3 ... until no point fires, it executes every failure path.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>

#ifdef SIDESTEP_FAULTS
/* Count a hit.  True: fail now; errno is set to the one of fault_arm(). */
bool fault_hit(const char *point);
/* Fail the ${nth} hit (from 1; 0 disarms) of the points whose name starts with ${prefix} ("": all
 * points; "a|b": with a or b) with ${sys_errno}.  ${sticky}: fail all later hits, too.  Resets the
 * counters. */
void fault_arm(const char *prefix, unsigned long nth, bool sticky, int sys_errno);
/* At the points whose name starts with ${prefix}, first sleep for up to ${max_us}, at random.  This
 * brings threads into orders that are rare otherwise.  0: do not sleep any more. */
void fault_delay(const char *prefix, unsigned max_us);
/* The point that failed first since fault_arm(), or NULL. */
const char *fault_fired(void);
/* Hits of the armed points since fault_arm(). */
unsigned long fault_hits(void);
#else
#define fault_hit(point) false
#endif

#endif
