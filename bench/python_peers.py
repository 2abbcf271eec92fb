# SPDX-License-Identifier: BSD-3-Clause
"""python_peers.py -- compares sidestep with other programs that save and load states of torch.

bench/run calls it; it needs .venv/peers (tools/setup peers). The state is that of python_bench.py.
Every program saves and loads the same tensors in turns, on the same disk. A program "without fsync"
returns before its bytes are on the disk; with "and fsync", the files are synced after it.
"""
import argparse
import functools
import os
import pathlib
import time
import warnings

import torch
import torch.distributed.checkpoint as stock
from python_bench import Bench
from torch_support import drop_from_cache, timed

import sidestep


def sync_below(path):
    for folder, _, files in os.walk(path):
        for file in files:
            fd = os.open(os.path.join(folder, file), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def flat(state, prefix=""):
    for key, value in state.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


class Peers(Bench):
    """The rows. A way is a function that saves or loads once, by sidestep or by another program."""

    def __init__(self, args):
        super().__init__(args, 0, None)
        self.prefix = "peers: "
        self.flat = dict(flat(self.state))

    @staticmethod
    def manager(saver):
        """A manager of torch-checkpointing, whose default, O_DIRECT, fails on ext4."""
        from torch_checkpointing import CheckpointManager
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

        storage = LocalFileSystemStorageConfig(use_direct_io=False)
        return CheckpointManager(CheckpointManager.Config(save=saver, storage_config=storage))

    def compare(self, what, kind, ours, others):
        """Print a row for each of the others, {name: function that returns seconds}."""
        functions = [ours, *others.values()]
        for function in functions:
            function()  # allocates what is reused
        mine, *theirs = self.turns(*functions)
        for name, sample in zip(others, theirs):
            self.report(what, kind, 0.0, mine, name, sample, 0 if kind == "stall" else None)

    # ------------------------------------------------------------ ways to save

    def save(self):
        from lm_resiliency.checkpointing.disk import _atomic_torch_save
        from safetensors.torch import save_file
        from torch_checkpointing import SyncCheckpointSaverConfig

        path = self.path("peers")
        manager = self.manager(SyncCheckpointSaverConfig())
        os.makedirs(path)

        def run(way):
            seconds = timed(way)[0]
            self.clean(path)
            os.makedirs(path)
            return seconds

        def threads(count):
            writer = stock.FileSystemWriter(path, thread_count=count)
            return stock.save(self.state, storage_writer=writer)

        ways = {
            "dcp.save": lambda: stock.save(self.state, checkpoint_id=path),
            "dcp.save, thread_count=2": lambda: threads(2),
            "lm-resiliency's file": lambda: _atomic_torch_save(self.state, pathlib.Path(path, "c.pt")),
        }
        without_fsync = {
            "torch-checkpointing": lambda: manager.save(path + "/c", self.state),
            "safetensors": lambda: save_file(self.flat, path + "/c.safetensors"),
        }
        for name, way in without_fsync.items():
            ways[name + ", without fsync"] = way
            ways[name + " and fsync"] = lambda way=way: (way(), sync_below(path))
        self.compare("save", "speed", functools.partial(run, lambda: sidestep.save(self.state, checkpoint_id=path + "/c")),
                     {name: functools.partial(run, way) for name, way in ways.items()})
        manager.close()
        self.clean(path)

    def hold(self):
        """The seconds until the trainer may change its tensors."""
        from torch_checkpointing import AsyncCheckpointSaverConfig

        path = self.path("peers-held")
        variants = self.stock_variants()
        manager = self.manager(AsyncCheckpointSaverConfig())

        def run(begin, may_change, done):
            began = time.monotonic()
            answer = begin()
            may_change(answer)
            seconds = time.monotonic() - began
            done(answer)
            self.clean(path)
            return seconds

        def copied(_):
            manager._staging_future.result()  # no public call waits for the copy alone

        ways = {"async_save, " + name: (functools.partial(save, self.state, checkpoint_id=path), self.staged, self.finish)
                for name, (save, _) in variants.items()}
        ways["torch-checkpointing"] = (functools.partial(manager.save, path, self.state), copied,
                                       lambda answer: answer.result())
        ours = (functools.partial(sidestep.async_save, self.state, checkpoint_id=path), self.staged, self.finish)
        self.compare("held until it may change", "stall", functools.partial(run, *ours),
                     {name: functools.partial(run, *way) for name, way in ways.items()})
        manager.close()
        for _, close in variants.values():
            close()

    # ------------------------------------------------------------ ways to load

    def load(self):
        from runai_model_streamer import SafetensorsStreamer
        from safetensors.torch import load_file, save_file
        from torch_checkpointing import SyncCheckpointSaverConfig

        path = self.path("peers-load")
        os.makedirs(path)
        manager = self.manager(SyncCheckpointSaverConfig())
        names = {"ours": path + "/ours", "manager": path + "/manager", "file": path + "/c.safetensors"}
        sidestep.save(self.state, checkpoint_id=names["ours"])
        manager.save(names["manager"], self.state)
        save_file(self.flat, names["file"])

        def fill(pairs):
            for name, tensor in pairs:
                self.flat[name].copy_(tensor)

        def stream():
            with SafetensorsStreamer() as streamer:
                streamer.stream_file(names["file"])
                fill(streamer.get_tensors())

        ours = functools.partial(sidestep.load, self.state, checkpoint_id=names["ours"])
        ways = {
            "dcp.load": (lambda: stock.load(self.state, checkpoint_id=names["ours"]), "ours"),
            "torch-checkpointing": (lambda: manager.load(names["manager"], into=self.state), "manager"),
            "safetensors.load_file, copied": (lambda: fill(load_file(names["file"]).items()), "file"),
            "runai-model-streamer, copied": (stream, "file"),
        }

        def run(way, place, is_cold):
            if is_cold:
                drop_from_cache(names[place])
            return timed(way)[0]

        for what, is_cold in (("load, page cache", False), ("load, cold", True)):
            self.compare(what, "speed", functools.partial(run, ours, "ours", is_cold),
                         {name: functools.partial(run, way, place, is_cold) for name, (way, place) in ways.items()})
        manager.close()
        self.clean(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("parts", nargs="*", default=["save", "hold", "load"])
    args = parser.parse_args()
    args.tensors, args.ranks = 300, 1
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    peers = Peers(args)
    for part in args.parts:
        getattr(peers, part)()


if __name__ == "__main__":
    main()
