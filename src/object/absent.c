/* SPDX-License-Identifier: BSD-3-Clause */
/* absent.c -- replaces transport.c, transport_easy.c and xml.c in a build without libcurl or Expat:
 * no client can be created. */
#include "object/transport.h"
#include "object/xml.h"

enum sidestep_status transport_probe(struct sidestep_error *err)
{
    return FAIL(err, SIDESTEP_EUNSUPPORTED,
                "this sidestep was built without object stores: build it again with the "
                "development files of libcurl and expat (on Debian: libcurl4-openssl-dev, "
                "libexpat1-dev)");
}

enum sidestep_status transport_new(const struct transport_config *config, struct transport **out,
                                   struct sidestep_error *err)
{
    (void)config;
    *out = NULL;
    return transport_probe(err);
}

void transport_free(struct transport *transport)
{
    (void)transport;
}

enum transport_outcome transport_perform(struct transport *transport, struct transport_call *call)
{
    (void)transport;
    (void)call;
    return TRANSPORT_IMPOSSIBLE;
}

enum sidestep_status xml_read(const void *bytes, size_t length, struct xml_reader *reader,
                              struct sidestep_error *err)
{
    (void)bytes;
    (void)length;
    (void)reader;
    return FAIL(err, SIDESTEP_EUNSUPPORTED, "this sidestep was built without Expat");
}
