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

/* pathlib.Path and os.path.normpath() make "s3:/b/x" of "s3://b/x". */
static bool has_lost_a_slash(const char *path)
{
    static const char *const schemes[] = {"s3", "s3a", "gs", "gcs", "az", "abfs", "hdfs", "file"};

    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++) {
        size_t length = strlen(schemes[i]);
        if (strncmp(path, schemes[i], length) == 0 && strncmp(path + length, ":/", 2) == 0)
            return true;
    }
    return false;
}

enum sidestep_status location_check(const char *path, struct sidestep_error *err)
{
    size_t scheme = location_scheme(path);

    if (path[0] == '\0')
        return FAIL(err, SIDESTEP_EINVAL, "the path is empty");
    if (scheme == 0 && has_lost_a_slash(path))
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "'%s' looks like a URL that has lost a slash: give the URL as text, not as a "
                    "pathlib.Path, with '://' (a local path of this name is './%s')",
                    path, path);
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
                "s3://BUCKET/PREFIX; mount other storage, and give its path there (a local "
                "path of this name is './%s')",
                path, path);
}
