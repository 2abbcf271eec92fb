# SPDX-License-Identifier: BSD-3-Clause
"""What all connections share: settings, clock, buckets, the log, rules of faults, late deeds."""

import hashlib
import os
import threading
import time

from . import listings, objects, payload, signature, uploads
from .answers import error_answer
from .errors import S3Error
from .rules import Rules
from .store import Bucket

PERFORM = {
    "GetBucketLocation": listings.location, "ListObjectsV2": listings.list_objects,
    "ListMultipartUploads": listings.list_uploads, "HeadBucket": listings.head_bucket,
    "CreateBucket": listings.refuse_bucket, "DeleteObjects": objects.delete_many,
    "ListParts": listings.list_parts, "GetObject": objects.get, "HeadObject": objects.get,
    "UploadPartCopy": uploads.copy_part, "UploadPart": uploads.put_part,
    "CopyObject": objects.copy, "PutObject": objects.put, "DeleteObject": objects.delete,
    "AbortMultipartUpload": uploads.abort, "CreateMultipartUpload": uploads.create,
    "CompleteMultipartUpload": uploads.complete,
}  # fmt: skip

# name: (default, what it may be: a tuple of values, or a type)
SETTINGS = {
    # bare: as Ceph before 2025, which compares tags without quotes, and none when it deletes
    "conditions": ("honoured", ("honoured", "ignored", "501", "bare")),
    "checksums": ("known", ("known", "ignored", "refused", "invalid")),
    "tags": ("md5", ("md5", "opaque")),
    "strict": (True, (True, False)),  # over plain http the payload must be hashed
    "region": ("us-east-1", str),
    "page": (1000, int),  # the most entries of a listing
    "part_bytes": (5 << 20, int),  # the least size of a part but the last
    "body_bytes": (5 << 30, int),  # the most of one body
    "late_listing": (0, int),  # requests until a listing shows a change
    "skew": (0, int),  # seconds that the clock of the server is ahead
    "clock": (None, (int, type(None))),  # seconds since 1970, where it stands still
    "expired": ([], list),  # access keys or tokens
    "undeletable": (None, (str, type(None))),  # a pattern of keys that ?delete leaves there
}


class Service:
    def __init__(self, buckets, credentials, domain="localhost", folder=None):
        self.lock = threading.RLock()
        self.settings = {name: default for name, (default, _) in SETTINGS.items()}
        self.buckets = {name: Bucket(name) for name in buckets}
        self.credentials = {credential.access_key: credential for credential in credentials}
        self.domain = domain
        self.folder = folder
        self.rules = Rules()
        self.log = []
        self.number = 0  # of the request that came last
        self.late = []  # [(number of the request before which it is done, request)]
        self.released = threading.Event()  # set: what stalls goes on
        self.listeners = []

    def now(self):
        clock = self.settings["clock"]
        return (time.time() if clock is None else clock) + self.settings["skew"]

    def change(self, settings):
        """Changes settings, all or none."""
        for name, value in settings.items():
            if name not in SETTINGS:
                raise ValueError(f"no setting is called {name!r}")
            kind = SETTINGS[name][1]
            values = kind if isinstance(kind, tuple) else (kind,)
            types = tuple(one for one in values if isinstance(one, type))
            if not (isinstance(value, types) if types else value in values):
                raise ValueError(f"{name} cannot be {value!r}")
        with self.lock:
            self.settings.update(settings)

    def shown_from(self):
        return self.number + self.settings["late_listing"]

    def tag_of(self, request):
        if self.settings["tags"] == "opaque":
            return f'"{os.urandom(16).hex()}"'
        return f'"{request.digests["md5"].hexdigest()}"'

    def joined_tag(self, tags):
        total = hashlib.md5(b"".join(bytes.fromhex(tag.strip('"')) for tag in tags))
        return f'"{total.hexdigest()}-{len(tags)}"'

    def forget_log(self):
        """Counts requests from 1 again; what waits for the n-th one waits for as many."""
        gone, self.number = self.number, 0
        self.log.clear()
        self.late = [(number - gone, request) for number, request in self.late]
        for bucket in self.buckets.values():
            bucket.forget(gone)

    def begin(self, request):
        """Numbers a request, and opens its line of the log."""
        with self.lock:
            self.number += 1
            request.number = self.number
            request.entry = {
                "number": request.number,
                "method": request.method,
                "target": request.target,
                "operation": None,
                "bucket": None,
                "key": None,
                "query": dict(request.query),
                "headers": dict(request.headers),
                "secure": request.secure,
                "status": None,
                "code": None,
                "request_bytes": 0,
                "answer_bytes": 0,
                "fault": None,
                "signed": False,
                "done": False,
                "ended": False,
            }
            self.log.append(request.entry)

    def check_signature(self, request):
        settings = self.settings
        signature.check(
            request,
            self.credentials,
            settings["region"],
            self.now(),
            settings["expired"],
            settings["strict"],
        )
        request.entry["signed"] = True

    def perform(self, request):
        """The deed, in one step."""
        with self.lock:
            try:
                answer = PERFORM[request.operation](self, request)
            except S3Error as error:
                answer = self.refuse(request, error)
            request.entry["done"] = answer.code is None
            return answer

    def refuse(self, request, error):
        return error_answer(error, f"{request.number:016X}", request.raw_path)

    def delay(self, request, after):
        with self.lock:
            self.late.append((request.number + after, request))

    def land(self, number=None):
        """Does the late deeds that are due before that request, or all of them.

        The signature is looked at again: a service does not take a request that is too old.
        """
        with self.lock:
            due = [item for item in self.late if number is None or item[0] < number]
            self.late = [item for item in self.late if item not in due]
            for _, request in due:
                try:
                    self.check_signature(request)
                    answer = self.perform(request)
                except S3Error as error:
                    answer = self.refuse(request, error)
                request.entry.update(status=answer.status, code=answer.code, landed=self.number)

    def verify_body(self, request):
        request.checksums = payload.check_body(request, self.settings["checksums"])
