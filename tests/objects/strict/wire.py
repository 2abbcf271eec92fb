# SPDX-License-Identifier: BSD-3-Clause
"""HTTP/1.1 on one socket: heads of requests as they came, bodies without copies, answers.

Signatures are over the raw request line, and faults cut in the middle of a byte stream.  So this
does not use http.server, which changes the one and hides the other.
"""

import contextlib
import select
import socket
import ssl
import struct
import urllib.parse

from .bodies import FileSink, MemorySink
from .errors import S3Error

HEAD_BYTES = 64 << 10
GONE = (ConnectionError, ssl.SSLError, TimeoutError, BrokenPipeError)


class Cut(Exception):
    """A fault ends the stream of bytes here."""


class Gone(Exception):
    """The client has closed the connection in the middle of a request."""


class Wire:
    """A socket, with a count of bytes each way, and a place where a fault cuts them."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = memoryview(bytearray(HEAD_BYTES))
        self.start = self.end = 0
        self.received = self.sent = 0
        self.receive_left = self.send_left = None  # bytes until a fault cuts, or None

    def begin(self):
        self.received = self.sent = 0
        self.receive_left = self.send_left = None

    def _receive(self, view):
        try:
            return self.sock.recv_into(view)
        except GONE:
            return 0

    def _fill(self):
        self.start, self.end = 0, self._receive(self.buffer)
        return self.end > 0

    def line(self):
        """The next line without its end; None at the end of the stream."""
        line = bytearray()
        while not line.endswith(b"\n"):
            if self.start == self.end and not self._fill():
                return None
            here = bytes(self.buffer[self.start : self.end])
            end = here.find(b"\n") + 1 or len(here)
            line += here[:end]
            self.start += end
            self.received += end
            if len(line) > HEAD_BYTES:
                raise S3Error("InvalidRequest", "A line of the request is too long.")
        return bytes(line.rstrip(b"\r\n"))

    def read_into(self, view):
        """At least one byte of a body."""
        if self.receive_left is not None:
            if self.receive_left == 0:
                raise Cut
            view = view[: self.receive_left]
        if self.start < self.end:
            count = min(len(view), self.end - self.start)
            view[:count] = self.buffer[self.start : self.start + count]
            self.start += count
        else:
            count = self._receive(view)
        if not count:
            raise Gone
        self.received += count
        if self.receive_left is not None:
            self.receive_left -= count
        return count

    def send(self, data):
        view = memoryview(data)
        if self.send_left is not None and len(view) >= self.send_left:
            self.sock.sendall(view[: self.send_left])
            self.sent += self.send_left
            raise Cut
        self.sock.sendall(view)
        self.sent += len(view)
        if self.send_left is not None:
            self.send_left -= len(view)

    def reset(self):
        """Ends the connection with RST."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def half_close(self):
        """Ends our direction with FIN, and waits until the client has seen it."""
        with contextlib.suppress(OSError, ValueError):
            socket.socket.shutdown(self.sock, socket.SHUT_WR)
            self.sock.settimeout(5)
            while self.sock.recv(HEAD_BYTES):
                pass
        self.sock.close()

    def is_gone(self, milliseconds):
        """Waits a while; says whether the client has closed."""
        poll = select.poll()
        poll.register(self.sock.fileno(), select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(milliseconds))


class Request:
    """What came, and what the path and the query say.  The operation is found by router.py."""

    def __init__(self, method, target, headers, secure):
        self.method = method
        self.target = target
        self.headers = headers  # [(lower-case name, value)], in order
        self.secure = secure
        self.raw_path, _, self.raw_query = target.partition("?")
        self.query = _parse_query(self.raw_query)  # [(name, value)]
        self.bucket = self.key = self.operation = None
        self.body = None
        self.digests = {}  # of the body, by algorithm: also "md5"; what has been asked for
        self.trailers = []

    def header(self, name, default=None):
        """All values of that name, joined."""
        values = [value for have, value in self.headers if have == name]
        return ",".join(values) if values else default

    def parameter(self, name, default=None):
        return next((value for have, value in self.query if have == name), default)

    def has(self, name):
        return any(have == name for have, _ in self.query)

    def length(self):
        """What Content-Length says; None without one."""
        text = self.header("content-length")
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 15:
            raise S3Error("InvalidArgument", "Content-Length is not a number.")
        return int(text)

    def keeps_connection(self):
        return (self.header("connection") or "").lower() != "close"


def decode(text, plus=False):
    """Percent-decoded; what is not UTF-8 afterwards is refused."""
    try:
        if plus:
            text = text.replace("+", " ")
        return urllib.parse.unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", "Couldn't parse the specified URI.") from None


def _parse_query(raw):
    pairs = []
    for item in raw.split("&") if raw else []:
        name, _, value = item.partition("=")
        pairs.append((decode(name, plus=True), decode(value, plus=True)))
    return pairs


def read_request(wire, secure):
    """The head of the next request; None where the client ended the connection between two."""
    first = wire.line()
    if first is None:
        return None
    headers = []
    while True:
        line = wire.line()
        if line is None:
            return None
        if not line:
            break
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or name != name.strip() or wire.received > HEAD_BYTES:
            raise S3Error("InvalidRequest", "The head of the request is malformed.")
        headers.append((name.lower(), value.strip(" \t")))
    words = first.decode("latin-1").split(" ")
    if len(words) != 3 or words[2] != "HTTP/1.1":
        raise S3Error("InvalidRequest", "The request line is malformed.")
    return Request(words[0], words[1], headers, secure)


class Chunks:
    """The bytes inside of HTTP's chunked framing."""

    def __init__(self, wire):
        self.wire = wire
        self.left = 0
        self.ended = False

    def _next(self):
        self.left = _chunk_size(self.wire)
        if self.left == 0:
            self.ended = True
            while self.wire.line():
                pass

    def read_into(self, view):
        """Like the wire's; 0 after the last chunk."""
        if self.left == 0 and not self.ended:
            self._next()
        if self.ended:
            return 0
        got = self.wire.read_into(view[: self.left])
        self.left -= got
        if self.left == 0 and self.wire.line() != b"":
            raise S3Error("IncompleteBody", "A chunk of the body has no end.")
        return got

    def line(self):
        """A line of what is framed in turn; short, so byte by byte."""
        line, room = bytearray(), memoryview(bytearray(1))
        while not line.endswith(b"\n") and len(line) < HEAD_BYTES and self.read_into(room):
            line += room
        return bytes(line.rstrip(b"\r\n"))

    def finish(self):
        """The end of the framing, of which nothing may be left."""
        if self.read_into(memoryview(bytearray(1))):
            raise S3Error("IncompleteBody", "The body goes on after its end.")


def _pump(source, sink, count, digests):
    while count:
        room = sink.buffer(count)
        got = source.read_into(room)
        if not got:
            raise S3Error("IncompleteBody", "The body ends too early.")
        for digest in digests:
            digest.update(room[:got])
        sink.filled(got)
        count -= got


def _chunk_size(source):
    line = source.line()
    try:
        return int((line or b"").split(b";")[0], 16)
    except ValueError:
        raise S3Error("IncompleteBody", "The framing of the body is malformed.") from None


def _pump_framed(source, sink, digests):
    """The framing of aws-chunked; returns the trailers after the last chunk."""
    while count := _chunk_size(source):
        _pump(source, sink, count, digests)
        if source.line() != b"":
            raise S3Error("IncompleteBody", "A chunk of the body has no end.")
    trailers = []
    while line := source.line():
        name, _, value = line.decode("latin-1").partition(":")
        trailers.append((name.lower().strip(), value.strip()))
    return trailers


def _decoded_length(request):
    text = request.header("x-amz-decoded-content-length") or ""
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise S3Error("MissingContentLength", "x-amz-decoded-content-length is missing.")
    return int(text)


def receive_body(wire, request, digests, folder, limit):
    """Reads the body of the request to request.body, and feeds each of digests with it."""
    chunked = (request.header("transfer-encoding") or "").lower() == "chunked"
    framed = "aws-chunked" in (request.header("content-encoding") or "")
    size = _decoded_length(request) if framed or chunked else request.length() or 0
    if size > limit:
        raise S3Error("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
    sink = FileSink(folder) if folder and size > 64 << 10 else MemorySink(size)
    source = Chunks(wire) if chunked else wire
    if framed:
        request.trailers = _pump_framed(source, sink, digests)
    else:
        _pump(source, sink, size, digests)
    if chunked:
        source.finish()
    request.body = sink.body()
    if request.body.size != size:
        raise S3Error("IncompleteBody", "x-amz-decoded-content-length is not the body's size.")
