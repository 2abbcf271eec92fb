/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * display.h -- writes names, shapes, boxes, sizes and times as texts for messages.
 *
 * A text that is too long is cut between characters and ends in "...", so that the reason after it
 * still fits into the message.  Control characters of names become "\xNN", so that a name cannot
 * control a terminal.
 */
#ifndef MODEL_DISPLAY_H
#define MODEL_DISPLAY_H

#include "model/box.h"

#define DISPLAY_MAX_TIME INT64_C(253402300799) /* the last second of the year 9999 */

struct display_text {
    char text[168];
};

/* Used as an argument: FAIL(err, ..., "'%s' ...", display_name(name).text) */
struct display_text display_name(const char *name);
struct display_text display_shape(uint32_t ndim, const int64_t *lengths); /* "[2,3]" */
struct display_text display_box(const struct box *box);                   /* "[0:2,4:8]" */
struct display_text display_bytes(uint64_t bytes);                        /* "1.5 GiB" */
/* "2026-01-02T03:04:05Z", from seconds since 1970.  A time outside the years 1970 to 9999 becomes
 * the nearest time inside. */
struct display_text display_time(int64_t seconds);

#endif
