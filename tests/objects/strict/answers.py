# SPDX-License-Identifier: BSD-3-Clause
"""Answers of the server, and how they go out."""

import http.client

from . import xml
from .bodies import MemoryBody

REASONS = dict(http.client.responses)


class Answer:
    """first and count choose the bytes of the body; endless makes pieces until the client goes."""

    def __init__(self, status=200, headers=(), body=b"", first=0, count=None):
        self.status = status
        self.headers = list(headers)
        self.body = body if hasattr(body, "pieces") else MemoryBody(body)
        self.first = first
        self.count = self.body.size - first if count is None else count
        self.code = None  # of an error
        self.endless = None  # an iterator of bytes, sent in chunks
        self.announced = None  # a Content-Length that is not the number of bytes
        self.raw_headers = []  # added as they are, whatever they contain
        self.raw = None  # instead of all else
        self.pace = None  # (bytes, seconds): so many bytes, then a pause

    def set_header(self, name, value):
        self.headers = [item for item in self.headers if item[0].lower() != name.lower()]
        if value is not None:
            self.headers.append((name, value))

    def content(self):
        return b"".join(self.body.pieces(self.first, self.count))


def xml_answer(root, children, status=200, headers=(), namespace=xml.NAMESPACE):
    body = xml.document(root, children, namespace)
    return Answer(status, [("Content-Type", "application/xml"), *headers], body)


def error_answer(error, request_id, resource):
    children = [
        ("Code", error.code),
        ("Message", error.message),
        *error.more.items(),
        ("Resource", resource),
        ("RequestId", request_id),
        ("HostId", "strict"),
    ]
    answer = xml_answer("Error", children, error.status, error.headers, None)
    answer.code = error.code
    return answer


def head_of(answer):
    lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    if answer.endless is not None:
        lines.append("Transfer-Encoding: chunked")
    elif answer.status not in (204, 304):
        length = answer.count if answer.announced is None else answer.announced
        lines.append(f"Content-Length: {length}")
    lines += answer.raw_headers
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def paced(pieces, answer, wait):
    """The pieces, or smaller ones with pauses between them."""
    if answer.pace is None:
        yield from pieces
        return
    size, seconds = answer.pace
    for piece in pieces:
        for first in range(0, len(piece), size):
            yield piece[first : first + size]
            wait(seconds)


def send_answer(wire, answer, method, wait):
    """Head and body; a HEAD gets the head alone.  wait(seconds) is how a slow answer pauses."""
    if answer.raw is not None:
        wire.send(answer.raw)
        return
    has_body = method != "HEAD" and answer.status not in (204, 304)
    head = head_of(answer)
    small = has_body and answer.endless is None and answer.pace is None and answer.count < 4096
    wire.send(head + answer.content() if small else head)
    if not has_body or small:
        return
    if answer.endless is not None:
        for piece in paced(answer.endless, answer, wait):
            wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        wire.send(b"0\r\n\r\n")
        return
    for piece in paced(answer.body.pieces(answer.first, answer.count), answer, wait):
        wire.send(piece)
