/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_json.c -- parses the JSON with credentials that services and programs return. */
#include "object/credentials_source.h"

#include <jansson.h>

enum sidestep_status credentials_put(char *to, size_t size, const char *text, bool optional,
                                     const char *what, struct sidestep_error *err)
{
    size_t length = text != NULL ? strlen(text) : 0;

    to[0] = '\0';
    if (length == 0)
        return optional ? SIDESTEP_OK : FAIL(err, SIDESTEP_EINVAL, "%s is missing", what);
    if (length >= size)
        return FAIL(err, SIDESTEP_EINVAL, "%s has more than %zu characters", what, size - 1);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] > 0x7e)
            return FAIL(err, SIDESTEP_EINVAL, "%s has a character that credentials cannot have",
                        what);
    memcpy(to, text, length + 1);
    return SIDESTEP_OK;
}

/* Copy a member, and wipe the library's copy of it. */
static enum sidestep_status take(const json_t *object, const char *name, char *to, size_t size,
                                 bool optional, struct sidestep_error *err)
{
    const char *value = json_string_value(json_object_get(object, name));
    enum sidestep_status status = credentials_put(to, size, value, optional, name, err);

    if (value != NULL)
        explicit_bzero((char *)(uintptr_t)value, strlen(value));
    return status;
}

static enum sidestep_status take_all(const json_t *object, struct credentials_set *set,
                                     struct sidestep_error *err)
{
    const char *ends = json_string_value(json_object_get(object, "Expiration"));
    bool is_session = json_object_get(object, "SessionToken") != NULL;

    TRY(take(object, "AccessKeyId", set->access_key, sizeof(set->access_key), false, err));
    TRY(take(object, "SecretAccessKey", set->secret, sizeof(set->secret), false, err));
    TRY(take(object, is_session ? "SessionToken" : "Token", set->token, sizeof(set->token), true,
             err));
    set->ends = ends != NULL ? answer_date(ends) : 0;
    if (ends != NULL && set->ends == 0)
        return FAIL(err, SIDESTEP_EINVAL, "Expiration is not a date");
    return SIDESTEP_OK;
}

enum sidestep_status credentials_parse_json(char *text, size_t length, struct credentials_set *set,
                                            struct sidestep_error *err)
{
    json_error_t problem;
    json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);

    explicit_bzero(text, length);
    if (object == NULL && json_error_code(&problem) == json_error_out_of_memory)
        return FAIL_NOMEM(err, length);
    if (object == NULL) /* the library's text may quote the input */
        return FAIL(err, SIDESTEP_EINVAL, "it is not JSON (line %d)", problem.line);
    enum sidestep_status status = json_is_object(object)
                                      ? take_all(object, set, err)
                                      : FAIL(err, SIDESTEP_EINVAL, "it is not a JSON object");
    json_decref(object);
    return status;
}
