/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.h -- the data model: tensors, boxes, dtypes, paths, values, and the metadata of a
 * checkpoint.
 *
 * Nothing here reads or writes files.
 *
 * What comes in: a program's state dict (state_dict.h), or what a format has parsed.
 * What goes out: structs that all other folders use.  A box says where a shard lies in its global
 * tensor (box.h).  Metadata says what a checkpoint contains and where (metadata.h).  A value is a
 * small object (value.h).  A path leads to an item of a nested state dict (path.h).
 *
 * Units: shapes, offsets and strides count elements; sizes called bytes count bytes.
 *
 * Ownership: metadata and state dicts own their names, in arenas.  The caller owns tensor data: a
 * state dict holds addresses, not copies.
 *
 * Threads: any number of threads may read a struct while nobody changes it.
 *
 * Limits: every count and depth that comes from a file has a named limit, where it is parsed.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "model/box.h"
#include "model/box_range.h"
#include "model/cast.h"
#include "model/display.h"
#include "model/dtype_numbers.h"
#include "model/metadata.h"
#include "model/path.h"
#include "model/state_dict.h"
#include "model/tensor_difference.h"
#include "model/tensor_stats.h"
#include "model/value.h"
#include "model/value_keys.h"

#endif
