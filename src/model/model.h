/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h -- what a state is: tensors, boxes, dtypes, paths, values, and the metadata of a
 * checkpoint.
 *
 * Nothing here reads or writes files.
 *
 * What comes in: a program's state dict (state_dict.h), or what a format has parsed.
 * What goes out: structs that all others use: a box is a shard's place in its global tensor
 * (box.h), metadata says what a checkpoint holds and where (metadata.h), a value is a small object
 * (value.h), a path is the way to an item of a nested state dict (path.h).
 *
 * Units: shapes and offsets count elements; strides count elements; sizes called bytes count
 * bytes.
 *
 * Ownership: metadata and state dicts own their names in arenas of their own.  Tensor data stays
 * the caller's: a state dict holds addresses, not copies.
 *
 * Threads: a struct may be read by any number of threads while nobody changes it.
 *
 * Limits: every count and depth that comes from a file has a named limit (model/metadata.h).
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "model/box.h"
#include "model/box_range.h"
#include "model/cast.h"
#include "model/display.h"
#include "model/metadata.h"
#include "model/path.h"
#include "model/state_dict.h"
#include "model/tensor_difference.h"
#include "model/tensor_stats.h"
#include "model/value.h"
#include "model/value_keys.h"

#endif
