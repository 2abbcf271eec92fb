# SPDX-License-Identifier: BSD-3-Clause
"""train.py -- real training on one device, killed and resumed: the losses must be those of a
training that nobody killed, to the last bit.

Each variant trains three times, in processes of its own: undisturbed; until it kills itself, a step
after its second save has begun; and from what that left.
"""

import argparse
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import time

import place
import torch

SAVE_EVERY = 3
ASYNC_POOL = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
VARIANTS = {  # the most telling first
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "fsdp": {"fsdp": True},
    "fp8": {"fp8": True},
    "graph": {"graph": True, "capturable": True},
    "expandable segments": {"foreach": True, "env": EXPANDABLE},
    "cudaMallocAsync": {"foreach": True, "env": ASYNC_POOL},
    "scaler": {"scaler": True},
    "fsdp, two ranks on one device": {"fsdp": True, "ranks": 2},
    "activation checkpointing": {"fused": True, "recompute": True},
    "cpu offload": {"fsdp": True, "offload": True},
    "compile": {"fused": True, "compile": True},
}
ON_CPU = (
    *("foreach", "fused", "fsdp", "fp8", "scaler", "fsdp, two ranks on one device"),
    *("activation checkpointing", "compile"),
)
"""Of which a rehearsal is possible."""


class Layer(torch.nn.Module):
    """With statistics that change in forward, in FP8 if that is wanted."""

    def __init__(self, width, fp8, recompute):
        super().__init__()
        self.linear, self.recompute = torch.nn.Linear(width, width), recompute
        self.register_buffer("average", torch.zeros(width))
        if fp8:
            self.register_buffer("seen", torch.zeros(width, dtype=torch.float8_e4m3fn))
            self.register_buffer("scale", torch.ones(1, dtype=torch.float8_e8m0fnu))

    def forward(self, x):
        if self.recompute:
            y = torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)
        else:
            y = self.linear(x)
        with torch.no_grad():
            mean = y.float().mean(0)
            self.average.lerp_(mean.to(self.average.dtype), 0.1)
            if hasattr(self, "seen"):
                self.seen.copy_(mean.to(self.seen.dtype))
                self.scale.copy_(mean.abs().max().reshape(1).to(self.scale.dtype))
        return torch.nn.functional.gelu(y) + x


class Training:
    """One incarnation of a variant."""

    def __init__(self, device, width, options):
        self.device, self.width, self.options = device, width, options
        torch.manual_seed(1)
        flags = options.get("fp8"), options.get("recompute")
        model = torch.nn.Sequential(*(Layer(width, *flags) for _ in range(6)))
        half = torch.float32 if options.get("scaler") else torch.bfloat16
        for layer in model:
            layer.linear.to(half)
        # With offload, parameters have to begin on the host; buffers follow in shard().
        self.dtype, self.model = half, model.to("cpu" if options.get("offload") else device)
        if options.get("fsdp"):
            self.shard()
        kinds = {k: True for k in ("foreach", "fused", "capturable") if options.get(k)}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **kinds)
        self.scaler = None
        if options.get("scaler"):
            self.scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=4)
        self.run = torch.compile(self.model) if options.get("compile") else self.model

    def shard(self):
        from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

        more = {}
        if self.options.get("offload"):
            more["offload_policy"] = CPUOffloadPolicy(pin_memory=True)
        mesh = torch.distributed.init_device_mesh(
            self.device, (torch.distributed.get_world_size(),)
        )
        for layer in self.model:
            fully_shard(layer.linear, mesh=mesh, **more)
            layer.average = layer.average.to(self.device)

    def batch(self, step):
        numbers = torch.Generator().manual_seed(step)
        x = torch.randn(32, self.width, generator=numbers)
        return x.to(self.device, self.dtype)

    def backward(self, x):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.scaler is not None):
            loss = self.run(x).float().square().mean()
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        return loss.detach()

    def step(self, number):
        """The loss, on the device."""
        self.optimizer.zero_grad()
        loss = self.backward(self.batch(number))
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        return loss

    def capture(self):
        """From now on a step is the replay of a graph."""
        x = self.batch(0)
        self.optimizer.zero_grad(set_to_none=False)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.optimizer.zero_grad(set_to_none=False)
            loss = self.backward(x)
            self.optimizer.step()

        def replay(number):
            x.copy_(self.batch(number))
            graph.replay()
            return loss.clone()

        self.step = replay

    def warm_up(self):
        """What a graph needs before it is captured; done by each incarnation."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for number in range(3):
                self.step(-1 - number)
        torch.cuda.current_stream().wait_stream(side)


def join_group(device, rank, ranks, folder):
    backend = f"cpu:gloo,{device}:gloo" if device != "cpu" and ranks > 1 else None
    backend = backend or ("gloo" if device == "cpu" else "cpu:gloo,cuda:nccl")
    store = torch.distributed.FileStore(f"{folder}/store", ranks)
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=ranks)


def incarnation(plan, rank, folder, kill_at):
    """Train from what is under ``folder``/root to the end, or to ``kill_at``."""
    import sidestep

    options = VARIANTS[plan["variant"]]
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    if plan["device"] == "cpu":
        torch.set_num_threads(1)
    if options.get("fsdp"):
        join_group(plan["device"], rank, options.get("ranks", 1), folder)
    training = Training(plan["device"], plan["width"], options)
    if options.get("graph"):
        training.warm_up()
    more = {"scaler": training.scaler} if training.scaler else {}
    state = sidestep.TrainState(training.model, training.optimizer, **more)
    alone = {} if options.get("fsdp") else {"no_dist": True}
    losses = []
    with (
        open(f"{folder}/losses{rank}", "a") as file,
        sidestep.Checkpointer(f"{folder}/root", interval=SAVE_EVERY, **alone) as checkpoints,
    ):
        checkpoints.resume(state)
        file.write(f"from {state.step}\n")
        if options.get("graph"):
            training.capture()
        if plan.get("spoil") and state.step:
            with torch.no_grad():
                next(training.model.parameters()).mul_(1.5)
        while state.step < plan["steps"]:
            losses.append((state.step, training.step(state.step)))
            state.step += 1
            while losses and (len(losses) > 2 or state.step == plan["steps"]):
                number, loss = losses.pop(0)  # two steps late, so that nothing waits for the device
                file.write(f"{number} {float(loss).hex()}\n")
            file.flush()
            if state.step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if checkpoints.should_save(state.step):
                checkpoints.save(state.step, state)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def incarnate(plan, folder, kill_at, ends):
    """Run all ranks; how they ended."""
    options = VARIANTS[plan["variant"]]
    env = options.get("env", {})
    # Some settings of the allocator are read when torch is loaded.
    context = multiprocessing.get_context("spawn" if env else "fork")
    os.environ.update(env)
    with contextlib.suppress(OSError):
        os.remove(f"{folder}/store")
    ranks = [
        context.Process(target=incarnation, args=(plan, rank, folder, kill_at))
        for rank in range(options.get("ranks", 1))
    ]
    for process in ranks:
        process.start()
    for name in env:
        del os.environ[name]
    try:
        ranks[0].join(max(1, ends - time.monotonic()))
        for process in ranks[1:]:
            process.join(1 if kill_at else 20)
    finally:
        for process in ranks:
            process.kill()
            process.join()
    return ranks[0].exitcode


def losses_of(folder):
    """{step: losses seen, as text}, and where the last incarnation began."""
    found, began = {}, None
    with open(f"{folder}/losses0") as file:
        for line in file:
            key, value = line.split()
            if key == "from":
                began = int(value)
            else:
                found.setdefault(int(key), set()).add(value)
    return found, began


def compare(plan, ends):
    """Train undisturbed, and killed and resumed."""
    figures = {"variant": plan["variant"], "device": plan["device"]}
    with tempfile.TemporaryDirectory(dir=place.scratch(1 << 30)) as folder:
        for name in ("whole", "killed"):
            os.mkdir(f"{folder}/{name}")
        kill_at = 2 * SAVE_EVERY + 1
        for name, at, wanted in (
            ("whole", None, 0),
            ("killed", kill_at, -signal.SIGKILL),
            ("killed", None, 0),
        ):
            code = incarnate(plan, f"{folder}/{name}", at, ends)
            if time.monotonic() > ends:
                return {**figures, "skipped": "no time was left"}
            if code != wanted:
                why = f"{name}, to be killed at {at}: ended with {code} instead of {wanted}"
                return {**figures, "ok": False, "why": why}
        (whole, _), (killed, began) = map(losses_of, (f"{folder}/whole", f"{folder}/killed"))
    differ = [step for step in whole if killed.get(step, whole[step]) != whole[step]]
    complete = set(range(began, plan["steps"])) <= set(killed)
    good = not differ and complete and began > 0 and len(whole) == plan["steps"]
    return {**figures, "ok": good, "resumed_from": began, "differ": differ}


def control(plan, ends):
    """The negative control: a resume that changes one tensor must be seen in the losses."""
    figures = compare({**plan, "spoil": True}, ends)
    if "differ" in figures:
        figures["ok"] = bool(figures["differ"])
    place.say("training control", **figures)


def report(plan, ends):
    """Compare, if there is time for it."""
    if time.monotonic() > ends:
        place.say("training", variant=plan["variant"], skipped="no time was left")
    else:
        place.say("training", **compare(plan, ends))


def run_together(work, at_once, ends):
    """Run [(function, plan)], each in a process, so many at once. No time is measured here."""
    context = multiprocessing.get_context("fork")
    running = []
    for function, plan in work:
        while len(running) >= at_once:
            multiprocessing.connection.wait([process.sentinel for process in running])
            running = [process for process in running if process.is_alive()]
        running.append(context.Process(target=function, args=(plan, ends)))
        running[-1].start()
    for process in running:
        process.join()


def main(arguments=None):
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), default=None)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--width", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--at-once", type=int, default=None, help="trainings at a time")
    options = parser.parse_args(arguments)
    options.at_once = options.at_once or (6 if options.device == "cuda" else 1)
    ends = time.monotonic() + options.seconds
    names = options.variant or (VARIANTS if options.device == "cuda" else ON_CPU)
    width = options.width or (2048 if options.device == "cuda" else 32)
    plan = {"device": options.device, "steps": options.steps, "width": width}
    work = [(control, {**plan, "variant": "foreach"})]
    work += [(report, {**plan, "variant": name}) for name in names]
    run_together(work, options.at_once, ends)


if __name__ == "__main__":
    main()
