# SPDX-License-Identifier: BSD-3-Clause
"""The operations of multipart uploads."""

import hashlib

from . import checksums, xml
from .answers import Answer, xml_answer
from .bodies import JoinedBody
from .errors import S3Error
from .objects import (
    check_write_conditions,
    copied_body,
    copy_source,
    get_bucket,
    iso_date,
    kept_headers,
)
from .store import Object, Upload

PARTS = 10000


def get_upload(service, request):
    bucket = get_bucket(service, request.bucket)
    upload = bucket.uploads.get(request.parameter("uploadId"))
    if upload is None or upload.key != request.key:
        raise S3Error(
            "NoSuchUpload",
            "The specified upload does not exist. The upload ID may be "
            "invalid, or the upload may have been aborted or completed.",
            {"UploadId": request.parameter("uploadId")},
        )
    return bucket, upload


def _checksum_of_upload(service, request):
    """The algorithm and the type that a new upload asks for."""
    algorithm = request.header("x-amz-checksum-algorithm")
    if service.settings["checksums"] != "known" or algorithm is None:
        return None, None
    algorithm = algorithm.lower()
    kind = (request.header("x-amz-checksum-type") or "COMPOSITE").upper()
    if algorithm not in checksums.ALGORITHMS:
        raise S3Error("InvalidRequest", "Checksum algorithm provided is unsupported.")
    if kind not in ("COMPOSITE", "FULL_OBJECT") or (kind != "COMPOSITE" and algorithm[0] == "s"):
        raise S3Error(
            "InvalidRequest",
            f"The {kind} checksum type cannot be used with the {algorithm} checksum algorithm.",
        )
    return algorithm, kind


def create(service, request):
    bucket = get_bucket(service, request.bucket)
    algorithm, kind = _checksum_of_upload(service, request)
    name = bucket.new_upload_name()
    bucket.uploads[name] = Upload(
        name, request.key, service.now(), kept_headers(request), algorithm, kind
    )
    headers = []
    if algorithm:
        headers = [("x-amz-checksum-algorithm", algorithm.upper()), ("x-amz-checksum-type", kind)]
    return xml_answer(
        "InitiateMultipartUploadResult",
        [("Bucket", request.bucket), ("Key", request.key), ("UploadId", name)],
        headers=headers,
    )


def part_number(request):
    text = request.parameter("partNumber")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PARTS:
        raise S3Error(
            "InvalidArgument",
            "Part number must be an integer between 1 and 10000, inclusive",
            {"ArgumentName": "partNumber", "ArgumentValue": text},
        )
    return int(text)


def _check_algorithm(service, request, upload):
    """A part has the checksum that the upload was created with, or (FULL_OBJECT) none."""
    came = next(iter(request.checksums), None)
    if service.settings["checksums"] != "known" or came == upload.algorithm:
        return
    if came is not None or upload.checksum_type == "COMPOSITE":
        raise S3Error(
            "InvalidRequest",
            f"Checksum Type mismatch occurred, expected checksum Type: {upload.algorithm or 'null'}"
            f", actual checksum Type: {came or 'null'}",
        )


def put_part(service, request):
    number = part_number(request)
    _, upload = get_upload(service, request)
    _check_algorithm(service, request, upload)
    part = Object(request.body, service.tag_of(request), service.now(), (), request.checksums)
    upload.parts[number] = part
    headers = [(f"x-amz-checksum-{name}", value) for name, value in part.checksums.items()]
    return Answer(200, [("ETag", part.tag), *headers])


def copy_part(service, request):
    number = part_number(request)
    _, upload = get_upload(service, request)
    _, _, source = copy_source(service, request)
    body = copied_body(request, source)
    tag = hashlib.md5()
    for piece in body.pieces(0, body.size):
        tag.update(piece)
    part = Object(body, f'"{tag.hexdigest()}"', service.now())
    if upload.algorithm:
        part.checksums = {upload.algorithm: checksums.of_body(upload.algorithm, body)}
    upload.parts[number] = part
    return xml_answer(
        "CopyPartResult", [("LastModified", iso_date(part.modified)), ("ETag", part.tag)]
    )


def _part_of(upload, node):
    """The part that a <Part> of CompleteMultipartUpload means."""
    text = node.findtext("PartNumber") or ""
    number = int(text) if text.isascii() and text.isdigit() else 0
    tag = (node.findtext("ETag") or "").strip('"')
    part = upload.parts.get(number)
    problem = None
    if part is None or part.tag.strip('"') != tag:
        problem = (
            "One or more of the specified parts could not be found. The part might not "
            "have been uploaded, or the specified entity tag might not have matched the "
            "part's entity tag."
        )
    for algorithm in checksums.ALGORITHMS if part else ():
        said = node.findtext("Checksum" + algorithm.upper())
        if said is not None and upload.algorithm and said != part.checksums.get(algorithm):
            problem = f"The {algorithm} of part {number} is not the one that was stored."
    if problem:
        raise S3Error(
            "InvalidPart", problem, {"UploadId": upload.name, "PartNumber": text, "ETag": tag}
        )
    if upload.checksum_type == "COMPOSITE":
        if node.findtext("Checksum" + upload.algorithm.upper()) is None:
            raise S3Error(
                "InvalidRequest",
                f"The upload was created using a {upload.algorithm} "
                "checksum. The complete request must include the checksum for each part."
                f" It was missing for part {number} in the request.",
            )
    return number, part


def _chosen_parts(service, upload, root):
    chosen = []
    for node in root.findall("Part"):
        number, part = _part_of(upload, node)
        if chosen and number <= chosen[-1][0]:
            raise S3Error(
                "InvalidPartOrder",
                "The list of parts was not in ascending order. Parts "
                "must be ordered by part number.",
            )
        chosen.append((number, part))
    if not chosen or len(chosen) > PARTS:
        raise S3Error(
            "MalformedXML",
            "The XML you provided was not well-formed or did not "
            "validate against our published schema",
        )
    least = service.settings["part_bytes"]
    for number, part in chosen[:-1]:
        if part.size < least:
            raise S3Error(
                "EntityTooSmall",
                "Your proposed upload is smaller than the minimum allowed size",
                {
                    "ProposedSize": str(part.size),
                    "MinSizeAllowed": str(least),
                    "PartNumber": str(number),
                    "ETag": part.tag,
                },
            )
    return [part for _, part in chosen]


def _whole_checksum(request, upload, parts, body):
    """The checksum of the object, compared with what the request says it is."""
    if not upload.algorithm:
        return {}
    name = upload.algorithm
    digests = [
        checksums.base64.b64decode(part.checksums[name]) for part in parts if name in part.checksums
    ]
    if upload.checksum_type == "FULL_OBJECT":
        value = checksums.of_body(name, body)
    elif len(digests) == len(parts):
        value = checksums.of_parts(name, digests)
    else:
        raise S3Error("InvalidPart", f"A part was uploaded without its {name} checksum.")
    said = request.header(f"x-amz-checksum-{name}")
    if said is not None and said != value and said != value.partition("-")[0]:
        raise S3Error(
            "BadDigest", f"The {name} you specified did not match the calculated checksum."
        )
    return {name: value}


def complete(service, request):
    bucket, upload = get_upload(service, request)
    parts = _chosen_parts(service, upload, xml.parse(request, "CompleteMultipartUpload"))
    check_write_conditions(service, request, request.key)
    body = JoinedBody([part.body for part in parts])
    size = request.header("x-amz-mp-object-size")
    if size is not None and size != str(body.size):
        raise S3Error(
            "InvalidRequest",
            f"The provided 'x-amz-mp-object-size' header value {size} "
            f"does not match what was computed: {body.size}",
        )
    values = _whole_checksum(request, upload, parts, body)
    tag = service.joined_tag([part.tag for part in parts])
    thing = Object(body, tag, service.now(), upload.headers, values)
    thing.checksum_type = upload.checksum_type or "FULL_OBJECT"
    bucket.put(request.key, thing, service.shown_from())
    del bucket.uploads[upload.name]
    more = [(f"Checksum{name.upper()}", value) for name, value in values.items()]
    return xml_answer(
        "CompleteMultipartUploadResult",
        [
            ("Location", f"http://{request.header('host')}{request.raw_path}"),
            ("Bucket", request.bucket),
            ("Key", request.key),
            ("ETag", tag),
            *more,
        ],
    )


def abort(service, request):
    bucket, upload = get_upload(service, request)
    del bucket.uploads[upload.name]
    return Answer(204)
