/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.h -- skips tests that want process_vm_readv(2) of this process itself, where a sandbox or
 * an emulator refuses it. */
#ifndef SUPPORT_READER_H
#define SUPPORT_READER_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/memory_reader.h"
#include "support/unit.h"

static inline void need_reader(void)
{
    if (memory_reader_works())
        return;
    print_message("process_vm_readv of this process is refused: %s\n", strerror(errno));
    skip();
}

/* A child of fork() must not call the driver of devices: it asks whether it can read its memory. */
static inline void need_reader_beside_devices(void)
{
    if (getenv("SIDESTEP_TEST_CUDA") != NULL)
        need_reader();
}

#endif
