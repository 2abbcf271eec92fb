/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * profile.h -- the two files in which AWS tools keep settings, read for one profile.
 * Source: https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
 */
#ifndef OBJECT_PROFILE_H
#define OBJECT_PROFILE_H

#include "base/base.h"

#define PROFILE_MAX_FILE_BYTES ((size_t)1 << 20)

/* Texts of one profile; NULL: not set.  They lie in ${arena}, which profile_release() wipes. */
struct profile {
    const char *name;
    bool is_chosen; /* by the caller or AWS_PROFILE: then it has to be there */
    bool is_found;
    const char *credentials_path;
    const char *config_path;
    const char *access_key, *secret, *token;
    const char *region;
    const char *endpoint_url;
    const char *ca_bundle;
    const char *credential_process;
    const char *role_arn, *web_identity_token_file, *role_session_name;
    const char *sso; /* a setting of it, if there is one: we cannot do that */
    struct arena arena;
};

/* Read AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config).  A
 * file that is not there is empty.  ${name} NULL: AWS_PROFILE, or "default".  EINVAL: a chosen
 * profile is in neither file, or a file is not of that format; EPERM, EIO: a file cannot be read.
 */
enum sidestep_status profile_read(const char *name, struct profile *profile,
                                  struct sidestep_error *err);
void profile_release(struct profile *profile);
#define OWNED_PROFILE __attribute__((cleanup(profile_release))) struct profile

/* Read all of a small text file into ${to}, with a NUL behind it; ENOTFOUND: it is not there. */
enum sidestep_status profile_read_file(const char *path, size_t most, struct buffer *to,
                                       struct sidestep_error *err);
/* Take all text of one file, for its profile; exported for tests. */
enum sidestep_status profile_parse(struct profile *profile, char *text, bool is_config,
                                   struct sidestep_error *err);
/* The variable's value; NULL also if it is empty. */
const char *profile_variable(const char *name);
/* The number in a variable; 0: it is not set. EINVAL: it is no number from ${least} to ${most}. */
enum sidestep_status profile_number(const char *name, uint64_t least, uint64_t most,
                                    uint64_t *number, struct sidestep_error *err);

#endif
