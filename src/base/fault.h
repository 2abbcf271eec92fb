/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault.h -- fault points for tests; nothing in release builds.
 *
 * Each fallible primitive calls fault_hit("point") once.  A test arms "fail the n-th hit", or
 * "the n-th and all later ones", runs the whole operation, and looks at what a reader would see.
 * With n = 1, 2, 3 ... until nothing fires, every failure path is executed.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>

#ifdef SIDESTEP_FAULTS
/* Count a hit; true: fail now (errno is set to the armed one). */
bool fault_hit(const char *point);
/* Fail the ${nth} hit (from 1; 0 disarms) of points whose name starts with ${prefix} ("": all;
 * "a|b": with either) with ${sys_errno}; with ${sticky}, all later ones too.  Resets the counters.
 */
void fault_arm(const char *prefix, unsigned long nth, bool sticky, int sys_errno);
/* At points whose name starts with ${prefix}, sleep for up to ${max_us} first, at random, to bring
 * threads into orders that never happen otherwise; 0: no more. */
void fault_delay(const char *prefix, unsigned max_us);
/* The point that failed first since fault_arm(), or NULL.  How many hits were counted. */
const char *fault_fired(void);
unsigned long fault_hits(void);
#else
#define fault_hit(point) false
#endif

#endif
