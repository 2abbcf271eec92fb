/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object.h -- S3-compatible object stores: a client, and a struct store that uses it.
 *
 * An object store keeps whole objects under keys. It has no rename, no lock and no directory, and
 * the answer to a request that was carried out can get lost. This folder hides the requests, not
 * these facts: the third form of the commit protocol (commit/commit.h) handles them.
 *
 * In: a URL "s3://BUCKET/PREFIX", the environment and profile files that AWS tools read, and an
 * HTTP server that is not trusted: the size of every answer is limited, and its content checked.
 * Out: client.h has one function per request; object_store.h has a struct store, so that code that
 * reads files also reads objects.
 *
 * Who owns what: a client owns its connections and credentials; a store owns its client; the
 * caller that opens a handle closes it.
 *
 * Threads: every function may be called by many threads at once, and blocks until its request is
 * answered. One driver thread per client moves the bytes of all requests (libcurl's multi
 * interface), so connections are shared. Callers build, sign and hash their own requests.
 */
#ifndef OBJECT_OBJECT_H
#define OBJECT_OBJECT_H

#include "object/client.h"
#include "object/object_path.h"
#include "object/object_store.h"
#include "object/object_url.h"

#endif
