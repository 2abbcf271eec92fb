/* SPDX-License-Identifier: BSD-3-Clause */
/* parse_units.c -- parses sizes and times; see parse_units.h. */
#include "parse_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES 9e18
#define MAX_SECONDS 1e10 /* three centuries */

struct unit {
    const char *name;
    double factor;
};

/* Parse a plain decimal number and a unit; no sign, exponent, or "inf". */
static bool parse(const char *text, const struct unit *units, size_t count, double max,
                  double *value)
{
    char *unit = NULL;

    if (text[0] < '0' || text[0] > '9' || text[strspn(text, "0123456789.")] == 'x')
        return false;
    double number = strtod(text, &unit);
    if (memchr(text, 'e', (size_t)(unit - text)) || memchr(text, 'E', (size_t)(unit - text)))
        return false;
    while (*unit == ' ')
        unit++;
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(unit, units[i].name) == 0) {
            *value = number * units[i].factor;
            return *value > 0 && *value <= max;
        }
    return false;
}

bool cli_parse_units_size(const char *text, uint64_t *bytes)
{
    static const struct unit units[] = {
        {"", 1},
        {"B", 1},
        {"K", 1024.0},
        {"KiB", 1024.0},
        {"KB", 1e3},
        {"M", 1048576.0},
        {"MiB", 1048576.0},
        {"MB", 1e6},
        {"G", 1073741824.0},
        {"GiB", 1073741824.0},
        {"GB", 1e9},
        {"T", 1099511627776.0},
        {"TiB", 1099511627776.0},
        {"TB", 1e12},
    };
    double value = 0;

    if (!parse(text, units, sizeof(units) / sizeof(units[0]), MAX_BYTES, &value) || value < 1)
        return false;
    *bytes = (uint64_t)floor(value);
    return true;
}

bool cli_parse_units_time(const char *text, double *seconds)
{
    static const struct unit units[] = {
        {"", 1},     {"s", 1},        {"sec", 1},   {"m", 60},       {"min", 60},
        {"h", 3600}, {"hours", 3600}, {"d", 86400}, {"days", 86400},
    };

    return parse(text, units, sizeof(units) / sizeof(units[0]), MAX_SECONDS, seconds);
}
