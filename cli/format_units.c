/* SPDX-License-Identifier: BSD-3-Clause */
/* format_units.c -- formats numbers for people. */
#include "format_units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void cli_format_units_size(char text[CLI_FORMAT_UNITS_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 1024) {
        snprintf(text, CLI_FORMAT_UNITS_BYTES, "%" PRIu64 " B", bytes);
        return;
    }
    /* 1023.95 would print as "1024.0". */
    while (value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(text, CLI_FORMAT_UNITS_BYTES, "%.1f %s", value, units[unit]);
}

void cli_format_units_age(char text[CLI_FORMAT_UNITS_BYTES], int64_t seconds)
{
    static const struct {
        int64_t seconds;
        const char *name;
    } units[] = {{31557600, "y"}, {86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    size_t i = 0;

    if (seconds < 0)
        seconds = 0;
    while (i + 1 < sizeof(units) / sizeof(units[0]) && seconds < units[i].seconds)
        i++;
    snprintf(text, CLI_FORMAT_UNITS_BYTES, "%" PRId64 " %s", seconds / units[i].seconds,
             units[i].name);
}

void cli_format_units_duration(char text[CLI_FORMAT_UNITS_BYTES], uint64_t seconds)
{
    uint64_t hours = seconds / 3600, minutes = seconds / 60 % 60, rest = seconds % 60;

    if (hours > 0)
        snprintf(text, CLI_FORMAT_UNITS_BYTES, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, hours,
                 minutes, rest);
    else
        snprintf(text, CLI_FORMAT_UNITS_BYTES, "%" PRIu64 ":%02" PRIu64, minutes, rest);
}

bool cli_format_units_time(char text[CLI_FORMAT_UNITS_BYTES], int64_t seconds_since_1970)
{
    time_t when = (time_t)seconds_since_1970;
    struct tm utc;

    text[0] = '\0';
    if (gmtime_r(&when, &utc) == NULL || utc.tm_year + 1900 > 9999 || utc.tm_year + 1900 < 0)
        return false;
    return strftime(text, CLI_FORMAT_UNITS_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0;
}

void cli_format_units_real(char text[CLI_FORMAT_UNITS_BYTES], double number)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, CLI_FORMAT_UNITS_BYTES, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    /* %g writes 100 with one digit as "1e+02"; people expect plain digits below 1e16. */
    if (strchr(text, 'e') != NULL && number > -1e16 && number < 1e16 &&
        (number >= 1e-4 || number <= -1e-4))
        snprintf(text, CLI_FORMAT_UNITS_BYTES, "%.0f", number);
    if (strpbrk(text, ".ein") == NULL)
        strcat(text, ".0");
}
