# SPDX-License-Identifier: BSD-3-Clause
"""confine.py [ERROR:CALL,...]... [no-huge-pages] -- COMMAND...: runs COMMAND where these system
calls fail with this errno, as by a container's seccomp profile; or without transparent huge pages.
A call is a name of the tables below. Exit status 77: the kernel lets no filter be set.
"""

import ctypes
import errno
import os
import struct
import sys

CALLS = {
    "x86_64": {"fsync": 74, "mbind": 237, "ioprio_set": 251, "vmsplice": 278, "statx": 332,
               "process_vm_readv": 310, "memfd_create": 319, "copy_file_range": 326,
               "renameat2": 316, "userfaultfd": 323, "fallocate": 285, "fdatasync": 75,
               "sync_file_range": 277, "syncfs": 306},
    "aarch64": {"fsync": 82, "mbind": 235, "ioprio_set": 30, "vmsplice": 75, "statx": 291,
                "process_vm_readv": 270, "memfd_create": 279, "copy_file_range": 285,
                "renameat2": 276, "userfaultfd": 282, "fallocate": 47, "fdatasync": 83,
                "sync_file_range": 84, "syncfs": 267},
}  # fmt: skip
EVERYWHERE = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
              "openat2": 437, "cachestat": 451}  # fmt: skip
SET_NO_NEW_PRIVS, SET_SECCOMP, SET_THP_DISABLE = 38, 22, 41


def prctl(*arguments):
    function = ctypes.CDLL(None, use_errno=True).prctl
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if function(*arguments) != 0:
        print(f"prctl {arguments[0]}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        sys.exit(77)


class Filter(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def refuse(calls):
    """{number: errno}"""
    steps = [struct.pack("=HBBI", 0x20, 0, 0, 0)]  # load the number of the call
    for call, error in calls.items():
        steps += [struct.pack("=HBBI", 0x15, 0, 1, call),  # another one: skip the next step
                  struct.pack("=HBBI", 0x06, 0, 0, 0x00050000 | error)]  # fmt: skip
    steps.append(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000))  # allow
    program = Filter(len(steps), b"".join(steps))
    prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(SET_SECCOMP, 2, ctypes.addressof(program), 0, 0)


def main():
    end = sys.argv.index("--")
    numbers = {**EVERYWHERE, **CALLS.get(os.uname().machine, {})}
    calls = {}
    for word in sys.argv[1:end]:
        if word == "no-huge-pages":
            prctl(SET_THP_DISABLE, 1, 0, 0, 0)
            continue
        error, _, names = word.partition(":")
        calls.update((numbers[name], getattr(errno, error)) for name in names.split(","))
    if calls:
        refuse(calls)
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])


if __name__ == "__main__":
    main()
