# SPDX-License-Identifier: BSD-3-Clause
"""LoRA with PEFT: adapters, optimizer and random numbers are saved, and the frozen base is not."""

import shutil

import pytest
from environments import LAUNCH_FSDP, TOP, flip

import sidestep

SLOW = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "20000"}
PROGRAM = "peft_train.py"
ADAPTER = {"adapter_model.safetensors", "adapter_config.json"}


@pytest.fixture(scope="module", params=["transformers", "trl"])
def stock(request, transformers, tmp_path_factory):
    """The kind of trainer; its own training of 6 steps, with checkpoints 2, 4 and 6."""
    directory = tmp_path_factory.mktemp("stock")
    ended = transformers.run(PROGRAM, request.param, directory, 6, "by=stock")
    ended.ok()
    return request.param, directory, ended


def names(directory):
    return {path.name for path in directory.iterdir()}


def assert_same_end(ended, whole, step):
    ended.ok()
    expected = [line for line in whole.values("loss") if int(line.split()[0]) >= step]
    assert expected and ended.values("loss") == expected
    assert ended.values("adapter") == whole.values("adapter")


def test_killed_in_a_save_and_resumed(transformers, stock, tmp_path):
    kind, _, whole = stock
    ended = transformers.run(PROGRAM, kind, tmp_path, 6, "kill=4", variables=SLOW)
    assert ended.status == -9, ended.output
    assert "checkpoint-2" in names(tmp_path) and "checkpoint-4" not in names(tmp_path)
    ended = transformers.run(PROGRAM, kind, tmp_path, 6, "resume=true")
    assert_same_end(ended, whole, 3)


def test_both_ways_with_stock_and_with_peft(transformers, stock, tmp_path):
    kind, theirs, whole = stock
    transformers.run(PROGRAM, kind, tmp_path / "ours", 6).ok()
    checkpoint = tmp_path / "ours" / "checkpoint-4"
    assert names(theirs / "checkpoint-4") - {"optimizer.pt"} <= names(checkpoint)
    found = sidestep.load_metadata(checkpoint)
    assert set(found.files) >= ADAPTER
    assert {name.partition(".")[0] for name in found.tensors} == {"optimizer"}
    for name in ADAPTER:
        assert (checkpoint / name).read_bytes() == (theirs / "checkpoint-4" / name).read_bytes()
    transformers.run("peft_load.py", checkpoint, theirs / "checkpoint-4").ok()
    shutil.copytree(theirs / "checkpoint-4", tmp_path / "mixed" / "checkpoint-4")
    ended = transformers.run(PROGRAM, kind, tmp_path / "mixed", 6, "resume=true")
    assert_same_end(ended, whole, 5)
    transformers.run(checkpoint, launcher=("-m", "sidestep.transformers")).ok()
    words = tmp_path / "third", 6, "by=stock", f"resume={checkpoint}"
    assert_same_end(transformers.run(PROGRAM, kind, *words), whole, 5)


def test_the_best_and_a_damaged_adapter(transformers, stock, tmp_path):
    kind, ours, theirs = stock[0], tmp_path / "ours", tmp_path / "theirs"
    ended = transformers.run(PROGRAM, kind, ours, 6, "best=true")
    best = transformers.run(PROGRAM, kind, theirs, 6, "best=true", "by=stock")
    best.ok()
    assert ended.values("adapter") == best.values("adapter"), ended.ok()
    flip(ours / "checkpoint-6", "adapter_model.safetensors", 0.6)
    ended = transformers.run(PROGRAM, kind, ours, 6, f"resume={ours / 'checkpoint-6'}")
    assert ended.status == 1 and "adapter_model.safetensors" in ended.output
    ended = transformers.run(PROGRAM, kind, ours, 6, "best=true", "resume=true")
    assert_same_end(ended, best, 5)


def test_two_ranks_of_fsdp(transformers, tmp_path):
    """Killed in a save and resumed; the base is not saved; both ways with stock; PEFT's files."""
    ours, theirs, fsdp = tmp_path / "ours", tmp_path / "theirs", {"ranks": 2}
    words = PROGRAM, "transformers"
    whole = transformers.run(*words, theirs, 6, "fsdp=true", "by=stock", **fsdp)
    ended = transformers.run(*words, ours, 6, "fsdp=true", "kill=4", **fsdp, variables=SLOW)
    assert ended.status != 0, whole.ok()
    assert "checkpoint-2" in names(ours) and "checkpoint-4" not in names(ours)
    ended = transformers.run(*words, ours, 6, "fsdp=true", "resume=true", **fsdp)
    assert_same_end(ended, whole, 3)
    found = sidestep.load_metadata(ours / "checkpoint-4")
    assert set(found.files) >= ADAPTER
    model = {name for name in found.tensors if name.startswith("model.")}
    assert model and all("lora_" in name for name in model)
    transformers.run("peft_files.py", ours / "checkpoint-4", "model.", "peft_train").ok()
    for directory, how in ((ours, ("by=stock",)), (theirs, ())):
        resume = f"resume={directory / 'checkpoint-4'}"
        ended = transformers.run(*words, tmp_path / "other", 6, "fsdp=true", resume, *how, **fsdp)
        assert_same_end(ended, whole, 5)
    flip(ours / "checkpoint-6", "__1_0.distcp")
    ended = transformers.run(*words, ours, 6, "fsdp=true", "resume=true", **fsdp)
    assert_same_end(ended, whole, 5)


def test_one_device_is_not_resumed_by_fsdp(transformers, tmp_path):
    """The optimizer of one device cannot be sharded, and a message says so."""
    transformers.run(PROGRAM, "transformers", tmp_path / "one", 2).ok()
    resume = f"resume={tmp_path / 'one' / 'checkpoint-2'}"
    words = PROGRAM, "transformers", tmp_path / "two", 4, "fsdp=true", resume
    ended = transformers.run(*words, ranks=2)
    assert ended.status == 1 and "begin a run with FSDP from the adapters in it" in ended.output


def test_inside_another_module_all_is_saved(transformers, tmp_path):
    """With the frozen base, and a warning: the export has to be whole."""
    whole = transformers.run(PROGRAM, "inside", tmp_path, 4)
    whole.ok()
    assert whole.output.count("the frozen base of 'net', a model of PEFT in the model, is in") == 1
    found = sidestep.load_metadata(tmp_path / "checkpoint-2").tensors
    assert any(name.startswith("model.net.") and "base_layer" in name for name in found)
    shutil.rmtree(tmp_path / "checkpoint-4")
    assert_same_end(transformers.run(PROGRAM, "inside", tmp_path, 4, "resume=true"), whole, 3)


def test_the_example(transformers, tmp_path):
    example = TOP / "examples" / "train_lora.py"
    transformers.run(example, tmp_path, 10).ok()
    transformers.run(example, tmp_path, 15).ok()
    assert names(tmp_path) == {"checkpoint-10", "checkpoint-15"}
    assert ADAPTER <= names(tmp_path / "checkpoint-15")


@pytest.fixture(scope="module", params=["true", "inside"])
def of_accelerate(request, transformers, tmp_path_factory):
    """Whether the model of PEFT is inside another; stock Accelerate's training of 6 steps, with
    checkpoints 0, 1 and 2."""
    directory = tmp_path_factory.mktemp("accelerate")
    how = f"peft={request.param}"
    ended = transformers.run("accelerate_train.py", directory, 6, how, "by=stock")
    ended.ok()
    return how, directory / "checkpoints", ended


def test_accelerate(transformers, of_accelerate, tmp_path):
    """Killed and resumed; what is saved; stock's is resumed."""
    how, theirs, whole = of_accelerate
    words = "accelerate_train.py", tmp_path, 6, how
    ended = transformers.run(
        *words, "kill=4", variables={"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}
    )
    assert ended.status == -9, ended.output
    assert_same_losses(transformers.run(*words, "resume=auto"), whole, 3)
    saved = tmp_path / "checkpoints" / "checkpoint_1"
    found = sidestep.load_metadata(saved)
    assert set(found.files) >= ADAPTER
    prefix = "model_0.values." + ("0." if how == "peft=inside" else "")
    model = {name for name in found.tensors if name.startswith("model_0.")}
    assert any("lora_A" in name for name in model) and any("running_mean" in name for name in model)
    assert not any("base_layer" in name or "original_module" in name for name in model)
    assert ("model_0.values.1.weight" in model) == (how == "peft=inside")
    transformers.run("peft_files.py", saved, prefix).ok()
    words = "accelerate_train.py", tmp_path / "other", 6, how
    ended = transformers.run(*words, f"resume={theirs / 'checkpoint_1'}")
    assert_same_losses(ended, whole, 5)
    transformers.run(saved, tmp_path / "out", launcher=("-m", "sidestep.accelerate")).ok()
    assert ADAPTER | {"optimizer.bin"} <= names(tmp_path / "out")
    assert "model.safetensors" not in names(tmp_path / "out")


def test_accelerate_with_fsdp(transformers, tmp_path):
    """Killed and resumed; the base is not saved, PEFT's files are; stock's, which has the base, is
    resumed."""
    ours, theirs, how = tmp_path / "ours", tmp_path / "theirs", {"launcher": LAUNCH_FSDP}
    name, more = "accelerate_train.py", ("fsdp=true", "peft=true")
    whole = transformers.run(name, theirs, 6, "by=stock", *more, **how)
    slow = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}
    ended = transformers.run(name, ours, 6, "kill=4", *more, **how, variables=slow)
    assert ended.status != 0, whole.ok()
    ended = transformers.run(name, ours, 6, "resume=auto", *more, **how)
    assert_same_losses(ended, whole, 3)
    saved = ours / "checkpoints" / "checkpoint_1"
    found = sidestep.load_metadata(saved)
    assert set(found.files) >= ADAPTER
    model = {one for one in found.tensors if one.startswith("model.")}
    assert any("lora_A" in one for one in model) and any("modules_to_save" in one for one in model)
    assert not any("base_layer" in one or "original_module" in one for one in model)
    transformers.run("peft_files.py", saved, "model.").ok()
    words = f"resume={theirs / 'checkpoints' / 'checkpoint_1'}", *more
    ended = transformers.run(name, tmp_path / "other", 6, *words, **how)
    assert_same_losses(ended, whole, 5)


def assert_same_losses(ended, whole, step):
    ended.ok()
    expected = [line for line in whole.values("loss") if int(line.split()[0]) >= step]
    assert expected and ended.values("loss") == expected


@pytest.fixture(scope="module")
def of_lightning(lightning, tmp_path_factory):
    """Training of 6 steps with Lightning's own CheckpointIO, which saves the base, too."""
    directory = tmp_path_factory.mktemp("lightning")
    ended = lightning.run("peft_lightning.py", directory, 6, "by=stock")
    ended.ok()
    return directory, ended


def test_lightning(lightning, of_lightning, tmp_path):
    """Killed and resumed; what is saved; both ways with stock."""
    theirs, whole = of_lightning
    slow = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}
    ended = lightning.run("peft_lightning.py", tmp_path, 6, "kill=4", variables=slow)
    assert ended.status == -9, ended.output
    assert "step=2.ckpt" in names(tmp_path) and "step=4.ckpt" not in names(tmp_path)
    ended = lightning.run("peft_lightning.py", tmp_path, 6, f"resume={tmp_path / 'step=2.ckpt'}")
    assert_same_losses(ended, whole, 3)
    saved = tmp_path / "step=4.ckpt"
    found = sidestep.load_metadata(saved)
    assert set(found.files) >= ADAPTER | {f"second/{name}" for name in ADAPTER}
    model = {name for name in found.tensors if name.startswith("state_dict.")}
    assert {"state_dict.scale"} < model and any("running_mean" in name for name in model)
    bases = {name for name in model if "base_layer" in name or "original_module" in name}
    assert bases == {"state_dict.layers.0.base_layer.weight", "state_dict.layers.0.base_layer.bias"}
    words = "peft_lightning.py", tmp_path / "other", 6
    ended = lightning.run(*words, f"resume={theirs / 'step=4.ckpt'}")
    assert_same_losses(ended, whole, 5)
    lightning.run(saved, tmp_path / "file.ckpt", launcher=("-m", "sidestep.lightning")).ok()
    ended = lightning.run(*words, "by=stock", f"resume={tmp_path / 'file.ckpt'}")
    assert_same_losses(ended, whole, 5)


@pytest.mark.parametrize("kind", ["parallel", "fsdp"])
def test_lightning_with_shards(lightning, of_lightning, tmp_path, kind):
    """Killed and resumed; the base is not saved; stock's is resumed; one device resumes ours."""
    ours, theirs, how = tmp_path / "ours", tmp_path / "theirs", (6, f"strategy={kind}")
    whole = lightning.run("peft_lightning.py", theirs, *how, "by=stock", ranks=2)
    slow = {"SIDESTEP_WRITE_BYTES_PER_SECOND": "5000"}
    ended = lightning.run("peft_lightning.py", ours, *how, "kill=4", ranks=2, variables=slow)
    assert ended.status != 0, whole.ok()
    assert "step=2.ckpt" in names(ours) and "step=4.ckpt" not in names(ours)
    resume = f"resume={ours / 'step=2.ckpt'}"
    ended = lightning.run("peft_lightning.py", ours, *how, resume, ranks=2)
    assert_same_losses(ended, whole, 3)
    saved = ours / "step=4.ckpt"
    found = sidestep.load_metadata(saved)
    if kind == "parallel":
        assert set(found.files) >= ADAPTER | {f"second/{name}" for name in ADAPTER}
        file = saved / "second" / "adapter_model.safetensors"
        mine = sidestep.read(saved, "state_dict.second.base_model.model.0.lora_B.default.weight")
        assert mine.any() and mine.equal(sidestep.read(file, "base_model.model.0.lora_B.weight"))
    key = "model." if kind == "fsdp" else "state_dict."
    model = {name for name in found.tensors if name.startswith(key)}
    assert f"{key}scale" in model and any("running_mean" in name for name in model)
    assert any("lora_A" in name for name in model) and any("to_save" in name for name in model)
    bases = {name for name in model if "base_layer" in name or "original_module" in name}
    assert bases == {f"{key}layers.0.base_layer.{name}" for name in ("weight", "bias")}
    resume = f"resume={theirs / 'step=4.ckpt'}"
    ended = lightning.run("peft_lightning.py", tmp_path / "other", *how, resume, ranks=2)
    assert_same_losses(ended, whole, 5)
    ended = lightning.run("peft_lightning.py", tmp_path / "one", 6, f"resume={saved}")
    assert_same_losses(ended, of_lightning[1], 5)
