/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * profile.h -- reads the settings of one profile from the two files of AWS tools.
 * Source: https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
 */
#ifndef OBJECT_PROFILE_H
#define OBJECT_PROFILE_H

#include "base/base.h"

#define PROFILE_MAX_FILE_BYTES ((size_t)1 << 20)

/* Settings; NULL: not set.  They are in ${arena}; profile_release() wipes the secrets. */
struct profile {
    const char *name;
    bool is_chosen; /* by the caller or AWS_PROFILE, so it must exist */
    bool is_found;
    const char *credentials_path;
    const char *config_path;
    const char *access_key, *secret, *token;
    const char *region;
    const char *endpoint_url;
    const char *ca_bundle;
    const char *credential_process;
    const char *role_arn, *web_identity_token_file, *role_session_name;
    const char *payload_signing; /* "payload_signing_enabled" of the nested settings "s3" */
    const char *sso;             /* a setting of single sign-on, which sidestep does not support */
    struct arena arena;
};

/* Read AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config).  A
 * missing file counts as empty.  ${name} NULL: AWS_PROFILE, or "default".  EINVAL: a chosen
 * profile is in neither file, or a file is not of that format; EPERM, EIO: a file cannot be read.
 */
enum sidestep_status profile_read(const char *name, struct profile *profile,
                                  struct sidestep_error *err);
void profile_release(struct profile *profile);
#define OWNED_PROFILE __attribute__((cleanup(profile_release))) struct profile

/* Read a text file of at most ${most} bytes into ${to}, and append a NUL. */
enum sidestep_status profile_read_file(const char *path, size_t most, struct buffer *to,
                                       struct sidestep_error *err);
/* Take the settings from the text of one file; exported for tests. */
enum sidestep_status profile_parse(struct profile *profile, char *text, bool is_config,
                                   struct sidestep_error *err);
/* The value of an environment variable; NULL: not set, or empty. */
const char *profile_variable(const char *name);
/* The number in a variable; 0: not set. EINVAL: it is not a number from ${min} to ${max}. */
enum sidestep_status profile_number(const char *name, uint64_t min, uint64_t max, uint64_t *number,
                                    struct sidestep_error *err);

#endif
