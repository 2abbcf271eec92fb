# SPDX-License-Identifier: BSD-3-Clause
"""What the server holds: buckets of objects and of uploads under way."""

import base64
import os


class Object:
    def __init__(self, body, tag, modified, headers=(), checksums=None):
        self.body = body
        self.tag = tag  # with its quotes
        self.modified = modified  # seconds since 1970
        self.headers = list(headers)  # of the PUT: content-type, x-amz-meta-*
        self.checksums = dict(checksums or {})  # by algorithm, base64
        self.checksum_type = "FULL_OBJECT"
        self.shown_from = 0  # number of the first request whose listing shows it

    @property
    def size(self):
        return self.body.size


class Upload:
    def __init__(self, name, key, initiated, headers, algorithm, checksum_type):
        self.name = name
        self.key = key
        self.initiated = initiated
        self.headers = headers
        self.algorithm = algorithm
        self.checksum_type = checksum_type
        self.parts = {}  # number: Object


class Bucket:
    def __init__(self, name):
        self.name = name
        self.objects = {}
        self.uploads = {}  # by name
        self.ghosts = {}  # key: (object, number of the first request whose listing lacks it)
        self.made = 0

    def put(self, key, thing, shown_from):
        thing.shown_from = shown_from
        self.objects[key] = thing
        self.ghosts.pop(key, None)

    def delete(self, key, number, hidden_from):
        """Request `number` deletes; listings show the object until request `hidden_from`."""
        thing = self.objects.pop(key, None)
        if thing is not None and hidden_from > number:
            self.ghosts[key] = (thing, hidden_from)

    def forget(self, count):
        """Requests are counted from 1 again, after so many."""
        for thing in self.objects.values():
            thing.shown_from -= count
        self.ghosts = {key: (thing, last - count) for key, (thing, last) in self.ghosts.items()}

    def new_upload_name(self):
        """Upload ids have what a client must escape in a query."""
        self.made += 1
        return f"2~{base64.b64encode(os.urandom(11)).decode()}/+{self.made}="

    def listed(self, number):
        """Key and object of what a listing by request `number` shows, in order."""
        shown = {key: thing for key, thing in self.objects.items() if thing.shown_from <= number}
        for key, (thing, hidden_from) in list(self.ghosts.items()):
            if hidden_from > number:
                shown.setdefault(key, thing)
            else:
                del self.ghosts[key]
        return sorted(shown.items(), key=lambda item: item[0].encode())


def page_of(items, prefix, delimiter, after, limit):
    """One page of a listing: items [(key, thing)], common prefixes, the last name or None.

    `after` is the last name of the page before: a key, or a common prefix, whose keys are done.
    """
    entries, prefixes, last = [], [], None
    for key, thing in items:
        if not key.startswith(prefix) or (after and key.encode() <= after.encode()):
            continue
        if delimiter and after and after.endswith(delimiter) and key.startswith(after):
            continue
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key[: end + len(delimiter)] if end >= 0 else key
        if prefixes and end >= 0 and prefixes[-1] == name:
            continue
        if len(entries) + len(prefixes) == limit:
            return entries, prefixes, last
        if end >= 0:
            prefixes.append(name)
        else:
            entries.append((key, thing))
        last = name
    return entries, prefixes, None
