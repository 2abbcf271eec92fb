/* SPDX-License-Identifier: BSD-3-Clause */
/* parse_units.h -- parses sizes and times that people type. */
#ifndef CLI_PARSE_UNITS_H
#define CLI_PARSE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/** cli_parse_units_size(text, &bytes): "512MiB", "1.5G", "10 GB", "4096": a number above 0; K, M,
 * G, T and KiB ... are powers of 1024, KB ... of 1000. */
bool cli_parse_units_size(const char *text, uint64_t *bytes);
/** cli_parse_units_time(text, &seconds): "90", "90s", "30min", "6h", "2d": a number above 0. */
bool cli_parse_units_time(const char *text, double *seconds);

#endif
