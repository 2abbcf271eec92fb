# SPDX-License-Identifier: BSD-3-Clause
"""One connection: requests come, faults strike, answers go out."""

import ssl
import time

from . import payload
from .answers import send_answer
from .errors import S3Error
from .faults import Fault
from .objects import http_date
from .router import check_names, route
from .wire import Cut, Gone, Request, Wire, read_request, receive_body

HANDSHAKE_SECONDS = 10


class Conversation:
    """Faults use its service, wire, request, keep, drain, hang_up, end(), wait(), request_id()."""

    def __init__(self, service, sock, tls):
        self.service = service
        self.sock = sock
        self.tls = tls  # an SSL context, or None
        self.wire = None
        self.request = None
        self.fault = Fault()
        self.keep = self.drain = True
        self.hang_up = None  # how the connection ends after the answer

    def run(self):
        try:
            if self.tls:
                self.sock.settimeout(HANDSHAKE_SECONDS)
                self.sock = self.tls.wrap_socket(self.sock, server_side=True)
                self.sock.settimeout(None)
            self.wire = Wire(self.sock)
            while self.exchange():
                pass
        except (Gone, OSError, ssl.SSLError):
            pass
        finally:
            self.sock.close()

    def request_id(self):
        return f"{self.request.number:016X}"

    def wait(self, seconds):
        """A pause that ends early when all stalls are released."""
        if seconds:
            self.service.released.wait(seconds)

    def end(self, how, seconds=None):
        """Ends the connection as a fault says."""
        if how == "stall":
            released = self.service.released
            end = None if seconds is None else time.monotonic() + seconds
            while not released.is_set() and not self.wire.is_gone(20):
                if end is not None and time.monotonic() >= end:
                    break
        if how == "close":
            self.wire.half_close()
        else:
            self.wire.reset()

    def exchange(self):
        """One request and its answer; says whether there may be another."""
        self.wire.begin()
        self.keep = self.drain = True
        self.hang_up = None
        self.fault = Fault()
        try:
            self.request = read_request(self.wire, self.tls is not None)
        except S3Error as error:
            return self.refuse_head(error)
        if self.request is None:
            return False
        self.service.begin(self.request)
        try:
            answer = self.respond()
            answer = self.fault.after(self, answer)
            self.keep = self.keep and self.request.keeps_connection()
            self.send(answer)
        except Cut:
            self.fault.on_cut(self)
            return False
        finally:
            self.close_entry()
        if self.hang_up or not self.keep:
            self.end(self.hang_up or "close")
            return False
        return True

    def refuse_head(self, error):
        self.request = Request("GET", "/", [], self.tls is not None)
        self.service.begin(self.request)
        self.keep = False
        self.send(self.service.refuse(self.request, error))
        self.close_entry()
        self.wire.half_close()
        return False

    def close_entry(self):
        """The last of a request: from here on, this connection does not hold its body."""
        with self.service.lock:
            self.request.entry.update(
                request_bytes=self.wire.received, answer_bytes=self.wire.sent, ended=True
            )
        self.request = None

    def send(self, answer):
        answer.headers += [
            ("x-amz-request-id", self.request_id()),
            ("x-amz-id-2", "strict"),
            ("Server", "strict"),
            ("Date", http_date(self.service.now())),
        ]
        if answer.count and answer.announced is None and not self.keep:
            answer.headers.append(("Connection", "close"))
        self.request.entry.update(status=answer.status, code=answer.code)
        self.wire.sent = 0  # a 100 before it does not count
        send_answer(self.wire, answer, self.request.method, self.wait)

    def respond(self):
        """The answer, before the last of the faults has seen it."""
        request, service = self.request, self.service
        try:
            self.find_operation()
            self.fault.first(self)
            check_names(request)
            service.check_signature(request)
            payload.check_mode(request, service.settings["checksums"])
            request.digests = payload.digests_of(request, service.settings)
            answer = self.fault.before(self)
        except S3Error as error:
            answer = service.refuse(request, error)
        if answer is not None:
            self.skip_body()
            return answer
        return self.respond_with_body()

    def find_operation(self):
        request, service = self.request, self.service
        route(request, service.domain)
        with service.lock:
            request.entry.update(
                operation=request.operation, bucket=request.bucket, key=request.key
            )
            service.land(request.number)
            rule = service.rules.choose(request)
        if rule:
            self.fault = rule.fault
            request.entry["fault"] = rule.name

    def respond_with_body(self):
        request, service = self.request, self.service
        try:
            self.receive()
            self.fault.arrived(self)
            service.verify_body(request)
        except S3Error as error:
            return service.refuse(request, error)
        return self.fault.instead(self) or service.perform(request)

    def receive(self):
        request, service = self.request, self.service
        if (request.header("expect") or "").lower() == "100-continue":
            self.wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        decoded = request.header("x-amz-decoded-content-length")
        if request.method == "PUT" and request.length() is None and decoded is None:
            self.keep = False
            raise S3Error(
                "MissingContentLength", "You must provide the Content-Length HTTP header."
            )
        try:
            receive_body(
                self.wire,
                request,
                list(request.digests.values()),
                service.folder,
                service.settings["body_bytes"],
            )
        except S3Error:
            self.keep = False  # where the next request begins is not known
            raise

    def skip_body(self):
        """An early answer: the body still comes, unless it waits for a 100 or goes unread."""
        waits = (self.request.header("expect") or "").lower() == "100-continue"
        if waits or not self.drain or self.request.header("transfer-encoding"):
            self.keep = False
            return
        left = self.request.length() or 0
        room = memoryview(bytearray(min(left, 1 << 18)))
        while left:
            left -= self.wire.read_into(room[:left])
