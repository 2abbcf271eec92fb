/* SPDX-License-Identifier: BSD-3-Clause */
/* format_units.h -- formats numbers for people: bytes, ages, times, durations, floats. */
#ifndef CLI_FORMAT_UNITS_H
#define CLI_FORMAT_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/** Enough for all texts that these functions write, NUL included. */
#define CLI_FORMAT_UNITS_BYTES 40

/** "17 B", "1.5 KiB", "2.0 GiB". */
void cli_format_units_size(char text[CLI_FORMAT_UNITS_BYTES], uint64_t bytes);
/** "12 s", "5 min", "3 h", "2 d", "5 y"; at least "0 s". */
void cli_format_units_age(char text[CLI_FORMAT_UNITS_BYTES], int64_t seconds);
/** "1:02", "3:00:07". */
void cli_format_units_duration(char text[CLI_FORMAT_UNITS_BYTES], uint64_t seconds);
/** RFC 3339, UTC: "2031-05-01T12:00:00Z"; false, and "", if the year has more than four digits. */
bool cli_format_units_time(char text[CLI_FORMAT_UNITS_BYTES], int64_t seconds_since_1970);
/** The shortest digits that read back as ${number}, as Python prints it: "0.001", "3.0", "1e-08".
 */
void cli_format_units_real(char text[CLI_FORMAT_UNITS_BYTES], double number);

#endif
