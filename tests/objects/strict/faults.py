# SPDX-License-Identifier: BSD-3-Clause
"""Faults: what may happen to a request.  rules.py says which request meets which.

Each class is a fault; the arguments of its __init__ are its parameters in JSON.
"""

import itertools
import re

from . import payload
from .answers import Answer, error_answer
from .bodies import flipped
from .errors import S3Error
from .listings import token_of
from .wire import Cut

HOW = ("reset", "close", "stall")


class Fault:
    """What a request may meet.  Each method is called at its moment, on the thread of the
    connection (`talk`, see conversation.py).  To end the stream of bytes, raise Cut."""

    def first(self, talk):
        """Before the request is looked at."""

    def before(self, talk):
        """The head was right; the body has not come.  An answer stands for all that follows."""

    def arrived(self, talk):
        """The body has come; nothing has been compared."""

    def instead(self, talk):
        """The body is there and right.  An answer stands for the deed."""

    def after(self, talk, answer):
        """The deed is done, or refused."""
        return answer

    def on_cut(self, talk):
        talk.end("reset")


class Status(Fault):
    """An error of the service, instead of the deed."""

    def __init__(
        self,
        status=503,
        code=None,
        message="Please try again.",
        retry_after=None,
        headers=None,
        more=None,
        drain=True,
    ):
        names = {503: "SlowDown", 500: "InternalError", 429: "TooManyRequests"}
        code = code or names.get(status, "ServiceUnavailable")
        sent = dict(headers or {})
        if retry_after is not None:
            sent["Retry-After"] = str(retry_after)
        self.error = S3Error(code, message, more, list(sent.items()), status)
        self.drain = drain

    def before(self, talk):
        talk.drain = self.drain
        return error_answer(self.error, talk.request_id(), talk.request.raw_path)


class CutOff(Fault):
    """The connection ends, or falls silent, after so many bytes.

    where "request": of its body; nothing is done.  where "answer": of the answer, from its head
    on; the deed is done.
    """

    def __init__(self, where="answer", after=0, how="reset", seconds=None):
        if where not in ("request", "answer") or how not in HOW:
            raise ValueError("cut: where is request or answer; how is reset, close or stall")
        self.where, self.bytes, self.how, self.seconds = where, after, how, seconds

    def before(self, talk):
        if self.where == "request":
            talk.wire.receive_left = self.bytes
            if self.bytes == 0:
                raise Cut

    def instead(self, talk):
        if self.where == "request":
            raise Cut

    def after(self, talk, answer):
        if self.where == "answer":
            talk.wire.send_left = self.bytes
        return answer

    def on_cut(self, talk):
        talk.end(self.how, self.seconds)


class Lost(CutOff):
    """The deed is done; its answer never comes."""

    def __init__(self, how="reset", seconds=None):
        super().__init__("answer", 0, how, seconds)


class Reset(CutOff):
    def __init__(self, where="request", after=0):
        super().__init__(where, after, "reset")


class Stall(CutOff):
    def __init__(self, where="answer", after=0, seconds=None):
        super().__init__(where, after, "stall", seconds)


class Late(Fault):
    """The connection ends without an answer, and the deed is done after so many more requests."""

    def __init__(self, after=1, how="reset", seconds=None):
        self.count, self.how, self.seconds = after, how, seconds

    def instead(self, talk):
        talk.service.delay(talk.request, self.count)
        raise Cut

    def on_cut(self, talk):
        talk.end(self.how, self.seconds)


class LateError(Late):
    """An error is answered, and the deed is done after so many more requests."""

    def __init__(self, after=1, status=504, code="GatewayTimeout"):
        super().__init__(after)
        self.error = S3Error(code, "The answer did not come in time.", None, [], status)

    def instead(self, talk):
        talk.service.delay(talk.request, self.count)
        return error_answer(self.error, talk.request_id(), talk.request.raw_path)


class Doubled(Fault):
    """The deed is done and answered, and done once more after so many more requests."""

    def __init__(self, after=1):
        self.count = after

    def after(self, talk, answer):
        talk.service.delay(talk.request, self.count)
        return answer


class ErrorBody(Fault):
    """Status 200, and an error in the body, after white space.  done: the deed is done."""

    def __init__(
        self,
        code="InternalError",
        message="We encountered an internal error.",
        done=False,
        spaces=0,
    ):
        self.error = S3Error(code, message, status=200)
        self.done, self.spaces = done, spaces

    def answer(self, talk):
        answer = error_answer(self.error, talk.request_id(), talk.request.raw_path)
        text = answer.content()
        end = text.index(b"?>") + 2
        return Answer(200, answer.headers, text[:end] + b" \n" * self.spaces + text[end:])

    def instead(self, talk):
        return None if self.done else self.answer(talk)

    def after(self, talk, answer):
        return self.answer(talk) if self.done else answer


class Truncate(Fault):
    """The head announces the whole body; the connection ends after a part of it."""

    def __init__(self, bytes=None):
        self.bytes = bytes

    def after(self, talk, answer):
        talk.keep = False
        answer.announced = answer.count
        answer.count = answer.count // 2 if self.bytes is None else min(self.bytes, answer.count)
        return answer


def _content_range(answer):
    text = dict(answer.headers).get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", text)
    return [int(group) for group in match.groups()] if match else None


class ShortRange(Fault):
    """A range that is shorter than what was asked for, and says so."""

    def __init__(self, bytes=1):
        self.bytes = bytes

    def after(self, talk, answer):
        found = _content_range(answer)
        if found:
            answer.count = min(self.bytes, answer.count)
            last = found[0] + answer.count - 1
            answer.set_header("Content-Range", f"bytes {found[0]}-{last}/{found[2]}")
        return answer


class WrongRange(Fault):
    """A Content-Range that is not what was asked for.  moves: the bytes are those it says."""

    def __init__(self, shift=1, moves=False, text=None):
        self.shift, self.moves, self.text = shift, moves, text

    def after(self, talk, answer):
        found = _content_range(answer)
        if found:
            first, last, size = found[0] + self.shift, found[1] + self.shift, found[2]
            answer.set_header("Content-Range", self.text or f"bytes {first}-{last}/{size}")
            if self.moves:
                answer.first = max(0, min(first, answer.body.size - answer.count))
        return answer


class Whole(Fault):
    """200 with the whole object, where a range was asked for."""

    def after(self, talk, answer):
        if answer.status == 206:
            answer.status, answer.first, answer.count = 200, 0, answer.body.size
            answer.set_header("Content-Range", None)
        return answer


class Flip(Fault):
    """One bit is turned: of the answer, of the request on its way, or of the object at rest."""

    def __init__(self, side="answer", offset=None):
        if side not in ("answer", "request", "rest"):
            raise ValueError("flip: side is answer, request or rest")
        self.side, self.offset = side, offset

    def arrived(self, talk):
        if self.side == "request":
            request = talk.request
            request.body = self.turned(request.body)
            request.digests = payload.digests_of(request, talk.service.settings)
            for digest in request.digests.values():
                for piece in request.body.pieces(0, request.body.size):
                    digest.update(piece)

    def turned(self, body):
        if not body.size:
            return body
        return flipped(body, body.size // 2 if self.offset is None else self.offset % body.size)

    def instead(self, talk):
        if self.side == "rest":
            talk.request.body = self.turned(talk.request.body)

    def after(self, talk, answer):
        if self.side == "answer" and answer.count:
            at = answer.count // 2 if self.offset is None else self.offset % answer.count
            answer.body = flipped(answer.body, answer.first + at)
        return answer


class Redirect(Fault):
    """The bucket is elsewhere."""

    def __init__(self, status=301, region=None, location=None):
        self.status, self.region, self.location = status, region, location

    def before(self, talk):
        code = "TemporaryRedirect" if self.status == 307 else "PermanentRedirect"
        more, headers = {"Bucket": talk.request.bucket}, []
        if self.location:
            headers.append(("Location", self.location))
            more["Endpoint"] = self.location.split("/")[2]
        if self.region:
            headers.append(("x-amz-bucket-region", self.region))
        error = S3Error(
            code,
            "The bucket you are attempting to access must be addressed using the "
            "specified endpoint.",
            more,
            headers,
            self.status,
        )
        return error_answer(error, talk.request_id(), talk.request.raw_path)


class Set(Fault):
    """Settings change from this request on: a clock, conditions, credentials that have ended."""

    def __init__(self, settings):
        self.settings = settings

    def first(self, talk):
        talk.service.change(self.settings)


class Expired(Fault):
    """The credential of this request has ended, from now on."""

    def first(self, talk):
        found = re.search(
            "Credential=([^,]*)/[^/]*/[^/]*/[^/]*/[^/,]*,",
            talk.request.header("authorization") or "",
        )
        name = talk.request.header("x-amz-security-token") or (found and found.group(1))
        expired = talk.service.settings["expired"]
        if name and name not in expired:
            talk.service.change({"expired": [*expired, name]})


class Endless(Fault):
    """XML that does not end before so many bytes: of siblings, or ever deeper."""

    def __init__(
        self, head="<ListBucketResult>", piece="<Prefix>endless</Prefix>", bytes=1 << 30, status=200
    ):
        self.head, self.piece, self.bytes, self.status = head, piece, bytes, status

    def instead(self, talk):
        block = self.piece.encode() * max(1, 16384 // len(self.piece))
        answer = Answer(self.status, [("Content-Type", "application/xml")])
        answer.endless = itertools.chain(
            [f'<?xml version="1.0"?>{self.head}'.encode()],
            itertools.repeat(block, self.bytes // len(block) + 1),
        )
        return answer


BOMB = (
    '<!DOCTYPE x [<!ENTITY a0 "lol">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    + "]>"
)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a9 SYSTEM "file:///etc/passwd">]>'


class Entities(Fault):
    """A document type with entities that grow, or that lie outside."""

    def __init__(self, kind="bomb", status=200, root="ListBucketResult", leaf="Prefix"):
        if kind not in ("bomb", "external"):
            raise ValueError("entities: kind is bomb or external")
        self.types = BOMB if kind == "bomb" else EXTERNAL
        self.status, self.root, self.leaf = status, root, leaf

    def instead(self, talk):
        text = (
            f'<?xml version="1.0"?>{self.types}<{self.root}><{self.leaf}>&a9;</{self.leaf}>'
            f"</{self.root}>"
        )
        return Answer(self.status, [("Content-Type", "application/xml")], text.encode())


class Body(Fault):
    """Any status, headers and body, instead of the deed, or (done) after it."""

    def __init__(self, text="", status=200, headers=None, done=False):
        self.text, self.status, self.headers, self.done = text, status, headers or {}, done

    def answer(self):
        return Answer(self.status, list(self.headers.items()), self.text.encode())

    def instead(self, talk):
        return None if self.done else self.answer()

    def after(self, talk, answer):
        return self.answer() if self.done else answer


class Headers(Fault):
    """Headers of the answer: `set` replaces one (null takes it away), `lines` are added as they
    are, so often as `repeat` says."""

    def __init__(self, set=None, lines=(), repeat=1):
        self.set, self.lines = set or {}, list(lines) * repeat

    def after(self, talk, answer):
        for name, value in self.set.items():
            answer.set_header(name, value)
        answer.raw_headers += self.lines
        return answer


class Raw(Fault):
    """Bytes instead of an answer, and the end of the connection."""

    def __init__(self, text="", done=False):
        self.text, self.done = text, done

    def answer(self, talk):
        talk.keep = False
        answer = Answer()
        answer.raw = self.text.encode("latin-1")
        return answer

    def instead(self, talk):
        return None if self.done else self.answer(talk)

    def after(self, talk, answer):
        return self.answer(talk) if self.done else answer


class Circle(Fault):
    """Each page of a listing is the first one, and says that there are more."""

    PAGING = (
        "continuation-token",
        "start-after",
        "key-marker",
        "upload-id-marker",
        "part-number-marker",
    )

    def instead(self, talk):
        request = talk.request
        request.query = [item for item in request.query if item[0] not in self.PAGING]

    def after(self, talk, answer):
        if b"</IsTruncated>" not in answer.content():
            return answer
        text = re.sub(rb"<(Next\w+)>[^<]*</\1>", b"", answer.content())
        text = text.replace(b"<IsTruncated>false", b"<IsTruncated>true")
        names = {
            "ListObjectsV2": [("NextContinuationToken", token_of("circle"))],
            "ListMultipartUploads": [("NextKeyMarker", "a"), ("NextUploadIdMarker", "a")],
            "ListParts": [("NextPartNumberMarker", "1")],
        }
        more = "".join(
            f"<{name}>{value}</{name}>" for name, value in names.get(talk.request.operation, ())
        )
        at = text.index(b"</IsTruncated>") + len(b"</IsTruncated>")
        return Answer(answer.status, answer.headers, text[:at] + more.encode() + text[at:])


class Unending(Fault):
    """Each page of a listing is right, and says that there is another one.

    kind "keys": one new key a page; "empty": none, and a new token; "uploads": those of one key,
    of two pages in turn.
    """

    def __init__(self, kind="keys"):
        if kind not in ("keys", "empty", "uploads"):
            raise ValueError("unending: kind is keys, empty or uploads")
        self.kind, self.pages = kind, 0

    def instead(self, talk):
        self.pages += 1
        prefix = talk.request.parameter("prefix", "")
        if self.kind == "uploads":
            name, key, after = "ListMultipartUploads", f"{prefix}u", f"{self.pages % 2}"
            entry = f"<Upload><Key>{key}</Key><UploadId>{after}</UploadId></Upload>"
            token = (
                f"<NextKeyMarker>{key}</NextKeyMarker>"
                f"<NextUploadIdMarker>{after}</NextUploadIdMarker>"
            )
        else:
            name, key = "ListBucket", f"{prefix}{self.pages:09}"
            entry = f"<Contents><Key>{key}</Key><Size>1</Size></Contents>"
            entry = entry if self.kind == "keys" else ""
            token = f"<NextContinuationToken>{self.pages}</NextContinuationToken>"
        text = (
            f"<{name}Result><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
            f"{token}{entry}</{name}Result>"
        )
        return Answer(200, [("Content-Type", "application/xml")], text.encode())


class Chunked(Fault):
    """The answer has no Content-Length: it comes in chunks of so many bytes.  spaces: so many
    follow the head of the XML, as where the service keeps a connection alive."""

    def __init__(self, bytes=100, spaces=0):
        self.bytes, self.spaces = bytes, spaces

    def after(self, talk, answer):
        head, end, rest = answer.content().partition(b"?>")
        text = head + end + b" " * (self.spaces if end else 0) + rest
        pieces = range(0, len(text), self.bytes)
        answer.endless = (text[first : first + self.bytes] for first in pieces)
        return answer


class HangUp(Fault):
    """The connection ends after the answer, which does not announce it."""

    def __init__(self, how="close"):
        if how not in HOW:
            raise ValueError("hang_up: how is reset, close or stall")
        self.how = how

    def after(self, talk, answer):
        talk.hang_up = self.how
        return answer


class Slow(Fault):
    """A pause before the answer, and after each piece of it."""

    def __init__(self, delay=0, bytes=None, seconds=0.01):
        self.delay, self.bytes, self.seconds = delay, bytes, seconds

    def after(self, talk, answer):
        talk.wait(self.delay)
        if self.bytes:
            answer.pace = (self.bytes, self.seconds)
        return answer


FAULTS = {
    "status": Status, "cut": CutOff, "lost": Lost, "reset": Reset, "stall": Stall, "late": Late, "late_error": LateError,
    "doubled": Doubled,
    "error_body": ErrorBody, "truncate": Truncate, "short_range": ShortRange,
    "wrong_range": WrongRange, "whole": Whole, "flip": Flip, "redirect": Redirect, "set": Set,
    "expired": Expired, "endless": Endless, "entities": Entities, "body": Body,
    "headers": Headers, "raw": Raw, "circle": Circle, "unending": Unending,
    "chunked": Chunked, "hang_up": HangUp, "slow": Slow,
}  # fmt: skip
