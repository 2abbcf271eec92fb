# SPDX-License-Identifier: BSD-3-Clause
"""python_replicas.py -- measures saves of tensors that all ranks have, by 4 ranks on 4 hosts, to a
bucket behind links of a limited rate: each rank writes its share, or rank 0 writes all.

bench/run calls it; it needs root. Hosts are network namespaces, whose links have a token bucket
(tc-tbf). The bucket is bench/object_server.c.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch_support import report, timed

HOSTS, STORE, PORT = 4, "10.78.0.100", 29400
WAYS = {"share": "each rank writes a quarter", "lowest": "rank 0 writes all"}


def address(host):
    return f"10.78.0.{host + 1}"


@contextlib.contextmanager
def network(rate):
    """Hosts of which each has one link, of this rate, to a switch; and a store without a limit. Yields
    the prefix of their names."""
    prefix = f"sidestep-{os.getpid()}-"
    places = {f"host{host}": address(host) for host in range(HOSTS)} | {"store": STORE}

    def ip(where, *words):
        subprocess.run(["ip", "-n", prefix + where, *words], check=True)

    try:
        for place in ("switch", *places):
            subprocess.run(["ip", "netns", "add", prefix + place], check=True)
        ip("switch", "link", "add", "bridge", "type", "bridge")
        ip("switch", "link", "set", "bridge", "up")
        for place, at in places.items():
            ip("switch", "link", "add", place, "type", "veth", "peer", "name", "eth0", "netns", prefix + place)
            ip("switch", "link", "set", place, "master", "bridge", "up")
            ip(place, "address", "add", at + "/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip(place, "link", "set", link, "up")
            if place != "store":
                subprocess.run(["tc", "-n", prefix + place, "qdisc", "add", "dev", "eth0", "root", "tbf",
                                "rate", rate, "burst", "1mb", "latency", "100ms"], check=True)
        yield prefix
    finally:
        for place in ("switch", *places):
            subprocess.run(["ip", "netns", "delete", prefix + place], stderr=subprocess.DEVNULL, check=False)


def save_all(args):
    """A rank: prints the seconds of each save, of the slowest rank."""
    import sidestep

    dist.init_process_group("gloo", init_method=f"tcp://{address(0)}:{PORT}", rank=args.rank, world_size=HOSTS)
    state = {f"w{i}": torch.full((args.mib << 14,), float(i)) for i in range(16)}
    taken = []
    for run in range(args.runs + 1):
        dist.barrier()
        path = f"s3://bench/{args.way}/step-{run}"
        seconds = torch.tensor(timed(lambda: sidestep.save(state, checkpoint_id=path))[0])
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        taken.append(seconds.item())
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    sidestep.load(loaded, checkpoint_id=path)
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    if args.rank == 0:
        print(json.dumps(taken[1:]))  # the first one compares what the ranks have
    dist.destroy_process_group()


def measure(args, prefix, way, endpoint, config):
    """The seconds of the saves by this way."""
    environment = dict(os.environ, SIDESTEP_REPLICAS=way, GLOO_SOCKET_IFNAME="eth0", AWS_REGION="us-east-1",
                       AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="of-nobody", AWS_CONFIG_FILE=config,
                       AWS_ENDPOINT_URL_S3=endpoint, AWS_EC2_METADATA_DISABLED="true")
    ranks = [subprocess.Popen(["ip", "netns", "exec", f"{prefix}host{rank}", sys.executable, __file__,
                               *sys.argv[1:], f"--way={way}", f"--rank={rank}"],
                              env=environment, stdout=subprocess.PIPE, text=True) for rank in range(HOSTS)]
    answers = [rank.communicate()[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), "a rank failed"
    return json.loads(answers[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--rate", default="1gbit", help="of each host's link, as of tc(8)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--way")
    parser.add_argument("--rank", type=int)
    args = parser.parse_args()
    if args.rank is not None:
        save_all(args)
        return
    with network(args.rate) as prefix, tempfile.NamedTemporaryFile("w", suffix=".config") as config:
        store = subprocess.Popen(["ip", "netns", "exec", prefix + "store", args.server, STORE],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        endpoint = json.loads(store.stdout.readline())["endpoint"]
        taken = {way: measure(args, prefix, way, endpoint, config.name) for way in WAYS}
        store.stdin.close()
        store.wait()
    report(f"save by 4 hosts with links of {args.rate}, {WAYS['share']}", "speed", 2, taken["share"],
           WAYS["lowest"], taken["lowest"], args.mib << 20)


if __name__ == "__main__":
    main()
