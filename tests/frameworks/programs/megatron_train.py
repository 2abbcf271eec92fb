# SPDX-License-Identifier: BSD-3-Clause
"""A loop with Megatron-core's dist_checkpointing on processors, as Megatron-LM uses it: a model
that the ranks share, an iteration's directory that is made before, and a file that names the last
iteration whose save is complete.  To be run under torchrun.

    megatron_train.py DIRECTORY STEPS [NAME=VALUE ...]

save=stock, load=stock  Megatron's own strategies; parallel: in its FullyParallel wrappers; else
            sidestep's.  With by=names, those that Megatron has by default now
async=true  with Megatron's AsyncCallsQueue
kill=STEP   SIGKILL to this rank a step after the save of STEP has begun
rng=false   the random numbers, which each rank has of its own, are neither saved nor loaded
stop=true   do not train: only load
It saves every second step, and prints "loss STEP VALUE" for each, "loaded STEP DIGEST", "saved BY",
"open STEP" where the save before is under way after a step, and "done STEP".
"""

import hashlib
import os
import random
import signal
import sys

import torch
from megatron.core import dist_checkpointing as mcore
from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.optimizer import (
    get_param_id_to_sharded_param_map,
    optim_state_to_sharding_state,
)
from megatron.core.dist_checkpointing.serialization import get_default_save_sharded_strategy
from megatron.core.dist_checkpointing.strategies import common as common_home
from megatron.core.dist_checkpointing.strategies import fully_parallel
from megatron.core.dist_checkpointing.strategies import torch as home
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from megatron.core.dist_checkpointing.strategies.base import StrategyAction, get_default_strategy

options = dict(word.split("=", 1) for word in sys.argv[3:])
directory, steps = sys.argv[1], int(sys.argv[2])
TRACKER = os.path.join(directory, "latest_checkpointed_iteration.txt")
torch.cuda.synchronize = lambda *_: None  # its queue asks for the GPU
torch.cuda.current_device = lambda: "cpu"
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def strategies():
    """(for saves, for sharded loads, for common loads)."""
    if options.get("by") == "names":
        ours = theirs = (home, common_home)
    else:
        import sidestep.megatron

        ours, theirs = (sidestep.megatron, sidestep.megatron), (home, common_home)
    save = (theirs if options.get("save") == "stock" else ours)[0]
    load, common = theirs if options.get("load") == "stock" else ours
    found = [
        save.TorchDistSaveShardedStrategy("torch_dist", 1),
        load.TorchDistLoadShardedStrategy(),
        common.TorchCommonLoadStrategy(),
    ]
    if options.get("by") == "names":  # as Megatron-LM and verl do
        found[0] = get_default_save_sharded_strategy("torch_dist")
        found[2] = get_default_strategy(StrategyAction.LOAD_COMMON, "torch", 1)
    if options.get("save") == "parallel":
        found[0] = fully_parallel.FullyParallelSaveStrategyWrapper(found[0])
    if options.get("load") == "parallel":
        found[1] = fully_parallel.FullyParallelLoadStrategyWrapper(
            found[1],
            exchange_algo="gather_object",  # its others need a GPU
        )
    return found


class Model(torch.nn.Module):
    """Rows of one weight are on each rank, one layer on each, and a bias is on all."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        rows = torch.randn(24, 8).chunk(WORLD)[RANK]
        layers = torch.randn(2, 8).chunk(WORLD)[RANK]
        self.rows = torch.nn.Parameter(rows.clone())
        self.layers = torch.nn.ParameterList(one.clone() for one in layers)
        self.bias = torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(x * layer)
        return (x @ self.rows.T).square().mean() + (x - self.bias).square().mean()

    def sharded(self):
        state = {
            "rows": ShardedTensor.from_rank_offsets("rows", self.rows, (0, RANK, WORLD)),
            "bias": ShardedTensor.from_rank_offsets("bias", self.bias, replica_id=RANK),
        }
        for i, layer in enumerate(self.layers):
            place = (0, RANK * len(self.layers) + i, 2)
            state[f"layers.{i}"] = ShardedTensor.from_rank_offsets(
                "layers", layer, place, prepend_axis_num=1
            )
        return state


def random_numbers():
    return {"torch": torch.get_rng_state(), "python": random.getstate()}


def state_of(model, optimizer, step):
    names = model.sharded()
    moments = optimizer.state_dict()
    optim_state_to_sharding_state(
        moments, get_param_id_to_sharded_param_map(names, model.parameters())
    )
    state = {"model": names, "optimizer": moments, "step": step, "words": ["a", 2.5]}
    if options.get("rng") != "false":
        state["rng"] = ShardedObject("rng", random_numbers(), (WORLD,), (RANK,))
    return state


def path_of(step):
    return os.path.join(directory, f"iter_{step:07d}")


def digest(loaded):
    """Of all that was loaded."""
    tensors = [loaded["model"][name] for name in sorted(loaded["model"])]
    moments = loaded["optimizer"]["state"]
    tensors += [moments[number]["momentum_buffer"] for number in sorted(moments)]
    hashed = hashlib.sha256(repr((loaded["step"], loaded["words"])).encode())
    for tensor in tensors:
        hashed.update(tensor.detach().contiguous().numpy().tobytes())
    hashed.update(repr(loaded["rng"]).encode() if "rng" in loaded else b"")
    return hashed.hexdigest()


def resume(model, optimizer, load_strategy, common_strategy):
    if not os.path.exists(TRACKER):
        return 0
    with open(TRACKER) as file:
        step = int(file.read())
    state = mcore.load(state_of(model, optimizer, 0), path_of(step), load_strategy, common_strategy)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(state["model"][name])
    optimizer.load_state_dict(state["optimizer"])
    if "rng" in state:
        torch.set_rng_state(state["rng"]["torch"])
        random.setstate(state["rng"]["python"])
    sys.stdout.write(f"loaded {step} {RANK} {digest(state)}\n")
    return state["step"]


def save(queue, strategy, state, step):
    if RANK == 0:
        os.makedirs(path_of(step), exist_ok=True)
    torch.distributed.barrier()
    is_async = bool(options.get("async"))
    request = mcore.save(state, path_of(step), strategy, async_sharded_save=is_async)

    def complete():
        if RANK == 0:
            with open(TRACKER, "w") as file:
                file.write(str(step))
            print("done", step, flush=True)

    if not is_async:
        complete()
        return
    request.add_finalize_fn(complete)
    queue.schedule_async_request(request)


def main():
    torch.distributed.init_process_group("gloo")
    saving, loading, common = strategies()
    if RANK == 0:
        print("saved", type(getattr(saving, "base_strategy", saving)).__module__, flush=True)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # so that it has states to load into
    torch.manual_seed(RANK + 2)
    random.seed(RANK)
    queue = AsyncCallsQueue()
    step = resume(model, optimizer, loading, common)
    while step < steps and not options.get("stop"):
        x = torch.randn(4, 8) + random.random()
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        torch.distributed.all_reduce(model.bias.grad)
        optimizer.step()
        step += 1
        total = loss.detach().double()
        torch.distributed.all_reduce(total)
        if RANK == 0:
            print("loss", step, total.item().hex(), flush=True)
        if options.get("kill") == str(step - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        queue.maybe_finalize_async_calls(blocking=step % 2 == 0)
        if RANK == 0 and queue.get_num_unfinalized_calls():
            print("open", step, flush=True)
        if step % 2 == 0:
            random.seed(step + RANK)
            save(queue, saving, state_of(model, optimizer, step), step)
    queue.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":  # Megatron's own save starts processes that import this file
    main()
