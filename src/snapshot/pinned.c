/* SPDX-License-Identifier: BSD-3-Clause */
/* pinned.c -- asks CUDA's driver about registered memory; see pinned.h. */
#include "snapshot/pinned.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/base.h"

#define CU_POINTER_ATTRIBUTE_MEMORY_TYPE 2
#define CU_SUCCESS 0 /* only for memory that the driver knows; other memory gives an error */

pinned_query_function *pinned_find_query(void)
{
    pinned_query_function *query = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

    if (driver == NULL)
        return NULL;
    void *symbol = dlsym(driver, "cuPointerGetAttribute");
    memcpy(&query, &symbol, sizeof(query));
    (void)dlclose(driver); /* the program still has it open */
    return query;
}

bool pinned_is_registered(pinned_query_function *query, uint64_t address)
{
    unsigned type = 0;

    if (fault_hit("cuda.pinned"))
        return true;
    return query != NULL && query(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CU_SUCCESS;
}
