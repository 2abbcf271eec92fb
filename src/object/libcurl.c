/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl.c -- loads libcurl. */
#include "object/libcurl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "object/beside.h"

#define OLDEST 0x074400 /* the oldest version that has every function and option that is used */

/* The system's; Debian has two builds of it, with OpenSSL and with GnuTLS. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

/* The state of libcurl in this process: set up once and never freed, as other code may use it. */
static pthread_once_t global_once = PTHREAD_ONCE_INIT;
static CURLcode global_code;

/* Why the last libcurl that was tried cannot be used. */
struct problem {
    char text[200];
};

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

static bool try_library(const char *name, struct libcurl *functions, struct problem *problem)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        const char *why = dlerror();
        snprintf(problem->text, sizeof(problem->text), "%s", why != NULL ? why : name);
        return false;
    }
    const char *missing = find_functions(library, functions);
    const curl_version_info_data *version =
        missing == NULL ? functions->version_info(CURLVERSION_NOW) : NULL;
    if (version != NULL && version->version_num >= OLDEST)
        return true; /* it stays loaded */
    if (version == NULL)
        snprintf(problem->text, sizeof(problem->text), "%.100s has no %s", name, missing);
    else
        snprintf(problem->text, sizeof(problem->text), "%.100s is version %.20s", name,
                 version->version);
    (void)dlclose(library);
    return false;
}

static bool find_library(struct libcurl *functions, struct problem *problem)
{
    char path[BESIDE_PATH_BYTES];

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (try_library(names[i], functions, problem))
            return true;
    }
    return beside_find("pycurl.libs", "libcurl-", path) && try_library(path, functions, problem);
}

static void init_global(void)
{
    struct libcurl functions;
    struct problem problem;

    global_code = CURLE_FAILED_INIT;
    if (find_library(&functions, &problem))
        global_code = functions.global_init(CURL_GLOBAL_ALL);
}

enum sidestep_status libcurl_load(struct libcurl *functions, struct sidestep_error *err)
{
    struct problem problem = {"no reason was given"};

    if (fault_hit("libcurl") || !find_library(functions, &problem))
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "object stores are reached with libcurl 7.68 or later, which cannot be loaded "
                    "(%s); install the system's (libcurl4 on Debian and Ubuntu), or "
                    "'pip install pycurl' beside sidestep, which has one inside",
                    problem.text);
    (void)pthread_once(&global_once, init_global);
    if (global_code != CURLE_OK)
        return FAIL(err, SIDESTEP_ENOMEM, "cannot start libcurl: %s",
                    functions->easy_strerror(global_code));
    return SIDESTEP_OK;
}

const char *libcurl_certificates(const struct libcurl *functions, char path[BESIDE_PATH_BYTES])
{
    const curl_version_info_data *version = functions->version_info(CURLVERSION_NOW);

    if (version->age < CURLVERSION_SEVENTH) /* 7.69 does not say where it looks */
        return NULL;
    return beside_certificates(version->cainfo, version->capath, path);
}
