/* SPDX-License-Identifier: BSD-3-Clause */
/* root.c -- see root.h: chooses the operations of a root. */
#include "root/root.h"

#include "base/base.h"

const struct root_ops *root_of(const struct store *store)
{
    static const struct root_ops *const roots[STORE_LAYOUTS] = {
        [STORE_OF_DIRECTORIES] = &root_directory, [STORE_OF_KEYS] = &root_bucket};

    return roots[store->ops->layout];
}
