# SPDX-License-Identifier: BSD-3-Clause
"""Prints "KIND TAG STEP VALUE" for all that loggers have written about saves in a directory.

    read_logs.py DIRECTORY

KIND is tensorboard, wandb (offline runs), or mlflow (a store of files in DIRECTORY/mlflow).
"""

import json
import struct
import sys
from pathlib import Path

WORD = "sidestep/"
STEPS = ("trainer/global_step", "train/global_step", "_step")  # as W&B has them, the first counts


def of_tensorboard(place):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for folder in {path.parent for path in place.rglob("events.out.tfevents.*")}:
        read = EventAccumulator(str(folder))
        read.Reload()
        for tag in read.Tags()["scalars"]:
            yield from ((tag, one.step, one.value) for one in read.Scalars(tag))


def records_of(file):
    """Those of a log in the format of leveldb: blocks of 32 KiB, and parts of records, each with a
    head of checksum, length and kind (full, first, middle, last).  W&B has no reader in Python."""
    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if 0x8000 - at % 0x8000 < 7 or kind == 0:
            at += 0x8000 - at % 0x8000
            continue
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def of_wandb(place):
    from wandb.proto.wandb_internal_pb2 import Record

    for file in place.rglob("*.wandb"):
        for record in map(Record.FromString, records_of(file)):
            items = record.history.item
            row = {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items}
            steps = [row[key] for key in STEPS if key in row]
            yield from ((tag, steps[0], value) for tag, value in row.items())


def of_mlflow(place):
    for file in (place / "mlflow").glob("*/*/metrics/**/*"):
        if file.is_file():
            tag = str(file).partition("/metrics/")[2]
            for line in file.read_text().splitlines():
                _, value, step, *_ = line.split()
                yield tag, int(step), float(value)


for kind in (of_tensorboard, of_wandb, of_mlflow):
    for tag, step, value in kind(Path(sys.argv[1])):
        if WORD in tag:
            print(kind.__name__[3:], tag, step, value)
