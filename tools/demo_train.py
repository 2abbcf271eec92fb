#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""demo_train.py -- the training of tools/demo: that of examples/train_fsdp.py, with checkpoints by
functions that sidestep and stock torch share, and with measurements of their cost.

Only the import in main() and the lines that call `dcp` use sidestep. With --dcp stock the same
lines call torch.distributed.checkpoint. It runs on CPUs with gloo.
"""

import argparse
import importlib
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from train_fsdp import LanguageModel, batch_of  # noqa: E402


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="the file to train on, of any kind")
    parser.add_argument("--root", required=True, help="directory or URL of the checkpoints")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=8)
    parser.add_argument("--resume", action="store_true", help="resume from the newest checkpoint")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--dcp", choices=("sidestep", "stock"), default="sidestep")
    parser.add_argument("--copy-loaded", help="path to save the loaded state to, unchanged")
    parser.add_argument("--report", type=Path, help="file for losses, times and memory, as JSON")
    parser.add_argument("--weights", help="file for the final weights, written by torch.save()")
    return parser.parse_args()


# ---------------------------------------------------------------- the state and its checkpoints


class Trainer:
    """Model, optimizer and step. It is a Stateful: DCP calls state_dict() and load_state_dict()."""

    def __init__(self, args):
        torch.manual_seed(0)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.model = LanguageModel(args.layers, args.width)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.step = 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]

    def train(self, text):
        """Train one step; return the mean loss over all ranks."""
        self.step += 1
        ids, targets = batch_of(text, self.step)
        loss = F.cross_entropy(self.model(ids), targets.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean)
        return (mean / dist.get_world_size()).item()


def newest(dcp, root):
    """The newest checkpoint under root. Stock torch has no such function, so its users look for
    `.metadata`."""
    if hasattr(dcp, "latest"):
        return dcp.latest(root)
    found = [p.parent for p in Path(root).glob("step-*/.metadata")]
    return max(found, key=lambda path: int(re.sub(r"\D", "", path.name)), default=None)


# ---------------------------------------------------------------- what it costs


class Costs:
    """Time of each step, time of each call, and the peak of memory, on this rank."""

    def __init__(self):
        self.steps, self.calls, self.saves = [], [], []
        self.quiet_peak = self.peak = 0

    def note_step(self, seconds, saving):
        self.steps.append((seconds, saving))

    def note_memory(self, saving):
        peak = peak_memory()
        if not saving:
            self.quiet_peak = max(self.quiet_peak, peak)
        self.peak = max(self.peak, peak)

    def report(self, losses, resumed_from):
        """The report: memory summed over the ranks, calls of the slowest rank. Collective."""
        extra = torch.tensor(float(self.peak - self.quiet_peak))
        dist.all_reduce(extra)
        calls = torch.tensor(self.calls)
        dist.all_reduce(calls, op=dist.ReduceOp.MAX)
        quiet = [seconds for seconds, saving in self.steps[1:] if not saving]
        slower = sum(s - statistics.median(quiet) for s, saving in self.steps if saving)
        return {
            "losses": {step: loss.hex() for step, loss in losses.items()},
            "resumed_from": resumed_from,
            "step_ms": 1e3 * statistics.median(quiet),
            "calls_ms": [1e3 * c for c in calls.tolist()],
            "slowdown_ms": 1e3 * slower / max(1, len(self.calls)),
            "background_ms": [1e3 * s for s in self.saves],
            "extra_bytes": int(extra),
        }


def peak_memory():
    """The peak of this process's resident bytes since the last call (Linux)."""
    with open("/proc/self/status", encoding="ascii") as status:
        peak = int(re.search(r"VmHWM:\s*(\d+)", status.read())[1]) * 1024
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak


# ---------------------------------------------------------------- the run


def main():
    args = options()
    dist.init_process_group("gloo")
    if args.dcp == "stock":
        import torch.distributed.checkpoint as dcp

        # On the default group, its background collectives would mix with those of the training.
        extra = {"process_group": dist.new_group(backend="gloo")}
    else:
        dcp = importlib.import_module("sidestep")
        extra = {}
    text = torch.frombuffer(bytearray(Path(args.text).read_bytes()), dtype=torch.uint8)
    trainer = Trainer(args)
    state = {"trainer": trainer}
    resumed_from = str(newest(dcp, args.root) or "") if args.resume else ""
    if resumed_from:
        dcp.load(state, checkpoint_id=resumed_from)
        if args.copy_loaded:
            dcp.save(state, checkpoint_id=args.copy_loaded)

    costs, losses, pending = Costs(), {}, None
    while trainer.step < args.steps:
        saving = pending is not None and not pending.done()
        start = time.perf_counter()
        loss = trainer.train(text)
        losses[trainer.step] = loss
        costs.note_step(time.perf_counter() - start, saving)
        costs.note_memory(pending is not None)
        if trainer.step % args.save_every == 0:
            if pending is not None:
                pending.result()  # raises the error if the last save failed
            start = time.perf_counter()
            pending = dcp.async_save(
                state, checkpoint_id=f"{args.root}/step-{trainer.step}", **extra
            )
            costs.calls.append(time.perf_counter() - start)
            pending.add_done_callback(
                lambda _, start=start: costs.saves.append(time.perf_counter() - start)
            )
    if pending is not None:
        pending.result()
    costs.note_memory(True)

    report = costs.report(losses, resumed_from)
    weights = get_model_state_dict(
        trainer.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        if args.weights:
            torch.save(weights, args.weights)  # for other tools
        if args.report:
            args.report.write_text(json.dumps(report), encoding="utf-8")
        else:
            print(f"loss {losses[trainer.step]:.4f} at step {trainer.step}")
    dist.destroy_process_group()
    # gloo's threads release the last tensors a moment later. If the interpreter has ended by then,
    # torch aborts the process.
    time.sleep(0.2)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
