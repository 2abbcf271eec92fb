#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stock torch with what others wrote for object stores; without sidestep. In .venv/clients.

stock.py save WAY PLACE         saves a state
stock.py load WAY PLACE COPY    loads every tensor and object; fails unless it is what the
                                checkpoint in the folder COPY holds, bit for bit
WAY: files, s3fs (FsspecWriter and FsspecReader), connector (of s3torchconnector)
"""

import os
import sys

import torch
import torch.distributed.checkpoint as dcp

PARTS = {"default_block_size": 5 << 20}  # of uploads; the least that stores take


def writer_to(way, place):
    if way == "files":
        return dcp.FileSystemWriter(place)
    if way == "s3fs":
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

        return FsspecWriter(place, sync_files=False, endpoint_url=endpoint(), **PARTS)
    import s3torchconnector.dcp

    return s3torchconnector.dcp.S3StorageWriter(region(), place, **connector())


def reader_of(way, place):
    if way == "files":
        return dcp.FileSystemReader(place)
    if way == "s3fs":
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

        return FsspecReader(place, endpoint_url=endpoint())
    import s3torchconnector.dcp

    return s3torchconnector.dcp.S3StorageReader(region(), place, **connector())


def endpoint():
    return os.environ["AWS_ENDPOINT_URL_S3"]


def region():
    return os.environ["AWS_REGION"]


def connector():
    from s3torchconnector import S3ClientConfig

    os.environ["AWS_ENDPOINT_URL"] = endpoint()
    return {"s3client_config": S3ClientConfig(force_path_style=True)}


def make_state():
    made = torch.Generator().manual_seed(1)
    return {
        "model": {
            "w": torch.randn(3_000_000, generator=made),
            "b": torch.randn(7, 5, generator=made).to(torch.bfloat16),
            "empty": torch.empty(0, 4),
            "flag": torch.tensor(True),
        },
        "step": 7,
    }


def load_all(reader):
    state = {
        name: torch.empty(item.size, dtype=item.properties.dtype) if hasattr(item, "size") else None
        for name, item in reader.read_metadata().state_dict_metadata.items()
    }
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state


def bytes_of(value):
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def check_same(found, expected):
    assert found.keys() == expected.keys() and len(found) > 3
    for name, value in found.items():
        assert bytes_of(value) == bytes_of(expected[name]), name


def main(command, way, place, copy=None):
    if command == "save":
        dcp.save(make_state(), storage_writer=writer_to(way, place), no_dist=True)
    else:
        check_same(load_all(reader_of(way, place)), load_all(reader_of("files", copy)))


if __name__ == "__main__":
    main(*sys.argv[1:])
