#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""python_clients.py [MIB] [unsigned] [tls] [delay=MS] -- compares saves and loads of sidestep with
those of stock torch through s3fs and s3torchconnector, and with boto3's transfer manager and
`aws s3 cp`, which only copy a file of the same size, in memory. The store is that of
bench/object_server.c. Prints the median of 3 runs, in seconds.

unsigned: no client makes a hash of what it sends, because the profile says so.
tls: over HTTPS; stunnel is in front of the store. Needs root: s3torchconnector trusts only the
system's certificates, so the authority of this run is added to them, for these programs alone.
delay=MS: the store waits so long before each answer.

    make && ninja -C build && tools/setup clients
    PYTHONPATH=python SIDESTEP_LIBRARY=$PWD/build/libsidestep.so.0 \\
        .venv/clients/bin/python bench/python_clients.py 1024
"""

import filecmp
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/objects"))
RUNS = 3
TENSORS = 16
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"  # which s3torchconnector reads, whatever is set
STUNNEL = """foreground = yes
pid =
[store]
accept = 127.0.0.1:{port}
connect = {store}
cert = {folder}/server.pem
key = {folder}/server.key
"""


def in_own_mounts():
    """Runs this program again where it may lay a file over one of the system."""
    if os.environ.get("SIDESTEP_BENCH_MOUNTS") is None:
        os.environ["SIDESTEP_BENCH_MOUNTS"] = "own"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])


def start_tls(endpoint, folder):
    """Starts stunnel in front of the store. Returns its process and its endpoint."""
    from strict import tls

    authority, _ = tls.make(folder, ["localhost"])
    bundle = pathlib.Path(folder, "bundle.pem")
    bundle.write_text(pathlib.Path(TRUSTED).read_text() + pathlib.Path(authority).read_text())
    subprocess.run(["mount", "--bind", bundle, TRUSTED], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = pathlib.Path(folder, "stunnel.conf")
    store = endpoint.removeprefix("http://")
    settings.write_text(STUNNEL.format(port=port, store=store, folder=folder))
    process = subprocess.Popen(["stunnel4", settings], stderr=subprocess.DEVNULL)
    while True:
        assert process.poll() is None, "stunnel did not start"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"https://127.0.0.1:{port}"
        time.sleep(0.05)


def start_store():
    process = subprocess.Popen(
        [ROOT / "build/bench/object-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, json.loads(process.stdout.readline())["endpoint"]


def use_store(endpoint, config):
    os.environ.pop("AWS_CA_BUNDLE", None)
    if endpoint.startswith("https:"):
        os.environ["AWS_CA_BUNDLE"] = TRUSTED
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


def ways_of_files(file, copy):
    """{name: (save, load)}, functions of a key: ``file`` to the bucket, and from there to ``copy``."""
    import boto3

    client = boto3.client("s3")

    def aws(source, destination):
        subprocess.run(
            ["aws", "s3", "cp", "--only-show-errors", "--endpoint-url", client.meta.endpoint_url]
            + [source, destination],
            check=True,
        )

    return {
        "boto3": (
            lambda key: client.upload_file(file, "bench", key),
            lambda key: client.download_file("bench", key, copy),
        ),
        "aws s3 cp": (
            lambda key: aws(file, f"s3://bench/{key}"),
            lambda key: aws(f"s3://bench/{key}", copy),
        ),
    }


def processor_seconds():
    """Of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measure(action, *arguments):
    began, used = time.perf_counter(), processor_seconds()
    action(*arguments)
    return time.perf_counter() - began, processor_seconds() - used


def measure_all(mib, memory):
    import torch

    state = {f"w{i}": torch.full((mib * 262144 // TENSORS,), float(i)) for i in range(TENSORS)}
    found = {}
    file, copy = (os.path.join(memory, name) for name in ("file", "copy"))
    pathlib.Path(file).write_bytes(os.urandom(1 << 20) * mib)
    for run in range(RUNS):
        for name, (save, load) in ways().items():
            url = f"s3://bench/{name}/step-{run}"
            target = {key: torch.zeros_like(value) for key, value in state.items()}
            found.setdefault((name, "save"), []).append(measure(save, url, state))
            found.setdefault((name, "load"), []).append(measure(load, url, target))
            assert all(torch.equal(target[key], state[key]) for key in state), name
        for name, (save, load) in ways_of_files(file, copy).items():
            found.setdefault((name, "save"), []).append(measure(save, name))
            found.setdefault((name, "load"), []).append(measure(load, name))
            assert filecmp.cmp(file, copy, shallow=False), name
            os.unlink(copy)
    return found


def print_all(mib, words, folder):
    config = os.path.join(folder, "config")
    signing = "s3 =\n    payload_signing_enabled = false\n" if "unsigned" in words else ""
    pathlib.Path(config).write_text(f"[default]\n{signing}")
    front = None
    store, endpoint = start_store()
    try:
        for delay in (word for word in words if word.startswith("delay=")):
            urllib.request.urlopen(f"{endpoint}/!delay?ms={delay[6:]}").close()
        if "tls" in words:
            front, endpoint = start_tls(endpoint, folder)
        use_store(endpoint, config)
        said = " ".join([f"{mib} MiB", *words])
        print(f"{said}, load average {os.getloadavg()[0]:.0f}, {os.cpu_count()} processors")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            found = measure_all(mib, memory)
        for (name, what), values in found.items():
            times, used = (statistics.median(column) for column in zip(*values))
            print(f"{what} {name:17} {times:6.2f} s, {used:6.2f} s of a processor")
    finally:
        if front is not None:
            front.kill()
            front.wait()
        store.stdin.close()
        store.wait()


def main(words):
    warnings.filterwarnings("ignore")
    if "tls" in words:
        in_own_mounts()
    mib = int(words.pop(0)) if words and words[0].isdecimal() else 1024
    unknown = [word for word in words if word not in ("unsigned", "tls") and not re.fullmatch(r"delay=\d+", word)]
    if unknown:
        sys.exit(f"{unknown[0]}: not one of unsigned, tls, delay=MS")
    with tempfile.TemporaryDirectory() as folder:
        print_all(mib, words, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
