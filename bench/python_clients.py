#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""python_clients.py [MIB [unsigned]] -- compares saves and loads of sidestep with those of stock
torch through s3fs and s3torchconnector, on the store of bench/object_server.c. Prints the median of
3 runs, in seconds. With "unsigned", no client makes a hash of what it sends: the profile says so.

    make && ninja -C build && tools/setup clients
    PYTHONPATH=python SIDESTEP_LIBRARY=$PWD/build/libsidestep.so.0 \\
        .venv/clients/bin/python bench/python_clients.py 1024
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/objects"))
RUNS = 3
TENSORS = 16


def start_store(config):
    process = subprocess.Popen(
        [ROOT / "build/bench/object-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    endpoint = json.loads(process.stdout.readline())["endpoint"]
    os.environ.pop("AWS_CA_BUNDLE", None)
    os.environ.update(
        AWS_ACCESS_KEY_ID="key",
        AWS_SECRET_ACCESS_KEY="of-nobody",
        AWS_REGION="us-east-1",
        AWS_ENDPOINT_URL_S3=endpoint,
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=config,
        AWS_REQUEST_CHECKSUM_CALCULATION="when_required",
        AWS_RESPONSE_CHECKSUM_VALIDATION="when_required",
    )
    return process


def ways():
    """{name: (save, load)}, functions of a URL and a state."""
    import stock
    import torch.distributed.checkpoint as dcp

    import sidestep

    def by_stock(way):
        return (
            lambda url, state: dcp.save(
                state, storage_writer=stock.writer_to(way, url), no_dist=True
            ),
            lambda url, state: dcp.load(
                state, storage_reader=stock.reader_of(way, url), no_dist=True
            ),
        )

    ours = (
        lambda url, state: sidestep.save(state, checkpoint_id=url),
        lambda url, state: sidestep.load(state, checkpoint_id=url),
    )
    return {"sidestep": ours, "s3fs": by_stock("s3fs"), "s3torchconnector": by_stock("connector")}


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(action, url, state):
    began, used = time.perf_counter(), processor_seconds()
    action(url, state)
    return time.perf_counter() - began, processor_seconds() - used


def measure_all(mib):
    import torch

    state = {f"w{i}": torch.full((mib * 262144 // TENSORS,), float(i)) for i in range(TENSORS)}
    found = {}
    for run in range(RUNS):
        for name, (save, load) in ways().items():
            url = f"s3://bench/{name}/step-{run}"
            target = {key: torch.zeros_like(value) for key, value in state.items()}
            found.setdefault((name, "save"), []).append(measure(save, url, state))
            found.setdefault((name, "load"), []).append(measure(load, url, target))
            assert all(torch.equal(target[key], state[key]) for key in state), name
    return found


def main(mib="1024", signing=""):
    warnings.filterwarnings("ignore")
    config = tempfile.NamedTemporaryFile("w")
    if signing == "unsigned":
        config.write("[default]\ns3 =\n    payload_signing_enabled = false\n")
    config.flush()
    store = start_store(config.name)
    try:
        print(f"{mib} MiB {signing}, load average {os.getloadavg()[0]:.0f}, {os.cpu_count()} processors")
        for (name, what), values in measure_all(int(mib)).items():
            times, used = (statistics.median(column) for column in zip(*values))
            print(f"{what} {name:17} {times:6.2f} s, {used:6.2f} s of a processor")
    finally:
        store.stdin.close()
        store.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
