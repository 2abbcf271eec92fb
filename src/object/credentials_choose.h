/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_choose.h -- chooses the source of credentials; for credentials.c only. */
#ifndef OBJECT_CREDENTIALS_CHOOSE_H
#define OBJECT_CREDENTIALS_CHOOSE_H

#include "object/credentials_source.h"

/* Choose the first source that is configured.  Sends no request. */
enum sidestep_status credentials_choose(const struct credentials_config *config,
                                        struct credentials_source *source,
                                        struct sidestep_error *err);
/* The last source had none either: replace the error by one that lists all sources. */
void credentials_explain_none(const struct credentials_config *config, struct sidestep_error *err);

#endif
