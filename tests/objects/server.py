#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""server.py --bucket B --access-key A --secret-key S -- an S3 server for tests, strict and cruel.

It checks every signature, keeps the rules of the service, and meets requests with faults when it
is told to: by --rule (strict/rules.py, strict/faults.py) and --set (strict/service.py), or by its
control endpoint (strict/control.py).  It prints one line of JSON: endpoint, tls_endpoint, control,
ca_file and more, and serves until it is ended, or with --until-eof until its standard input ends.
It needs Python 3 and the openssl program, nothing else.
"""

import argparse
import json
import os
import shutil
import signal
import tempfile
import threading

from strict import control, tls
from strict.listener import Listener
from strict.rules import Rule
from strict.service import Service
from strict.signature import Credential


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls-port", type=int, default=0)
    parser.add_argument("--control-port", type=int, default=0)
    parser.add_argument("--no-tls", action="store_true", help="plain http only")
    parser.add_argument("--bucket", action="append", required=True)
    parser.add_argument("--access-key", default="test-key")
    parser.add_argument("--secret-key", default="test-secret")
    parser.add_argument("--session-token", help="the credential is one that needs a token")
    parser.add_argument(
        "--credential", action="append", default=[], metavar="KEY:SECRET[:TOKEN]", help="one more"
    )
    parser.add_argument("--domain", default="localhost", help="BUCKET.DOMAIN is a host, too")
    parser.add_argument("--directory", help="keep bodies there, not in memory")
    parser.add_argument(
        "--rule", action="append", default=[], type=json.loads, metavar="JSON", help="a fault"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a setting")
    parser.add_argument("--until-eof", action="store_true")
    return parser.parse_args()


def value_of(text):
    """JSON, or a word as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def make_service(arguments, folder):
    credentials = [Credential(arguments.access_key, arguments.secret_key, arguments.session_token)]
    credentials += [Credential(*text.split(":", 2)) for text in arguments.credential]
    service = Service(arguments.bucket, credentials, arguments.domain, folder)
    pairs = [text.partition("=") for text in arguments.set]
    service.change(
        {
            name: value if name in ("conditions", "region") else value_of(value)
            for name, _, value in pairs
        }
    )
    service.rules.rules = [Rule(item) for item in arguments.rule]
    return service


def end_at_eof():
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def run(arguments, folder):
    bodies = tempfile.mkdtemp(dir=arguments.directory) if arguments.directory else None
    service = make_service(arguments, bodies)
    told = {
        "bucket": arguments.bucket[0],
        "region": service.settings["region"],
        "access_key": arguments.access_key,
        "secret_key": arguments.secret_key,
        "session_token": arguments.session_token,
        "tls_endpoint": None,
        "ca_file": None,
    }
    listener = Listener(service, arguments.port)
    service.listeners.append(listener)
    told["endpoint"] = f"http://127.0.0.1:{listener.port}"
    if not arguments.no_tls:
        names = [arguments.domain, *(f"{name}.{arguments.domain}" for name in arguments.bucket)]
        told["ca_file"], context = tls.make(folder, names)
        listener = Listener(service, arguments.tls_port, context)
        service.listeners.append(listener)
        told["tls_endpoint"] = f"https://{arguments.domain}:{listener.port}"
    server = control.start(service, arguments.control_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    told["control"] = f"http://127.0.0.1:{server.server_address[1]}/_control"
    print(json.dumps(told), flush=True)
    if arguments.until_eof:
        threading.Thread(target=end_at_eof, daemon=True).start()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    if bodies:
        shutil.rmtree(bodies, ignore_errors=True)


def main():
    arguments = parse_arguments()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="sidestep-s3-") as folder:
        run(arguments, folder)


if __name__ == "__main__":
    main()
