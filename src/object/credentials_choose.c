/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_choose.c -- chooses the source of credentials. */
#include "object/credentials_choose.h"

#include <stdio.h>
#include <strings.h>

#define CONTAINER_SERVICE "http://169.254.170.2"
#define MACHINE_SERVICE "http://169.254.169.254"

static const char *copy_text(struct credentials_source *source, const char *text)
{
    const char *copy = text != NULL ? arena_strndup(&source->arena, text, strlen(text)) : NULL;

    source->is_short_of_memory |= text != NULL && copy == NULL;
    return copy;
}

/* Record whether an allocation in the arena failed. */
static const char *check_text(struct credentials_source *source, const char *text)
{
    source->is_short_of_memory |= text == NULL;
    return text;
}

enum sidestep_status credentials_from_environment(const struct credentials_source *source,
                                                  struct credentials_set *set,
                                                  struct sidestep_error *err)
{
    (void)source;
    TRY(credentials_put(set->access_key, sizeof(set->access_key), getenv("AWS_ACCESS_KEY_ID"),
                        false, "AWS_ACCESS_KEY_ID", err));
    TRY(credentials_put(set->secret, sizeof(set->secret), getenv("AWS_SECRET_ACCESS_KEY"), false,
                        "AWS_SECRET_ACCESS_KEY", err));
    return credentials_put(set->token, sizeof(set->token), getenv("AWS_SESSION_TOKEN"), true,
                           "AWS_SESSION_TOKEN", err);
}

/* Reads the files again, because another program may have renewed them. */
enum sidestep_status credentials_from_profile(const struct credentials_source *source,
                                              struct credentials_set *set,
                                              struct sidestep_error *err)
{
    OWNED_PROFILE profile = {0};

    TRY(profile_read(source->profile, &profile, err));
    TRY(credentials_put(set->access_key, sizeof(set->access_key), profile.access_key, false,
                        "aws_access_key_id", err));
    TRY(credentials_put(set->secret, sizeof(set->secret), profile.secret, false,
                        "aws_secret_access_key", err));
    return credentials_put(set->token, sizeof(set->token), profile.token, true, "aws_session_token",
                           err);
}

static void choose_web_identity(const struct credentials_config *config, const char *token_file,
                                const char *role_arn, const char *session,
                                struct credentials_source *source)
{
    const char *url = profile_variable("AWS_ENDPOINT_URL_STS");

    source->fetch = credentials_from_web_identity;
    source->is_renewable = true;
    source->token_file = copy_text(source, token_file);
    source->role_arn = copy_text(source, role_arn);
    source->role_session_name = copy_text(source, session);
    source->url =
        url != NULL
            ? copy_text(source, url)
            : check_text(source, arena_printf(&source->arena, "https://sts.%s.amazonaws.com%s/",
                                              config->region,
                                              strncmp(config->region, "cn-", 3) == 0 ? ".cn" : ""));
    source->origin =
        check_text(source, arena_printf(&source->arena, "the web identity in '%s' (role %s)",
                                        token_file, role_arn));
}

static bool choose_environment(const struct credentials_config *config,
                               struct credentials_source *source)
{
    const char *token_file = profile_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role_arn = profile_variable("AWS_ROLE_ARN");

    if (config->profile_first)
        return false;
    if (profile_variable("AWS_ACCESS_KEY_ID") != NULL ||
        profile_variable("AWS_SECRET_ACCESS_KEY") != NULL) {
        source->fetch = credentials_from_environment;
        source->origin = "the environment";
        return true;
    }
    if (token_file == NULL || role_arn == NULL)
        return false;
    choose_web_identity(config, token_file, role_arn, profile_variable("AWS_ROLE_SESSION_NAME"),
                        source);
    return true;
}

static bool choose_profile(const struct credentials_config *config,
                           struct credentials_source *source)
{
    const struct profile *p = config->profile;

    if (p->access_key != NULL) {
        source->fetch = credentials_from_profile;
        source->is_renewable = true;
        source->profile = p->is_chosen ? copy_text(source, p->name) : NULL;
        source->origin = check_text(source, arena_printf(&source->arena, "profile '%s' in '%s'",
                                                         p->name, p->credentials_path));
        return true;
    }
    if (p->web_identity_token_file != NULL && p->role_arn != NULL) {
        choose_web_identity(config, p->web_identity_token_file, p->role_arn, p->role_session_name,
                            source);
        return true;
    }
    if (p->credential_process == NULL)
        return false;
    source->fetch = credentials_from_process;
    source->is_renewable = true;
    source->process = copy_text(source, p->credential_process);
    source->origin = check_text(source, arena_printf(&source->arena,
                                                     "credential_process of profile '%s' in '%s'",
                                                     p->name, p->config_path));
    return true;
}

static bool choose_container(struct credentials_source *source)
{
    const char *full = profile_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *relative = profile_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");

    if (full == NULL && relative == NULL)
        return false;
    source->fetch = credentials_from_container;
    source->is_renewable = true;
    source->url =
        relative != NULL
            ? check_text(source, arena_printf(&source->arena, CONTAINER_SERVICE "%s", relative))
            : copy_text(source, full);
    source->token_file =
        copy_text(source, profile_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
    source->token = copy_text(source, profile_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    source->origin = "the container's service";
    return true;
}

static bool machine_is_disabled(void)
{
    const char *disabled = profile_variable("AWS_EC2_METADATA_DISABLED");

    return disabled != NULL && strcasecmp(disabled, "true") == 0;
}

static void choose_machine(struct credentials_source *source)
{
    const char *url = profile_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *chosen = url != NULL ? url : MACHINE_SERVICE;
    size_t length = strlen(chosen);

    source->fetch = credentials_from_machine;
    source->is_renewable = true;
    if (length > 0 && chosen[length - 1] == '/')
        length--;
    source->url = check_text(source, arena_strndup(&source->arena, chosen, length));
    source->origin = "the machine's service";
}

void credentials_explain_none(const struct credentials_config *config, struct sidestep_error *err)
{
    struct sidestep_error why = {0};

    if (err != NULL && err->status != SIDESTEP_EPERM)
        return;
    error_copy(&why, err != NULL ? err : &why);
    (void)FAIL(err, SIDESTEP_EPERM,
               "there are no credentials: not in the environment (AWS_ACCESS_KEY_ID, "
               "AWS_WEB_IDENTITY_TOKEN_FILE, AWS_CONTAINER_CREDENTIALS_FULL_URI), not for profile "
               "'%s' in '%s' and '%s', and not from the machine's service (%.200s)",
               config->profile->name, config->profile->credentials_path,
               config->profile->config_path, why.message);
}

/* Refuse settings that AWS's tools support and sidestep does not. */
static enum sidestep_status refuse_profile(const struct profile *profile,
                                           struct sidestep_error *err)
{
    if (profile->role_arn == NULL && profile->sso == NULL)
        return SIDESTEP_OK;
    return FAIL(
        err, SIDESTEP_EUNSUPPORTED,
        "profile '%s' in '%s' needs %s, which sidestep does not support: use a profile with "
        "\"credential_process = aws configure export-credentials --profile %s --format "
        "process\"",
        profile->name, profile->config_path,
        profile->role_arn != NULL ? "to assume a role" : "a single sign-on", profile->name);
}

enum sidestep_status credentials_choose(const struct credentials_config *config,
                                        struct credentials_source *source,
                                        struct sidestep_error *err)
{
    source->transport = config->transport;
    if (!choose_environment(config, source) && !choose_profile(config, source)) {
        TRY(refuse_profile(config->profile, err));
        if (!choose_container(source)) {
            if (machine_is_disabled()) {
                (void)FAIL(err, SIDESTEP_EPERM, "AWS_EC2_METADATA_DISABLED is set");
                credentials_explain_none(config, err);
                return SIDESTEP_EPERM;
            }
            choose_machine(source);
        }
    }
    return source->is_short_of_memory ? FAIL_NOMEM(err, 4096) : SIDESTEP_OK;
}
