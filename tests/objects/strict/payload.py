# SPDX-License-Identifier: BSD-3-Clause
"""What a request says about its body: hashes and checksums, checked when the body is there."""

import hashlib

from . import checksums
from .errors import S3Error

# Elsewhere these headers speak of the object, not of the body.
WITH_CHECKSUM = ("PutObject", "UploadPart", "DeleteObjects")
ABOUT = ("x-amz-checksum-algorithm", "x-amz-checksum-type", "x-amz-checksum-mode")


def _declared(request):
    """The checksum headers that have a value of some algorithm: [(algorithm, value)]."""
    return [
        (name[len("x-amz-checksum-") :], value)
        for name, value in request.headers
        if name.startswith("x-amz-checksum-") and name not in ABOUT
    ]


def mentions_checksums(request):
    names = {name for name, _ in request.headers}
    return bool(
        _declared(request)
        or names & {"x-amz-sdk-checksum-algorithm", "x-amz-trailer", "x-amz-checksum-algorithm"}
    )


def check_mode(request, mode):
    """Two ways to know no checksums, and to say so: 501, and 400."""
    if mode in ("refused", "invalid") and mentions_checksums(request):
        raise S3Error(
            "NotImplemented" if mode == "refused" else "InvalidArgument",
            "A header you provided implies functionality that is not implemented.",
        )


def algorithm_of(request):
    """The one checksum that is to come, in a header or in a trailer; None without one."""
    named = [algorithm for algorithm, _ in _declared(request)]
    trailer = request.header("x-amz-trailer")
    if trailer:
        named.append(trailer.lower().removeprefix("x-amz-checksum-"))
    announced = request.header("x-amz-sdk-checksum-algorithm")
    if announced and not named:
        raise S3Error(
            "InvalidRequest",
            "x-amz-sdk-checksum-algorithm specified, but no "
            "corresponding x-amz-checksum-* or x-amz-trailer headers were found.",
        )
    if len(named) > 1:
        raise S3Error(
            "InvalidRequest",
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
        )
    if named and named[0] not in checksums.ALGORITHMS:
        raise S3Error("InvalidRequest", f"The checksum {named[0]} is not known here.")
    return named[0] if named else None


def digests_of(request, settings):
    """By name, what has to be computed while the body comes."""
    mode, found = settings["checksums"], {}
    if settings["tags"] == "md5" or request.header("content-md5"):
        found["md5"] = hashlib.md5()
    if len(request.header("x-amz-content-sha256") or "") == 64:
        found["payload"] = hashlib.sha256()
    if mode == "known" and request.operation in WITH_CHECKSUM:
        algorithm = algorithm_of(request)
        if algorithm:
            found[algorithm] = checksums.ALGORITHMS[algorithm]()
    return found


def _check_value(name, text, digest):
    if checksums.decoded(text, digest.digest_size, name) != digest.digest():
        raise S3Error(
            "BadDigest", f"The {name} you specified did not match the calculated checksum."
        )


def check_body(request, mode):
    """Compares all that was declared.  Returns the checksums to keep with the object."""
    digests = request.digests
    if "payload" in digests:
        if digests["payload"].hexdigest() != request.header("x-amz-content-sha256"):
            raise S3Error(
                "XAmzContentSHA256Mismatch",
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
            )
    if request.header("content-md5"):
        _check_value("content-md5", request.header("content-md5"), digests["md5"])
    if mode != "known" or request.operation not in WITH_CHECKSUM:
        return {}
    algorithm = algorithm_of(request)
    if request.operation == "DeleteObjects" and not algorithm and not request.header("content-md5"):
        raise S3Error("InvalidRequest", "Missing required header for this request: Content-MD5")
    if algorithm is None:
        return {}
    name = f"x-amz-checksum-{algorithm}"
    value = request.header(name) or dict(request.trailers).get(name)
    if value is None:
        raise S3Error("InvalidRequest", f"The trailer {name} did not come.")
    _check_value(name, value, digests[algorithm])
    return {algorithm: checksums.encoded(digests[algorithm].digest())}
