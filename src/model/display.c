/* SPDX-License-Identifier: BSD-3-Clause */
/* display.c -- see display.h. */
#include "model/display.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define ELLIPSIS "..."
/* Longest text of one dimension: two numbers of 19 digits, a colon and a comma. */
#define DIMENSION_BYTES 48u

struct display_text display_name(const char *name)
{
    struct display_text shown;
    size_t used = 0, cut = 0; /* ${cut}: the place of the ellipsis if the name is too long */

    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) {
        bool control = *c < 0x20 || *c == 0x7f;
        size_t bytes = control ? sizeof("\\x00") - 1 : 1;

        if ((*c & 0xc0) != 0x80 && used + sizeof(ELLIPSIS) <= sizeof(shown.text))
            cut = used;
        if (used + bytes >= sizeof(shown.text)) {
            memcpy(shown.text + cut, ELLIPSIS, sizeof(ELLIPSIS));
            return shown;
        }
        if (control)
            snprintf(shown.text + used, sizeof(shown.text) - used, "\\x%02x", *c);
        else
            shown.text[used] = (char)*c;
        used += bytes;
    }
    shown.text[used] = '\0';
    return shown;
}

/* If ${offsets} is NULL, the text has lengths only. */
static struct display_text show_numbers(uint32_t ndim, const int64_t *offsets,
                                        const int64_t *lengths)
{
    struct display_text shown;
    size_t used = 1;

    shown.text[0] = '[';
    for (uint32_t d = 0; d < ndim; d++) {
        char number[DIMENSION_BYTES];
        int bytes = offsets == NULL
                        ? snprintf(number, sizeof(number), "%s%lld", d != 0 ? "," : "",
                                   (long long)lengths[d])
                        : snprintf(number, sizeof(number), "%s%lld:%lld", d != 0 ? "," : "",
                                   (long long)offsets[d],
                                   (long long)((uint64_t)offsets[d] + (uint64_t)lengths[d]));

        if (used + (size_t)bytes + sizeof("," ELLIPSIS "]") > sizeof(shown.text)) {
            memcpy(shown.text + used, "," ELLIPSIS, sizeof("," ELLIPSIS) - 1);
            used += sizeof("," ELLIPSIS) - 1;
            break;
        }
        memcpy(shown.text + used, number, (size_t)bytes);
        used += (size_t)bytes;
    }
    memcpy(shown.text + used, "]", 2);
    return shown;
}

struct display_text display_shape(uint32_t ndim, const int64_t *lengths)
{
    return show_numbers(ndim, NULL, lengths);
}

struct display_text display_box(const struct box *box)
{
    static const int64_t zero;

    return show_numbers(box->ndim, box->ndim != 0 ? box->offsets : &zero, box->lengths);
}

struct display_text display_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct display_text text;
    double shown = (double)bytes;
    size_t unit = 0;

    for (; shown >= 1023.95 && unit + 1 < ARRAY_LENGTH(units); unit++)
        shown /= 1024;
    snprintf(text.text, sizeof(text.text), "%.*f %s", unit != 0, shown, units[unit]);
    return text;
}

struct display_text display_time(int64_t seconds)
{
    time_t clamped = (time_t)(seconds < 0                  ? 0
                              : seconds > DISPLAY_MAX_TIME ? DISPLAY_MAX_TIME
                                                           : seconds);
    struct display_text shown;
    struct tm tm;

    strftime(shown.text, sizeof(shown.text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&clamped, &tm));
    return shown;
}
