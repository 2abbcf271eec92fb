# SPDX-License-Identifier: BSD-3-Clause
"""From method, host, path and query to the operation of S3 that is meant."""

from .errors import S3Error
from .wire import decode

# Method, level, parameters that must be there, those that may be, header that must be there,
# operation.  The first that fits counts.
PLAIN = {"x-id"}
LISTING = {"prefix", "delimiter", "max-keys", "encoding-type", "fetch-owner"}
OPERATIONS = [
    ("GET", "bucket", {"location"}, set(), None, "GetBucketLocation"),
    ("GET", "bucket", {"list-type"}, LISTING | {"start-after", "continuation-token"}, None,
     "ListObjectsV2"),
    ("GET", "bucket", {"uploads"}, {"prefix", "delimiter", "max-uploads", "encoding-type",
                                    "key-marker", "upload-id-marker"}, None,
     "ListMultipartUploads"),
    ("HEAD", "bucket", set(), set(), None, "HeadBucket"),
    ("PUT", "bucket", set(), set(), None, "CreateBucket"),
    ("POST", "bucket", {"delete"}, set(), None, "DeleteObjects"),
    ("GET", "object", {"uploadId"}, {"max-parts", "part-number-marker"}, None, "ListParts"),
    ("GET", "object", set(), set(), None, "GetObject"),
    ("HEAD", "object", set(), set(), None, "HeadObject"),
    ("PUT", "object", {"uploadId", "partNumber"}, set(), "x-amz-copy-source", "UploadPartCopy"),
    ("PUT", "object", {"uploadId", "partNumber"}, set(), None, "UploadPart"),
    ("PUT", "object", set(), set(), "x-amz-copy-source", "CopyObject"),
    ("PUT", "object", set(), set(), None, "PutObject"),
    ("DELETE", "object", {"uploadId"}, set(), None, "AbortMultipartUpload"),
    ("DELETE", "object", set(), set(), None, "DeleteObject"),
    ("POST", "object", {"uploads"}, set(), None, "CreateMultipartUpload"),
    ("POST", "object", {"uploadId"}, set(), None, "CompleteMultipartUpload"),
]  # fmt: skip
KEY_BYTES = 1024


def _bucket_of_host(host, domain):
    """The bucket of BUCKET.DOMAIN; None where the path has it."""
    name = host.rsplit(":", 1)[0].lower()
    return name[: -len(domain) - 1] if name.endswith("." + domain) else None


def route(request, domain):
    """Sets bucket, key and operation; the operation is "Unknown" where nothing fits."""
    request.operation = "Unknown"
    if not request.raw_path.startswith("/"):
        raise S3Error("InvalidURI", "Couldn't parse the specified URI.")
    request.bucket = _bucket_of_host(request.header("host") or "", domain)
    path = request.raw_path[1:]
    if request.bucket is None:
        first, _, path = path.partition("/")
        request.bucket = decode(first) or None
    request.key = decode(path) or None
    level = "object" if request.key else "bucket" if request.bucket else "service"
    names = {name for name, _ in request.query}
    for method, its_level, needed, allowed, header, operation in OPERATIONS:
        if (method, its_level) != (request.method, level):
            continue
        if not needed <= names or not names <= needed | allowed | PLAIN:
            continue
        if header is None or request.header(header) is not None:
            request.operation = operation
            return


def check_names(request):
    """What no client of ours may send."""
    if request.operation == "Unknown":
        raise S3Error("NotImplemented", f"{request.method} {request.target} means nothing here.")
    names = [name for name, _ in request.query]
    if len(names) != len(set(names)):
        raise S3Error("InvalidArgument", "A parameter of the query is there twice.")
    if request.key and len(request.key.encode()) > KEY_BYTES:
        raise S3Error("KeyTooLongError", "Your key is too long")
    if [name for name, _ in request.headers].count("host") != 1:
        raise S3Error("InvalidRequest", "There must be one Host header.")
