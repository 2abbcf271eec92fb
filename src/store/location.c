/* SPDX-License-Identifier: BSD-3-Clause */
/* location.c -- see location.h. */
#include "store/location.h"

#include <string.h>
#include <strings.h>

#define AFTER_SCHEME "://"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_scheme_character(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

size_t location_scheme(const char *path)
{
    size_t length = 0;

    if (!is_letter(path[0]))
        return 0;
    while (is_scheme_character(path[length]))
        length++;
    return strncmp(path + length, AFTER_SCHEME, strlen(AFTER_SCHEME)) == 0 ? length : 0;
}

enum sidestep_status location_check(const char *path, struct sidestep_error *err)
{
    size_t scheme = location_scheme(path);

    if (path[0] == '\0')
        return FAIL(err, SIDESTEP_EINVAL, "the path is empty");
    if (scheme == 0)
        return SIDESTEP_OK;
    if (scheme == 4 && strncmp(path, "file", scheme) == 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "'%s' is a URL: give the path alone, without 'file://'", path);
    if (scheme == 2 && strncasecmp(path, "s3", scheme) == 0 && path[0] != 's')
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "'%s' is a URL with a capital letter: write 's3://'", path);
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "'%s' is a URL that cannot be used here: sidestep knows paths of file systems, and "
                "s3://BUCKET/PREFIX for most functions; mount other storage, and give its path "
                "there (a local path of this name is './%s')",
                path, path);
}
