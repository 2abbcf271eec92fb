/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.c -- reads the profile files of AWS tools. */
#include "object/profile.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

const char *profile_variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

enum sidestep_status profile_number(const char *name, uint64_t min, uint64_t max, uint64_t *number,
                                    struct sidestep_error *err)
{
    const char *text = profile_variable(name);
    char *end;

    *number = 0;
    if (text == NULL)
        return SIDESTEP_OK;
    errno = 0;
    *number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || *number < min || *number > max)
        return FAIL(err, SIDESTEP_EINVAL, "%s is '%.40s', but must be a number from %llu to %llu",
                    name, text, (unsigned long long)min, (unsigned long long)max);
    return SIDESTEP_OK;
}

enum sidestep_status profile_read_file(const char *path, size_t most, struct buffer *to,
                                       struct sidestep_error *err)
{
    struct stat stat;
    OWNED_FD fd = fault_hit("open") ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &stat) != 0)
        return FAIL_SYS(err, "read '%s'", path);
    if (!S_ISREG(stat.st_mode) || (uint64_t)stat.st_size > most)
        return FAIL(err, SIDESTEP_EINVAL, "read '%s': it is not a file, or has more than %zu bytes",
                    path, most);
    /* Extended once, so that it leaves no copy of a secret. */
    to->length = 0;
    char *text = (char *)buffer_extend(to, (size_t)stat.st_size + 1);
    TRY(buffer_check(to, err));
    size_t length = 0;
    for (ssize_t got; length < (size_t)stat.st_size; length += (size_t)got) {
        got = fault_hit("read") ? -1 : read(fd, text + length, (size_t)stat.st_size - length);
        if (got < 0)
            return FAIL_SYS(err, "read '%s'", path);
        if (got == 0)
            break;
    }
    text[length] = '\0';
    to->length = length + 1;
    return SIDESTEP_OK;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t length = strlen(text); length > 0 && isspace((unsigned char)text[length - 1]);)
        text[--length] = '\0';
    return text;
}

/* "[default]", "[profile NAME]" in the config file, "[NAME]" in both. */
static bool is_section_of(char *line, const struct profile *profile, bool is_config)
{
    char *end = strchr(line, ']');

    if (end == NULL)
        return false;
    *end = '\0';
    char *name = trim(line + 1);
    if (is_config && strncmp(name, "profile", 7) == 0 && isspace((unsigned char)name[7]))
        name = trim(name + 8);
    else if (is_config && strcmp(name, "default") != 0)
        return false; /* [sso-session NAME], [services NAME] */
    return strcmp(name, profile->name) == 0;
}

static const char **setting_of(struct profile *p, const char *key)
{
    const struct {
        const char *key;
        const char **value;
    } settings[] = {
        {"aws_access_key_id", &p->access_key},
        {"aws_secret_access_key", &p->secret},
        {"aws_session_token", &p->token},
        {"region", &p->region},
        {"endpoint_url", &p->endpoint_url},
        {"ca_bundle", &p->ca_bundle},
        {"credential_process", &p->credential_process},
        {"role_arn", &p->role_arn},
        {"web_identity_token_file", &p->web_identity_token_file},
        {"role_session_name", &p->role_session_name},
        {"sso_session", &p->sso},
        {"sso_start_url", &p->sso},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(settings); i++)
        if (strcmp(settings[i].key, key) == 0)
            return settings[i].value;
    return NULL;
}

/* "key = value".  The credentials file, which is read first, has precedence.  ${is_nested}: it
 * belongs to "s3 =". */
static enum sidestep_status take_setting(struct profile *profile, char *line, bool is_nested,
                                         struct sidestep_error *err)
{
    char *equals = strchr(line, '=');

    if (equals == NULL)
        return SIDESTEP_OK;
    *equals = '\0';
    const char *value = trim(equals + 1);
    const char *key = trim(line);
    const char **setting = !is_nested                                    ? setting_of(profile, key)
                           : strcmp(key, "payload_signing_enabled") == 0 ? &profile->payload_signing
                                                                         : NULL;
    if (setting == NULL || *setting != NULL || *value == '\0')
        return SIDESTEP_OK;
    *setting = arena_strndup(&profile->arena, value, strlen(value));
    return *setting != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(value));
}

/* "s3 =": the indented lines that follow are settings of S3. */
static bool is_nested_s3(const char *line)
{
    size_t length = strcspn(line, " \t=");

    return length == 2 && strncmp(line, "s3", 2) == 0 && line[2 + strspn(line + 2, " \t=")] == '\0';
}

enum sidestep_status profile_parse(struct profile *profile, char *text, bool is_config,
                                   struct sidestep_error *err)
{
    bool is_chosen_section = false, is_below_s3 = false;
    char *rest = text;

    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        bool is_nested = isspace((unsigned char)line[0]);
        char *trimmed = trim(line);
        if (*trimmed == '\0' || *trimmed == '#' || *trimmed == ';' || (is_nested && !is_below_s3))
            continue; /* an indented line belongs to a setting that is not used, or to "s3 =" */
        if (!is_nested)
            is_below_s3 = is_nested_s3(trimmed);
        if (*trimmed == '[') {
            is_chosen_section = is_section_of(trimmed, profile, is_config);
            profile->is_found |= is_chosen_section;
        } else if (is_chosen_section) {
            TRY(take_setting(profile, trimmed, is_nested, err));
        }
    }
    return SIDESTEP_OK;
}

static enum sidestep_status find_path(struct profile *profile, const char *variable,
                                      const char *in_home, const char **path,
                                      struct sidestep_error *err)
{
    const char *named = profile_variable(variable);
    const char *home = profile_variable("HOME");

    *path = named != NULL
                ? arena_strndup(&profile->arena, named, strlen(named))
                : arena_printf(&profile->arena, "%s/.aws/%s", home != NULL ? home : "", in_home);
    return *path != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, 4096);
}

static enum sidestep_status read_one(struct profile *profile, const char *path, bool is_config,
                                     struct sidestep_error *err)
{
    OWNED_BY(buffer_wipe) struct buffer text = {0};
    struct sidestep_error why;
    enum sidestep_status status = profile_read_file(path, PROFILE_MAX_FILE_BYTES, &text, &why);

    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    return profile_parse(profile, (char *)text.bytes, is_config, err);
}

enum sidestep_status profile_read(const char *name, struct profile *profile,
                                  struct sidestep_error *err)
{
    const char *chosen = name != NULL ? name : profile_variable("AWS_PROFILE");

    *profile = (struct profile){.is_chosen = chosen != NULL};
    if (chosen == NULL)
        chosen = "default";
    profile->name = arena_strndup(&profile->arena, chosen, strlen(chosen));
    if (profile->name == NULL)
        return FAIL_NOMEM(err, strlen(chosen));
    TRY(find_path(profile, "AWS_SHARED_CREDENTIALS_FILE", "credentials", &profile->credentials_path,
                  err));
    TRY(find_path(profile, "AWS_CONFIG_FILE", "config", &profile->config_path, err));
    TRY(read_one(profile, profile->credentials_path, false, err));
    TRY(read_one(profile, profile->config_path, true, err));
    if (profile->is_chosen && !profile->is_found)
        return FAIL(err, SIDESTEP_EINVAL,
                    "profile '%s' is neither in '%s' nor in '%s': correct AWS_PROFILE, or unset it",
                    profile->name, profile->credentials_path, profile->config_path);
    return SIDESTEP_OK;
}

void profile_release(struct profile *profile)
{
    const char *const secrets[] = {profile->access_key, profile->secret, profile->token};

    for (size_t i = 0; i < ARRAY_LENGTH(secrets); i++)
        if (secrets[i] != NULL)
            explicit_bzero((char *)(uintptr_t)secrets[i], strlen(secrets[i]));
    arena_release(&profile->arena);
    *profile = (struct profile){0};
}
