/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inspect.h -- shows and compares checkpoints, and reports what this machine allows.
 *
 * Three parts, each of public functions and what they share:
 *  - checkpoint_open.c opens one checkpoint; checkpoint_stats.c counts its values.
 *  - diff.c pairs the names of two checkpoints; diff_data.c compares their tensors,
 *    diff_files.c their small files, diff_stored.c tensors that only PyTorch can decode.
 *  - doctor.c checks the kernel and limits (doctor_kernel.c), and the storage of a root (root/).
 *
 * What comes in: paths of the caller, and what to look at.
 * What goes out: entries, statistics, differences and findings, for the caller. No other folder
 * includes this one: the public headers declare all of its functions that others call.
 *
 * Ownership: an open checkpoint, and each report, owns its strings until it is closed or released.
 *
 * Threads: a call blocks; threads that help it end with it. It takes no lock that a save waits for.
 *
 * Only the doctor writes: files in the directory that it checks, which it removes.
 */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include "inspect/checkpoint_open.h"
#include "inspect/diff.h"
#include "inspect/doctor.h"

#endif
