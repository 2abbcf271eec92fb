# SPDX-License-Identifier: BSD-3-Clause
"""The operations that list, and the small ones on a bucket."""

import base64
import binascii
import urllib.parse

from .answers import Answer, xml_answer
from .errors import S3Error
from .objects import get_bucket, iso_date
from .store import page_of
from .uploads import get_upload

PAGE = 1000


def _encoder(request):
    kind = request.parameter("encoding-type")
    if kind not in (None, "url"):
        raise S3Error(
            "InvalidArgument",
            "Invalid Encoding Method specified in Request",
            {"ArgumentName": "encoding-type", "ArgumentValue": kind},
        )
    if kind is None:
        return lambda text: text
    return lambda text: None if text is None else urllib.parse.quote_plus(text, safe="/")


def _count(service, request, name):
    text = request.parameter(name, str(PAGE))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise S3Error(
            "InvalidArgument",
            f"Provided {name} not an integer or within integer range",
            {"ArgumentName": name, "ArgumentValue": text},
        )
    return min(int(text), PAGE, service.settings["page"])


def token_of(name):
    """A token has characters that a client must escape in a query."""
    return "1/+" + base64.b64encode(name.encode()).decode() + "=="


def _name_of_token(token):
    try:
        if not (token.startswith("1/+") and token.endswith("==")):
            raise ValueError
        return base64.b64decode(token[3:-2], validate=True).decode()
    except (binascii.Error, ValueError):
        raise S3Error(
            "InvalidArgument",
            "The continuation token provided is incorrect",
            {"ArgumentName": "continuation-token"},
        ) from None


def list_objects(service, request):
    bucket = get_bucket(service, request.bucket)
    if request.parameter("list-type") != "2":
        raise S3Error("InvalidArgument", "Invalid List Type specified in Request")
    encode = _encoder(request)
    limit = _count(service, request, "max-keys")
    prefix, delimiter = request.parameter("prefix", ""), request.parameter("delimiter", "")
    token, start = request.parameter("continuation-token"), request.parameter("start-after")
    after = _name_of_token(token) if token is not None else start
    entries, prefixes, last = page_of(
        bucket.listed(service.number), prefix, delimiter, after, limit
    )
    children = [
        ("Name", request.bucket),
        ("Prefix", encode(prefix)),
        ("Delimiter", encode(delimiter) or None),
        ("StartAfter", encode(start)),
        ("MaxKeys", limit),
        ("EncodingType", request.parameter("encoding-type")),
        ("KeyCount", len(entries) + len(prefixes)),
        ("IsTruncated", "true" if last and limit else "false"),
        ("ContinuationToken", token),
        ("NextContinuationToken", token_of(last) if last and limit else None),
    ]
    for key, thing in entries:
        children.append(
            (
                "Contents",
                [
                    ("Key", encode(key)),
                    ("LastModified", iso_date(thing.modified)),
                    ("ETag", thing.tag),
                    ("Size", thing.size),
                    ("StorageClass", "STANDARD"),
                ],
            )
        )
    children += [("CommonPrefixes", [("Prefix", encode(name))]) for name in prefixes]
    return xml_answer("ListBucketResult", children)


def list_uploads(service, request):
    bucket = get_bucket(service, request.bucket)
    encode = _encoder(request)
    limit = _count(service, request, "max-uploads")
    prefix, delimiter = request.parameter("prefix", ""), request.parameter("delimiter", "")
    marker = (request.parameter("key-marker", ""), request.parameter("upload-id-marker", ""))
    if delimiter:
        raise S3Error("NotImplemented", "delimiter of ListMultipartUploads is not implemented.")
    items = sorted(bucket.uploads.values(), key=lambda upload: (upload.key.encode(), upload.name))
    items = [upload for upload in items if upload.key.startswith(prefix)]
    if marker[1]:
        items = [u for u in items if (u.key.encode(), u.name) > (marker[0].encode(), marker[1])]
    elif marker[0]:
        items = [u for u in items if u.key.encode() > marker[0].encode()]
    page, more = items[:limit], len(items) > limit > 0
    children = [
        ("Bucket", request.bucket),
        ("KeyMarker", encode(marker[0])),
        ("UploadIdMarker", marker[1]),
        ("Prefix", encode(prefix)),
        ("NextKeyMarker", encode(page[-1].key) if more else None),
        ("NextUploadIdMarker", page[-1].name if more else None),
        ("MaxUploads", limit),
        ("EncodingType", request.parameter("encoding-type")),
        ("IsTruncated", "true" if more else "false"),
    ]
    for upload in page:
        children.append(
            (
                "Upload",
                [
                    ("Key", encode(upload.key)),
                    ("UploadId", upload.name),
                    ("StorageClass", "STANDARD"),
                    ("Initiated", iso_date(upload.initiated)),
                ],
            )
        )
    return xml_answer("ListMultipartUploadsResult", children)


def list_parts(service, request):
    _, upload = get_upload(service, request)
    limit = _count(service, request, "max-parts")
    after = int(request.parameter("part-number-marker", "0"))
    numbers = sorted(number for number in upload.parts if number > after)
    page, more = numbers[:limit], len(numbers) > limit > 0
    children = [
        ("Bucket", request.bucket),
        ("Key", request.key),
        ("UploadId", upload.name),
        ("PartNumberMarker", after),
        ("NextPartNumberMarker", page[-1] if page else None),
        ("MaxParts", limit),
        ("IsTruncated", "true" if more else "false"),
    ]
    for number in page:
        part = upload.parts[number]
        checks = [(f"Checksum{name.upper()}", value) for name, value in part.checksums.items()]
        children.append(
            (
                "Part",
                [
                    ("PartNumber", number),
                    ("LastModified", iso_date(part.modified)),
                    ("ETag", part.tag),
                    ("Size", part.size),
                    *checks,
                ],
            )
        )
    return xml_answer("ListPartsResult", children)


def head_bucket(service, request):
    get_bucket(service, request.bucket)
    return Answer(200, [("x-amz-bucket-region", service.settings["region"])])


def location(service, request):
    get_bucket(service, request.bucket)
    region = service.settings["region"]
    text = "" if region == "us-east-1" else region
    answer = xml_answer("LocationConstraint", [])
    if text:
        answer = Answer(
            200, answer.headers, answer.content().replace(b"></", f">{text}</".encode())
        )
    return answer


def refuse_bucket(service, request):
    raise S3Error("AccessDenied", "Buckets are made by the command line of this server only.")
