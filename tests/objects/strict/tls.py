# SPDX-License-Identifier: BSD-3-Clause
"""A certificate authority of one run, and the certificate of the server, by the openssl program."""

import os
import ssl
import subprocess

DAYS = "2"


def _openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")


def make(folder, names):
    """Writes ca.pem and server.pem for these host names; returns (CA file, SSL context)."""

    def path(name):
        return os.path.join(folder, name)

    alternatives = ",".join(["IP:127.0.0.1"] + [f"DNS:{name}" for name in names])
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(
        "req",
        "-x509",
        *curve,
        "-days",
        DAYS,
        "-subj",
        "/CN=sidestep test CA",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
        "-keyout",
        path("ca.key"),
        "-out",
        path("ca.pem"),
    )
    _openssl(
        "req",
        *curve,
        "-subj",
        "/CN=localhost",
        "-keyout",
        path("server.key"),
        "-out",
        path("server.csr"),
    )
    with open(path("server.ext"), "w", encoding="ascii") as file:
        file.write(f"subjectAltName={alternatives}\nextendedKeyUsage=serverAuth\n")
    _openssl(
        "x509",
        "-req",
        "-in",
        path("server.csr"),
        "-CA",
        path("ca.pem"),
        "-CAkey",
        path("ca.key"),
        "-CAcreateserial",
        "-days",
        DAYS,
        "-extfile",
        path("server.ext"),
        "-out",
        path("server.pem"),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path("server.pem"), path("server.key"))
    return path("ca.pem"), context
