# SPDX-License-Identifier: BSD-3-Clause
"""The operations on objects.  Each takes the service and the request, and returns an answer.

The service holds its lock while one runs: an operation is one step for all other requests.
"""

import email.utils
import fnmatch
import re

from . import xml
from .answers import Answer, xml_answer
from .bodies import SlicedBody
from .errors import S3Error
from .store import Object
from .wire import decode

METADATA_BYTES = 2048
KEPT = ("content-type", "cache-control", "content-disposition", "content-language", "expires")


def http_date(seconds):
    return email.utils.formatdate(seconds, usegmt=True)


def iso_date(seconds):
    stamp = email.utils.datetime.datetime.fromtimestamp(seconds, email.utils.datetime.timezone.utc)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def get_bucket(service, name):
    if name not in service.buckets:
        raise S3Error("NoSuchBucket", "The specified bucket does not exist", {"BucketName": name})
    return service.buckets[name]


def get_object(bucket, key):
    if key not in bucket.objects:
        raise S3Error("NoSuchKey", "The specified key does not exist.", {"Key": key})
    return bucket.objects[key]


def _failed(condition):
    return S3Error(
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        {"Condition": condition},
    )


def same_tag(text, tag):
    return text.strip() == "*" or text.strip().strip('"') == tag.strip('"')


def is_kept(mode, match, tag):
    return match == tag.strip('"') if mode == "bare" else same_tag(match, tag)


def check_write_conditions(service, request, key):
    """If-None-Match: * and If-Match of what writes or deletes."""
    none_match = request.header("if-none-match")
    match = request.header("if-match")
    if none_match is None and match is None:
        return
    mode = service.settings["conditions"]
    if mode == "501" or (none_match is not None and none_match != "*"):
        raise S3Error(
            "NotImplemented",
            "A header you provided implies functionality that is not implemented",
            {"Header": "If-Match" if match else "If-None-Match"},
        )
    if mode == "ignored" or (mode == "bare" and request.method == "DELETE"):
        return
    there = get_bucket(service, request.bucket).objects.get(key)
    if none_match is not None and there is not None:
        raise _failed("If-None-Match")
    if match is not None and there is None:
        raise S3Error("NoSuchKey", "The specified key does not exist.", {"Key": key})
    if match is not None and not is_kept(mode, match, there.tag):
        raise _failed("If-Match")


def kept_headers(request):
    """What a PUT or a new upload says about the object."""
    kept = [
        item for item in request.headers if item[0] in KEPT or item[0].startswith("x-amz-meta-")
    ]
    if sum(len(a) + len(b) for a, b in kept if a.startswith("x-amz-meta-")) > METADATA_BYTES:
        raise S3Error(
            "MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size"
        )
    return kept


def range_of(text, size):
    """First and count of "bytes=..."; None where the header is to be ignored."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", text or "")
    if not match or not (match.group(1) or match.group(2)):
        return None
    first, last = match.groups()
    if not first:
        count = min(int(last), size)
        first = size - count
    else:
        first = int(first)
        if last and int(last) < first:
            return None
        count = min(int(last) + 1 if last else size, size) - first
    if count <= 0:
        raise S3Error(
            "InvalidRange",
            "The requested range is not satisfiable",
            {"RangeRequested": text, "ActualObjectSize": str(size)},
            [("Content-Range", f"bytes */{size}")],
        )
    return first, count


def object_headers(thing, with_checksums):
    headers = [
        ("ETag", thing.tag),
        ("Last-Modified", http_date(thing.modified)),
        ("Accept-Ranges", "bytes"),
    ]
    if not any(name == "content-type" for name, _ in thing.headers):
        headers.append(("Content-Type", "binary/octet-stream"))
    headers += thing.headers
    if with_checksums and thing.checksums:
        headers += [(f"x-amz-checksum-{name}", value) for name, value in thing.checksums.items()]
        headers.append(("x-amz-checksum-type", thing.checksum_type))
    return headers


def get(service, request):
    """GetObject and HeadObject."""
    thing = get_object(get_bucket(service, request.bucket), request.key)
    match = request.header("if-match")
    if match is not None and not same_tag(match, thing.tag):
        raise _failed("If-Match")
    none_match = request.header("if-none-match")
    if none_match is not None and same_tag(none_match, thing.tag):
        return Answer(304, [("ETag", thing.tag)])
    chosen = range_of(request.header("range"), thing.size)
    wants = (request.header("x-amz-checksum-mode") or "").upper() == "ENABLED"
    headers = object_headers(thing, wants and chosen is None)
    if chosen is None:
        return Answer(200, headers, thing.body)
    first, count = chosen
    headers.append(("Content-Range", f"bytes {first}-{first + count - 1}/{thing.size}"))
    return Answer(206, headers, thing.body, first, count)


def put(service, request):
    bucket = get_bucket(service, request.bucket)
    check_write_conditions(service, request, request.key)
    thing = Object(
        request.body,
        service.tag_of(request),
        service.now(),
        kept_headers(request),
        request.checksums,
    )
    bucket.put(request.key, thing, service.shown_from())
    headers = [("ETag", thing.tag)]
    if thing.checksums:
        headers += [(f"x-amz-checksum-{name}", value) for name, value in thing.checksums.items()]
        headers.append(("x-amz-checksum-type", thing.checksum_type))
    return Answer(200, headers)


def delete(service, request):
    bucket = get_bucket(service, request.bucket)
    if request.header("if-match") is not None:
        check_write_conditions(service, request, request.key)
    bucket.delete(request.key, service.number, service.shown_from())
    return Answer(204)


def delete_many(service, request):
    bucket = get_bucket(service, request.bucket)
    root = xml.parse(request, "Delete")
    keys = [node.findtext("Key") for node in root.findall("Object")]
    if not keys or len(keys) > 1000 or any(not key for key in keys):
        raise S3Error("MalformedXML", "A Delete has 1 to 1000 keys.")
    quiet = (root.findtext("Quiet") or "").lower() == "true"
    children = []
    for key in keys:
        if fnmatch.fnmatchcase(key, service.settings["undeletable"] or ""):
            problem = [("Key", key), ("Code", "AccessDenied"), ("Message", "Access Denied")]
            children.append(("Error", problem))
            continue
        bucket.delete(key, service.number, service.shown_from())
        if not quiet:
            children.append(("Deleted", [("Key", key)]))
    return xml_answer("DeleteResult", children)


def copy_source(service, request):
    """The object that x-amz-copy-source names, if its conditions hold."""
    source = decode(request.header("x-amz-copy-source")).removeprefix("/")
    name, _, key = source.partition("/")
    if not key:
        raise S3Error("InvalidArgument", "Copy Source must mention the source bucket and key")
    thing = get_object(get_bucket(service, name), key)
    match = request.header("x-amz-copy-source-if-match")
    if match is not None and not same_tag(match, thing.tag):
        raise _failed("x-amz-copy-source-If-Match")
    return name, key, thing


def copied_body(request, thing):
    """The bytes of x-amz-copy-source-range, or all."""
    text = request.header("x-amz-copy-source-range")
    if text is None:
        return thing.body
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", text)
    if not match or not int(match.group(1)) <= int(match.group(2)) < thing.size:
        raise S3Error(
            "InvalidArgument",
            f"Range specified is not valid for source object of size: {thing.size}",
        )
    first, last = int(match.group(1)), int(match.group(2))
    return SlicedBody(thing.body, first, last - first + 1)


def copy(service, request):
    bucket = get_bucket(service, request.bucket)
    name, key, source = copy_source(service, request)
    replaces = request.header("x-amz-metadata-directive") == "REPLACE"
    if (name, key) == (request.bucket, request.key) and not replaces:
        raise S3Error(
            "InvalidRequest",
            "This copy request is illegal because it is trying to copy "
            "an object to itself without changing the object's metadata.",
        )
    check_write_conditions(service, request, request.key)
    headers = kept_headers(request) if replaces else source.headers
    thing = Object(source.body, source.tag, service.now(), headers, source.checksums)
    thing.checksum_type = source.checksum_type
    bucket.put(request.key, thing, service.shown_from())
    return xml_answer(
        "CopyObjectResult", [("LastModified", iso_date(thing.modified)), ("ETag", thing.tag)]
    )
