"""python_scale.py DIRECTORY -- counts the opens, reads and bytes of one rank in stock's dcp.load, for
the checkpoints of-N that `sidestep-bench scale-load` left in DIRECTORY. Prints one line of JSON per
figure.

The process group is a fake one: each sampled rank loads alone, with no_dist. That is the same work
as in a real group, because every rank of stock reads .metadata and plans from it.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

TENSORS = 50
COLUMNS = 8
PARTS = {"own part": 1, "same part": 1, "resharded to half": 2}
opened = []


def listen(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        opened.append(os.fsdecode(arguments[0]))


def read_calls():
    """(read system calls, bytes) of this process."""
    with open("/proc/self/io", encoding="ascii") as file:
        fields = dict(line.split(": ") for line in file)
    return int(fields["syscr"]), int(fields["rchar"])


def load(path, savers, loaders, rank, part):
    """(opens, reads, bytes) of one rank."""
    dist.init_process_group("fake", store=FakeStore(), rank=0 if part == "same part" else rank,
                            world_size=loaders)
    mesh = init_device_mesh("cpu", (loaders,))
    rows = PARTS[part]
    state = {f"model.layers.{t // 12}.mlp.weight.{t}":
             DTensor.from_local(torch.zeros(rows, COLUMNS), mesh, [Shard(0)], run_check=False,
                                shape=torch.Size((savers, COLUMNS)), stride=(COLUMNS, 1))
             for t in range(TENSORS)}
    opened.clear()
    calls, length = read_calls()
    dcp.load(state, checkpoint_id=path, no_dist=True)
    calls_after, length_after = read_calls()
    dist.destroy_process_group()
    ours = [name for name in opened if name.startswith(path)]
    return len(ours), calls_after - calls, length_after - length


def main():
    directory = sys.argv[1]
    sys.addaudithook(listen)
    load(os.path.join(directory, "of-64"), 64, 64, 0, "own part")  # imports modules
    for savers in (64, 256, 1024, 4096):
        path = os.path.join(directory, f"of-{savers}")
        for part, rows in PARTS.items():
            loaders = savers // rows
            ranks = [0, 1, (loaders - 1) // 2, loaders - 1]
            figures = zip(*(load(path, savers, loaders, rank, part) for rank in ranks))
            for what, samples in zip(("opens", "reads", "bytes"), figures):
                what = f"stock's load by {loaders} ranks, {part}: {what} of a rank"
                row = {"what": what, "kind": "count", "goal": 0, "bytes": 0, "ours": samples}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
