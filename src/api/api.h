/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * api.h -- public functions that belong to no other folder.
 *
 * engine.c opens and closes an engine, which needs the folders of saves and of series. The others
 * are small: objects as pickles, one decoded item, one file of a checkpoint, huge pages, the
 * version. All other public functions are in the folder that does their work.
 *
 * What comes in: arguments of programs, which are checked here, because nothing from outside is
 * trusted.
 * What goes out: handles and bytes. No other folder includes this one: the public headers declare
 * all of its functions.
 *
 * Ownership: as the public headers say of each function.
 *
 * Threads: opening an engine starts those that its saves and loads share, and closing it joins
 * them. Both are collective. Every other function here may be called on any thread.
 */
#ifndef API_API_H
#define API_API_H

#include "sidestep/sidestep.h"

#endif
