/* SPDX-License-Identifier: BSD-3-Clause */
/* object_layout.h -- names and times of saves on object stores that other folders use
 * (object_form.h). */
#ifndef COMMIT_OBJECT_LAYOUT_H
#define COMMIT_OBJECT_LAYOUT_H

#define OBJECT_SAVES_DIR ".sidestep/" /* NAME/.sidestep/<save id>/... */
#define OBJECT_EXPORT_MARKER "export" /* there, the marker of an export (object_export.h) */
/* A save whose marker was not put again for this long, by the store's clock, is dead. */
#define OBJECT_DEAD_SECONDS 3600

#endif
