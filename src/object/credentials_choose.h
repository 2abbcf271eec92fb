/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_choose.h -- which of the places that AWS tools know has credentials; for
 * credentials.c alone. */
#ifndef OBJECT_CREDENTIALS_CHOOSE_H
#define OBJECT_CREDENTIALS_CHOOSE_H

#include "object/credentials_source.h"

/* The first place that says it has some.  Asks nobody. */
enum sidestep_status credentials_choose(const struct credentials_config *config,
                                        struct credentials_source *source,
                                        struct sidestep_error *err);
/* The last place had none either: say where we looked, and what to do. */
void credentials_explain_none(const struct credentials_config *config, struct sidestep_error *err);

#endif
