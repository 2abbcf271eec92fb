/* SPDX-License-Identifier: BSD-3-Clause */
/* root.c -- chooses the operations of a root; see root.h. */
#include "root/root.h"

#include "base/base.h"

const struct root_ops *root_of(const struct store *store)
{
    static const struct root_ops *const roots[STORE_LAYOUTS] = {
        [STORE_OF_DIRECTORIES] = &root_directory, [STORE_OF_KEYS] = &root_bucket};

    return roots[store->ops->layout];
}
