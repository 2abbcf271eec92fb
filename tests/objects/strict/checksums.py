# SPDX-License-Identifier: BSD-3-Clause
"""The checksums of S3: x-amz-checksum-ALGORITHM, base64 of the big-endian value."""

import base64
import binascii
import ctypes
import ctypes.util
import hashlib
import zlib

from .errors import S3Error


def _library():
    """ISA-L's CRC32C, if this machine has it: the table below takes a second for 10 MB."""
    name = ctypes.util.find_library("isal")
    try:
        function = ctypes.CDLL(name or "libisal.so.2").crc32_iscsi
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_uint32
    function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    return function


def _table():
    entries = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        entries.append(value)
    return entries


_crc32_iscsi = _library()
_TABLE = _table()


def _crc32c_slow(view, state):
    for byte in view:
        state = _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _crc32c_fast(view, state):
    here = bytes(view) if view.readonly else ctypes.addressof(ctypes.c_char.from_buffer(view))
    return _crc32_iscsi(here, view.nbytes, state)


class Crc32:
    digest_size = 4

    def __init__(self):
        self.value = 0

    def update(self, view):
        self.value = zlib.crc32(view, self.value)

    def digest(self):
        return self.value.to_bytes(4, "big")


class Crc32c:
    digest_size = 4

    def __init__(self):
        self.state = 0xFFFFFFFF

    def update(self, view):
        if len(view):
            step = _crc32c_fast if _crc32_iscsi else _crc32c_slow
            self.state = step(memoryview(view), self.state)

    def digest(self):
        return (self.state ^ 0xFFFFFFFF).to_bytes(4, "big")


ALGORITHMS = {
    "crc32": Crc32,
    "crc32c": Crc32c,
    "sha1": hashlib.sha1,
    "sha256": hashlib.sha256,
}


def encoded(digest):
    return base64.b64encode(digest).decode()


def decoded(text, size, what):
    """The bytes of a base64 header that must have `size` of them."""
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != size:
        code = "InvalidDigest" if what == "content-md5" else "InvalidRequest"
        raise S3Error(code, f"Value for {what} header is invalid.")
    return value


def of_parts(algorithm, digests):
    """The checksum of an object of several parts: that of the parts' checksums."""
    total = ALGORITHMS[algorithm]()
    total.update(b"".join(digests))
    return f"{encoded(total.digest())}-{len(digests)}"


def of_body(algorithm, body):
    total = ALGORITHMS[algorithm]()
    for piece in body.pieces(0, body.size):
        total.update(piece)
    return encoded(total.digest())
