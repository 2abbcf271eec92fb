# SPDX-License-Identifier: BSD-3-Clause
"""Programs that know nothing of sidestep, under ``sidestep.run --adapt NAME``."""

import environments
import pytest

import sidestep

WITHOUT = ("-m", "sidestep.run")
CLASSES = [
    ("lightning", "lightning.pytorch.strategies.FSDPStrategy"),
    ("lightning", "pytorch_lightning.strategies.FSDPStrategy"),
    ("transformers", "transformers.Seq2SeqTrainer"),
    ("accelerate", "accelerate.Accelerator"),
    ("torchtitan", "torchtitan.experiments.torchft.checkpoint.TorchFTCheckpointManager"),
]


def ours(name):
    return ("-m", "sidestep.run", "-v", "--adapt", name, "--wait")


@pytest.mark.parametrize(("name", "path"), CLASSES)
def test_classes_and_what_is_made_of_them_later(name, path):
    environment = environments.find("transformers" if name == "accelerate" else name)
    ended = environment.run("bases_of.py", path, launcher=ours(name))
    ended.ok()
    assert any(base.startswith(f"sidestep.{name}.") for base in ended.values("base"))
    ended = environment.run("bases_of.py", path, launcher=WITHOUT)
    ended.ok()
    assert not [base for base in ended.values("base") if base.startswith("sidestep.")]


@pytest.mark.parametrize(
    ("name", "program", "checkpoint", "begins"),
    [
        ("transformers", "hf_train.py", "checkpoint-2", "checkpoint-4"),
        (
            "accelerate",
            "accelerate_train.py",
            "checkpoints/checkpoint_0",
            "checkpoints/checkpoint_1",
        ),
    ],
)
def test_a_program_is_resumed(transformers, tmp_path, name, program, checkpoint, begins):
    whole = transformers.run(program, tmp_path / "stock", 6, "by=stock")
    ended = transformers.run(program, tmp_path / "ours", 6, "by=stock", launcher=ours(name))
    ended.ok()
    assert ended.values("loss") == whole.values("loss")
    saved = tmp_path / "ours" / checkpoint
    assert sidestep.load_metadata(saved).format == "sidestep"
    assert f"'{saved}': training waited " in ended.output
    assert not (tmp_path / "stock" / checkpoint / ".metadata").exists()
    last = tmp_path / "ours" / begins
    words = tmp_path / "second", 6, "by=stock", f"resume={last}"
    resumed = transformers.run(program, *words, launcher=ours(name))
    resumed.ok()
    assert resumed.values("loss") == whole.values("loss")[4:]
    assert f"'{last}' in " in resumed.output


def test_a_default_plugin_of_lightning(lightning, tmp_path):
    words = "--stock", "--steps", 6
    ended = lightning.run("lightning_run.py", tmp_path, *words, launcher=ours("lightning"))
    ended.ok()
    for step in (3, 6):
        saved = tmp_path / f"epoch=0-step={step}.ckpt"
        assert sidestep.load_metadata(saved).step == step


def test_a_url_is_left_to_lightning(lightning):
    ended = lightning.run("lightning_url.py", launcher=ours("lightning"))
    ended.ok()
    assert ended.values("loaded") == ["1", "2"]
    assert ended.output.count("checkpoints at memory:// are saved by Lightning itself") == 1
