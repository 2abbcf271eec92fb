/* SPDX-License-Identifier: BSD-3-Clause */
/* object_layout.h -- names and times of saves on object stores that other folders use
 * (object_form.h). */
#ifndef COMMIT_OBJECT_LAYOUT_H
#define COMMIT_OBJECT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "format/format.h"

#define OBJECT_SAVES_DIR ".sidestep/" /* NAME/.sidestep/<save id>/... */
#define OBJECT_EXPORT_MARKER "export" /* there, the marker of an export (object_export.h) */
/* A save whose marker was not put again for this long, by the store's clock, is dead. */
#define OBJECT_DEAD_SECONDS 3600

/* What an object below NAME/.sidestep/<save id>/ is. */
enum object_record {
    OBJECT_RECORD_NONE, /* somebody else's */
    OBJECT_RECORD_MARKER,
    OBJECT_RECORD_EXPORT,
    OBJECT_RECORD_OUTCOME,
    OBJECT_RECORD_VOTE, /* these are of a rank */
    OBJECT_RECORD_FAILURE,
    OBJECT_RECORD_ALIVE,
};

/* By its name there: "pending", "yes.3" ...  *rank: 0 if it is of none. */
enum object_record object_record_parse(const char *name, uint32_t *rank);
/* By its name below NAME, with the id of the save.  Unchanged if it is none. */
enum object_record object_record_find(const char *name, char save_id[SAVE_ID_HEX]);

#endif
