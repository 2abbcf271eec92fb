# SPDX-License-Identifier: BSD-3-Clause
"""On a machine with a GPU: torch's tensors and streams, NVIDIA's driver. `make check-gpu`."""

import ctypes
import os

import pytest
import torch

import sidestep
from sidestep._torch import fence as _fence

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
MIB = 1 << 20


@pytest.fixture
def fenced():
    """Optimizers wait for saves."""
    sidestep.fence_optimizers()
    yield _fence.fences
    sidestep.fence_optimizers(False)


def model_and_optimizer(width=1024, **options):
    """A model on the device, and an optimizer with moments."""
    layers = [torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width)] * 2
    model = torch.nn.Sequential(*layers).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, **options)


def step(model, optimizer, width=1024):
    """One step of training."""
    model(torch.randn(64, width, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def save(model, path):
    return sidestep.async_save(model.state_dict(), checkpoint_id=path, no_dist=True)


def state_of(model, optimizer):
    return {"model": model.state_dict(), "optim": optimizer.state_dict()}


def copies(values):
    """Copies of all tensors, in host memory."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().clone()
    if isinstance(values, dict):
        return {key: copies(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [copies(value) for value in values]
    return values


def assert_saved(path, wanted):
    """Check that every byte of the checkpoint equals ``wanted``."""
    found = sidestep.read(path)

    def compare(name, value, there):
        if isinstance(value, torch.Tensor):
            assert torch.equal(there.cpu(), value), name
        elif isinstance(value, dict):
            for key, item in value.items():
                compare(f"{name}.{key}", item, there[key])

    compare("", wanted, found)


def test_doctor_and_addresses():
    tensor = torch.ones(3, device="cuda")
    from sidestep._c.library import lib

    assert lib().sidestep_device_of(tensor.data_ptr()) == tensor.device.index
    assert lib().sidestep_device_of(torch.ones(3).data_ptr()) == -1
    assert lib().sidestep_device_of(ctypes.addressof(ctypes.c_int())) == -1


@pytest.mark.parametrize("fence", [False, True])
def test_every_byte_is_of_its_step(tmp_path, fence):
    """A trainer that goes on at once: BatchNorm changes in forward, parameters in the step."""
    sidestep.fence_optimizers(fence)
    try:
        model, optimizer = model_and_optimizer()
        step(model, optimizer)
        for number in range(6):
            step(model, optimizer)
            values = state_of(model, optimizer)
            wanted = copies(values)
            handle = sidestep.async_save(values, checkpoint_id=tmp_path / str(number), no_dist=True)
            for _ in range(3):
                step(model, optimizer)
            handle.result()
            assert_saved(tmp_path / str(number), wanted)
            progress = handle.progress()
            assert progress.device_bytes > 0
            assert (progress.fenced_bytes > 0) is fence, progress
    finally:
        sidestep.fence_optimizers(False)


def test_parameters_rewritten_right_behind_the_fence(tmp_path):
    tensors = {f"p{i}": torch.full((4 * MIB,), 1.0, device="cuda") for i in range(16)}
    optimizer = torch.optim.SGD([torch.nn.Parameter(t) for t in tensors.values()], lr=1.0)
    sidestep.fence_optimizers()
    try:
        for number in range(5):
            optimizer.step()
            for tensor in tensors.values():
                tensor.fill_(number)
            handle = sidestep.async_save(tensors, checkpoint_id=tmp_path / "it", no_dist=True)
            handle.fence()
            for tensor in tensors.values():
                tensor.fill_(-1)
            handle.result()
            assert_saved(
                tmp_path / "it", {k: torch.full((4 * MIB,), float(number)) for k in tensors}
            )
    finally:
        sidestep.fence_optimizers(False)


def test_an_optimizer_in_backward(tmp_path, fenced):
    model, _ = model_and_optimizer()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for _ in range(4):
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        model.zero_grad()
        wanted = copies(model.state_dict())
        handle = save(model, tmp_path / "it")
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        handle.result()
        assert_saved(tmp_path / "it", wanted)


def test_a_bias_that_is_changed_in_a_pre_hook(tmp_path, fenced):
    model, optimizer = model_and_optimizer()

    def change(*_):  # the return value of a hook would replace the step's arguments
        model[0].bias.data.add_(1)

    optimizer.register_step_pre_hook(change)
    for _ in range(3):
        step(model, optimizer)
        wanted = copies(model.state_dict())
        handle = save(model, tmp_path / "it")
        step(model, optimizer)
        handle.result()
        assert_saved(tmp_path / "it", wanted)


def test_a_step_that_is_replayed_from_a_graph(tmp_path, fenced):
    parameters = [torch.nn.Parameter(torch.ones(4 * MIB, device="cuda"))]
    optimizer = torch.optim.Adam(parameters, lr=0.1, capturable=True)
    parameters[0].grad = torch.ones_like(parameters[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    for _ in range(4):
        graph.replay()
        wanted = copies({"p": parameters[0].data})
        handle = sidestep.async_save(
            {"p": parameters[0].data}, checkpoint_id=tmp_path / "it", no_dist=True
        )
        graph.replay()
        handle.result()
        assert_saved(tmp_path / "it", wanted)
        assert handle.progress().fenced_bytes == 0


def test_a_capture_beside_a_save(tmp_path):
    tensor = torch.ones(64 * MIB, device="cuda")
    static = torch.zeros(4, device="cuda")
    sidestep.fence_optimizers()
    try:
        handle = sidestep.async_save({"a": tensor}, checkpoint_id=tmp_path / "it", no_dist=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static.add_(1)
        graph.replay()
        handle.result()
        torch.cuda.synchronize()
        assert static.tolist() == [1.0] * 4
    finally:
        sidestep.fence_optimizers(False)


def test_strides_dtypes_and_empty_tensors(tmp_path):
    values = {
        "transposed": torch.randn(300, 400, device="cuda").t(),
        "columns": torch.randn(500, 300, device="cuda")[:, 7:200],
        "expanded": torch.randn(5, 1, device="cuda").expand(5, 9),
        "conj": torch.randn(10, dtype=torch.complex64, device="cuda").conj(),
        "half": torch.randn(1001, device="cuda").to(torch.bfloat16),
        "empty": torch.empty(0, 3, device="cuda"),
        "scalar": torch.tensor(3.5, device="cuda"),
        "host": torch.randn(7),
    }
    wanted = {name: value.cpu().resolve_conj().clone() for name, value in values.items()}
    sidestep.save(values, checkpoint_id=tmp_path / "it", no_dist=True)
    assert_saved(tmp_path / "it", wanted)


@pytest.mark.parametrize("sizes", [[1024], [1024, 1000, 3, 1]])
def test_many_small_tensors(tmp_path, fenced, sizes):
    """Rows of one copy, and batches."""
    flat = torch.zeros(1000 * 1024, device="cuda")
    values = {f"t{i:04}": flat[i * 1024 :][: sizes[i % len(sizes)]] for i in range(1000)}
    for number in range(3):
        flat.copy_(torch.arange(flat.numel(), device="cuda")).mul_(number + 1)
        wanted = copies(values)
        handle = sidestep.async_save(values, checkpoint_id=tmp_path / "it", no_dist=True)
        flat.fill_(-1)
        handle.result()
        assert_saved(tmp_path / "it", wanted)


def save_what_another_process_has(tensor, path):
    """In a process of its own, whose only context is that of the mapping."""
    sidestep.save({"theirs": tensor}, checkpoint_id=path, no_dist=True)


def test_memory_of_another_process(tmp_path):
    tensor = torch.randn(3 * MIB, device="cuda")
    torch.cuda.synchronize()
    context = torch.multiprocessing.get_context("spawn")
    other = context.Process(
        target=save_what_another_process_has, args=(tensor, tmp_path / "it"), daemon=True
    )
    other.start()
    other.join()
    assert other.exitcode == 0
    assert_saved(tmp_path / "it", {"theirs": tensor.cpu()})


def test_load_to_the_device(tmp_path):
    values = {
        "a": torch.randn(3000, 2000, device="cuda"),
        "t": torch.randn(300, 400, device="cuda"),
        "h": torch.randn(9),
    }
    wanted = copies(values)
    sidestep.save(values, checkpoint_id=tmp_path / "it", no_dist=True)
    into = {
        "a": torch.zeros(3000, 2000, device="cuda"),
        "t": torch.zeros(400, 300, device="cuda").t(),
        "h": torch.zeros(9),
    }
    sidestep.load(into, checkpoint_id=tmp_path / "it", no_dist=True)
    for name, value in wanted.items():
        assert torch.equal(into[name].cpu(), value), name


def test_a_small_pool(tmp_path):
    """In a process of its own: the pool is the engine's."""
    code = f"""
import torch, sidestep
sidestep.fence_optimizers()
p = torch.nn.Parameter(torch.ones({64 * MIB}, device="cuda"))
optimizer = torch.optim.SGD([p], lr=1.0)
for number in range(3):
    p.grad = torch.ones_like(p)
    optimizer.step()
    wanted = p.detach().cpu().clone()
    handle = sidestep.async_save({{"p": p.data}}, checkpoint_id="{tmp_path}/it", no_dist=True)
    optimizer.step()
    handle.result()
    assert torch.equal(sidestep.read("{tmp_path}/it")["p"], wanted)
"""
    import subprocess
    import sys

    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "SIDESTEP_POOL_BYTES": str(32 * MIB)},
    )
