/* SPDX-License-Identifier: BSD-3-Clause */
/* refresh_names.c -- changes a directory, so that the host drops its cached names. */
#include "commit/refresh_names.h"

#include "codec/codec.h"
#include "format/format.h"

#define REFRESH_NS UINT64_C(500000000)
#define MIN_LOOKS 3u /* one before the first refresh, and two after it */

void refresh_names(struct store_dir *dir)
{
    uint8_t id[SAVE_ID_BYTES];
    char hex[SAVE_ID_HEX], name[FILE_NAME_BYTES];
    OWNED_FILE *file = NULL;

    if (random_bytes(id, sizeof(id), NULL) != SIDESTEP_OK)
        return;
    hash_to_hex(id, sizeof(id), hex);
    file_name_format(FILE_NAME_OUTCOME, hex, 0, 0, name);
    if (store_file_create(dir, name, 0, &file, NULL) == SIDESTEP_OK)
        (void)store_unlink(dir, name, NULL);
}

bool refresh_wait_again(struct refresh_wait *wait, struct store_dir *dir)
{
    uint64_t now = clock_now(wait->clock);

    if (wait->looks++ == 0)
        wait->began_ns = now;
    if (now - wait->began_ns > wait->limit_ns && wait->looks >= MIN_LOOKS)
        return false;
    if (dir != NULL && (wait->refreshed_ns == 0 || now - wait->refreshed_ns > REFRESH_NS)) {
        refresh_names(dir);
        wait->refreshed_ns = now;
    }
    backoff_sleep(&wait->backoff, wait->clock);
    return true;
}
