/* SPDX-License-Identifier: BSD-3-Clause */
/* verify_extras.c -- checks the extra files of a checkpoint against their hashes; see
 * verify_findings.h. */
#include "base/base.h"
#include "verify/verify.h"

enum sidestep_status verify_extras(const struct reader *reader, struct verify_findings *findings,
                                   struct sidestep_error *err)
{
    for (size_t i = 0; i < reader->manifest.extra_count; i++) {
        const struct extra_file *file = &reader->manifest.extras[i];
        struct sidestep_error why = {.rank = -1};
        const char *kind;
        enum sidestep_status status = reader_check_extra(reader, file, true, &kind, &why);
        if (status == SIDESTEP_ENOMEM)
            return error_copy(err, &why);
        if (status == SIDESTEP_OK)
            findings->checked_bytes += file->bytes;
        else
            TRY(verify_findings_add(findings, file->name, NULL,
                                    kind != NULL ? kind : verify_kind(status), why.message, err));
    }
    return SIDESTEP_OK;
}
