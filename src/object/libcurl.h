/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcurl.h -- the functions of libcurl, which is loaded when a process opens its first object
 * store. It loads about thirty other libraries: with them a command takes 8 ms to start, without
 * 2 ms, and a training job that saves to a disk needs none of them.
 */
#ifndef OBJECT_LIBCURL_H
#define OBJECT_LIBCURL_H

/* The library that is loaded may be older than these headers: only options of 7.68 are used, some
 * of which have newer names. */
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

#include "base/base.h"
#include "object/beside.h"

#define LIBCURL_FUNCTIONS(X)                                                                       \
    X(easy_cleanup)                                                                                \
    X(easy_getinfo)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_strerror)                                                                               \
    X(global_init)                                                                                 \
    X(multi_add_handle)                                                                            \
    X(multi_cleanup)                                                                               \
    X(multi_info_read)                                                                             \
    X(multi_init)                                                                                  \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_remove_handle)                                                                         \
    X(multi_setopt)                                                                                \
    X(multi_wakeup)                                                                                \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(version_info)

struct libcurl {
#define LIBCURL_MEMBER(name) __typeof__(curl_##name) *name;
    LIBCURL_FUNCTIONS(LIBCURL_MEMBER)
#undef LIBCURL_MEMBER
};

/*
 * Load libcurl, and initialise it the first time; it stays loaded, as other code may use it: the
 * system's, else the one in the Python package pycurl, if that is installed beside this one.  Any
 * thread may call this.  EUNSUPPORTED: there is none, or it is too old.  ENOMEM: its initialisation
 * failed.
 */
enum sidestep_status libcurl_load(struct libcurl *functions, struct sidestep_error *err);

/* The certificates to trust, if those that libcurl was built for are not here.  NULL: they are. */
const char *libcurl_certificates(const struct libcurl *functions, char path[BESIDE_PATH_BYTES]);

#endif
