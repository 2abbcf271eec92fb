# SPDX-License-Identifier: BSD-3-Clause
"""The control endpoint: JSON over HTTP, on a port of its own.

GET /_control answers the whole state.  POST /_control takes an object and does, in this order:
"clear": true, or a list of "log", "rules", "objects", "uploads", "late", "settings"
"settings": {...}   changes some
"rules": [...]      instead of all that there are;  "add": [...]  besides them
"put": [{"bucket", "key", "text", "modified"}]   objects, past the protocol
"flip": [{"bucket", "key", "offset"}]            damages an object at rest
"credentials": [{"access_key", "secret_key", "token"}]   more that are known
"listen": false     connections are refused, until "listen": true
"land": true        late deeds are done now;  "release": true  what stalls goes on
and answers the state: number, settings, rules, late, objects, uploads, and the log from the
request "log" on (default: all).
"""

import http.server
import json
import threading

from .bodies import MemoryBody, flipped
from .rules import Rule
from .service import SETTINGS
from .signature import Credential
from .store import Object

BYTES = 64 << 20


def clear(service, what):
    what = ("log", "rules", "objects", "uploads", "late", "settings") if what is True else what
    for name in what:
        if name == "log":
            service.forget_log()
        elif name == "rules":
            service.rules.rules = []
        elif name == "late":
            service.late = []
        elif name == "settings":
            service.change({key: default for key, (default, _) in SETTINGS.items()})
        elif name in ("objects", "uploads"):
            for bucket in service.buckets.values():
                getattr(bucket, name).clear()
                bucket.ghosts.clear()
        else:
            raise ValueError(f"nothing to clear is called {name!r}")


def put(service, bucket, key, text="", modified=None):
    body = text.encode()
    thing = Object(MemoryBody(body), '"0"', service.now() if modified is None else modified)
    service.buckets[bucket].put(key, thing, 0)


def flip(service, bucket, key, offset=None):
    thing = service.buckets[bucket].objects[key]
    thing.body = flipped(thing.body, thing.size // 2 if offset is None else offset)


def obey(service, order):
    known = {
        "clear",
        "settings",
        "rules",
        "add",
        "put",
        "flip",
        "credentials",
        "listen",
        "land",
        "release",
        "log",
    }
    for name in set(order) - known:
        raise ValueError(f"no order is called {name!r}")
    rules = [Rule(item) for item in order.get("rules", []) + order.get("add", [])]
    with service.lock:
        clear(service, order.get("clear", ()))
        service.change(order.get("settings", {}))
        if "rules" in order:
            service.rules.rules = []
        service.rules.rules += rules
        for item in order.get("put", ()):
            put(service, **item)
        for item in order.get("flip", ()):
            flip(service, **item)
        for item in order.get("credentials", ()):
            credential = Credential(**item)
            service.credentials[credential.access_key] = credential
        if "listen" in order:
            for listener in service.listeners:
                listener.open() if order["listen"] else listener.close()
        if order.get("land"):
            service.land()
    if order.get("release"):
        released, service.released = service.released, threading.Event()
        released.set()


def report(service, log_from=0):
    with service.lock:
        objects, uploads = [], []
        for bucket in service.buckets.values():
            for key, thing in sorted(bucket.objects.items()):
                objects.append(
                    {
                        "bucket": bucket.name,
                        "key": key,
                        "size": thing.size,
                        "tag": thing.tag,
                        "modified": thing.modified,
                        "checksums": thing.checksums,
                    }
                )
            for upload in bucket.uploads.values():
                uploads.append(
                    {
                        "bucket": bucket.name,
                        "key": upload.key,
                        "upload": upload.name,
                        "parts": sorted(upload.parts),
                    }
                )
        return json.dumps(
            {
                "number": service.number,
                "settings": service.settings,
                "rules": service.rules.report(),
                "objects": objects,
                "uploads": uploads,
                "late": [request.number for _, request in service.late],
                "log": [entry for entry in service.log if entry["number"] >= log_from],
            }
        ).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    service = None  # of a subclass
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, report(self.service))

    def do_POST(self):
        data = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), BYTES))
        try:
            order = json.loads(data or b"{}")
            obey(self.service, order)
            self.answer(200, report(self.service, order.get("log", 0)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.answer(400, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())

    def log_message(self, format, *args):
        pass


def start(service, port):
    """Serves on a thread; returns the server."""
    handler = type("OwnHandler", (Handler,), {"service": service})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server
