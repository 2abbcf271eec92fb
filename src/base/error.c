/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c -- the texts of statuses, and the messages of struct sidestep_error. */
#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct sidestep_error) == 768, "part of the ABI");

const char *sidestep_status_text(enum sidestep_status status)
{
    switch (status) {
#define STATUS_TEXT(name, exit_status, text)                                                       \
    case SIDESTEP_##name:                                                                          \
        return text;
        SIDESTEP_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *error_status_name(enum sidestep_status status)
{
    switch (status) {
#define STATUS_NAME(name, exit_status, text)                                                       \
    case SIDESTEP_##name:                                                                          \
        return #name;
        SIDESTEP_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "unknown";
}

int sidestep_status_exit(enum sidestep_status status)
{
    switch (status) {
#define STATUS_EXIT(name, exit_status, text)                                                       \
    case SIDESTEP_##name:                                                                          \
        return exit_status;
        SIDESTEP_STATUS_MAP(STATUS_EXIT)
#undef STATUS_EXIT
    }
    return 1;
}

/* After ${url}, which is what follows "://": where a user and a password end.  NULL: there are
 * none. A password may have a '/', but then it is a colon and no port that begins it. */
static char *end_of_user(char *url, bool is_cut)
{
    size_t whole = strcspn(url, " '\"\t\n"), host = strcspn(url, "/?# '\"\t\n");
    const char *colon = memchr(url, ':', host);
    bool has_password = colon != NULL && strchr(":0123456789/?# '\"\t\n", colon[1]) == NULL;
    char *at = memrchr(url, '@', has_password ? whole : host);

    return at == NULL && has_password && is_cut && url[whole] == '\0' ? url + whole : at;
}

/* People write "s3://KEY:SECRET@BUCKET" and "http://USER:PASSWORD@PROXY", and messages end up in
 * logs.  ${is_cut}: the message is longer than its place. */
static void hide_users(char *message, bool is_cut)
{
    for (char *url = strstr(message, "://"); url != NULL; url = strstr(url, "://")) {
        url += 3;
        char *end = end_of_user(url, is_cut);
        if (end == NULL || end - url < 3)
            continue;
        memcpy(url, "***", 3);
        memmove(url + 3, end, strlen(end) + 1);
    }
}

enum sidestep_status error_set(struct sidestep_error *err, enum sidestep_status status,
                               int sys_errno, const char *where, const char *fmt, ...)
{
    int saved = errno;
    va_list args;

    if (err != NULL) {
        memset(err, 0, sizeof(*err));
        err->status = status;
        err->sys_errno = sys_errno;
        err->rank = -1;
        snprintf(err->where, sizeof(err->where), "%s", where);
        va_start(args, fmt);
        int used = vsnprintf(err->message, sizeof(err->message), fmt, args);
        va_end(args);
        hide_users(err->message, used < 0 || (size_t)used >= sizeof(err->message));
        used = (int)strlen(err->message);
        if (sys_errno != 0 && (size_t)used < sizeof(err->message) - 1)
            snprintf(err->message + used, sizeof(err->message) - (size_t)used, ": %s",
                     ERRNO_TEXT(sys_errno));
    }
    errno = saved;
    return status;
}

#ifdef SIDESTEP_FAULTS
/* Does ${message} contain "${what}: ", and does ${what} have a name in quotes? */
static bool is_repeated(const char *message, const char *what)
{
    const char *found = strstr(message, what);

    return found != NULL && strchr(what, '\'') != NULL &&
           strncmp(found + strlen(what), ": ", 2) == 0;
}
#endif

/* Skip "open 'NAME': " at the beginning of ${message}, if ${what} ends with the same name and has
 * no other.  "open checkpoint 'a': open 'a': No such file" would say the name twice. */
static const char *skip_repeated_name(const char *message, const char *what)
{
    size_t used = strlen(what), begin = 0, length;
    const char *quote = strchr(what, '\'');

    if (strncmp(message, "open directory '", 16) == 0)
        begin = 16;
    else if (strncmp(message, "open '", 6) == 0)
        begin = 6;
    const char *end = strstr(message + begin, "': ");
    if (begin == 0 || end == NULL || (quote != NULL && strchr(quote + 1, '\'') != what + used - 1))
        return message;
    length = (size_t)(end - message) - begin;
    used -= quote != NULL;
    if (used < length || memcmp(what + used - length, message + begin, length) != 0)
        return message;
    bool is_whole = used == length || strchr("'/", what[used - length - 1]) != NULL;
    return is_whole ? end + 3 : message;
}

void error_wrap(struct sidestep_error *err, const char *fmt, ...)
{
    int saved = errno;
    char text[sizeof(err->message)];
    va_list args;

    if (err == NULL)
        return;
    va_start(args, fmt);
    int used = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    hide_users(text, used < 0 || (size_t)used >= sizeof(text));
    used = (int)strlen(text);
#ifdef SIDESTEP_FAULTS
    assert(!is_repeated(err->message, text));
#endif
    if ((size_t)used < sizeof(text) - 1)
        snprintf(text + used, sizeof(text) - (size_t)used, ": %s",
                 skip_repeated_name(err->message, text));
    memcpy(err->message, text, sizeof(text));
    errno = saved;
}

enum sidestep_status error_copy(struct sidestep_error *err, const struct sidestep_error *why)
{
    if (err != NULL)
        *err = *why;
    return (enum sidestep_status)why->status;
}

enum sidestep_status error_from_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return SIDESTEP_ENOSPC;
    case EACCES:
    case EPERM:
    case EROFS:
        return SIDESTEP_EPERM;
    case ENOENT:
    case ENOTDIR:
        return SIDESTEP_ENOTFOUND;
    case EEXIST:
    case ENOTEMPTY:
        return SIDESTEP_EEXISTS;
    case ENOMEM:
        return SIDESTEP_ENOMEM;
    case ENAMETOOLONG:
        return SIDESTEP_EINVAL;
    case ELOOP:
    case EXDEV:
        return SIDESTEP_EUNSAFE;
    default:
        return SIDESTEP_EIO;
    }
}

enum sidestep_status error_from_callback(const char *what, const char *name, const char *function,
                                         enum sidestep_status status, struct sidestep_error *why,
                                         struct sidestep_error *err)
{
    if (status == SIDESTEP_OK)
        return SIDESTEP_OK;
    why->message[sizeof(why->message) - 1] = '\0';
    if ((int)status < 0 || status >= ERROR_STATUS_COUNT)
        return FAIL(err, SIDESTEP_EINVAL, "%s '%s': %s() returns %d, which is not a status", what,
                    name, function, (int)status);
    return error_set(err, status, why->sys_errno, HERE, "%s '%s': %s()%s%s", what, name, function,
                     why->message[0] != '\0' ? ": " : " fails", why->message);
}
