/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl.c -- loads libcurl. */
#include "object/libcurl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* The oldest version that has every function and option that is used. */
#define OLDEST 0x074400
#define TOO_OLD "install version 7.68 or later"

/* Debian's two builds, with OpenSSL and with GnuTLS. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

/* The state of libcurl in this process: set up once and never freed, as other code may use it. */
static pthread_once_t global_once = PTHREAD_ONCE_INIT;
static CURLcode global_code;

static void *open_library(void)
{
    void *library = NULL;

    for (size_t i = 0; i < ARRAY_LENGTH(names) && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* Returns the name of the first missing function; NULL: all were found. */
static const char *find_functions(void *library, struct libcurl *functions)
{
    void *symbol;

#define LIBCURL_FIND(name)                                                                         \
    symbol = dlsym(library, "curl_" #name);                                                        \
    if (symbol == NULL)                                                                            \
        return "curl_" #name;                                                                      \
    memcpy(&functions->name, &symbol, sizeof(functions->name));
    LIBCURL_FUNCTIONS(LIBCURL_FIND)
#undef LIBCURL_FIND
    return NULL;
}

static void init_global(void)
{
    struct libcurl functions;
    void *library = open_library();

    global_code = CURLE_FAILED_INIT;
    if (library != NULL && find_functions(library, &functions) == NULL)
        global_code = functions.global_init(CURL_GLOBAL_ALL);
}

enum sidestep_status libcurl_load(struct libcurl *functions, struct sidestep_error *err)
{
    void *library = fault_hit("libcurl") ? NULL : open_library();

    if (library == NULL) {
        const char *why = dlerror();
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "object stores are reached with libcurl, which cannot be loaded (%s); install "
                    "Debian's package libcurl4",
                    why != NULL ? why : "no reason was given");
    }
    const char *missing = find_functions(library, functions);
    if (missing != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "the installed libcurl has no %s: " TOO_OLD,
                    missing);
    const curl_version_info_data *version = functions->version_info(CURLVERSION_NOW);
    if (version->version_num < OLDEST)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "the installed libcurl is version %s: " TOO_OLD,
                    version->version);
    (void)pthread_once(&global_once, init_global);
    if (global_code != CURLE_OK)
        return FAIL(err, SIDESTEP_ENOMEM, "cannot start libcurl: %s",
                    functions->easy_strerror(global_code));
    return SIDESTEP_OK;
}
