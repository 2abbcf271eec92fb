# SPDX-License-Identifier: BSD-3-Clause
"""What users hang on the hooks of Transformers' Trainer is in the checkpoint.

    hf_hooks.py DIRECTORY

Small copies of what programs do: a callback that writes in on_save() into checkpoint-N, as
LLaMA-Factory's SaveProcessorCallback does; a trainer that writes a model card in
_save_checkpoint(), as those of TRL do; one that writes in _save() and save_model(), as Axolotl's
does.  Each function below is one case.  The program prints "passed NAME" for each.
"""

import os
import sys
import time
from pathlib import Path

import torch
import transformers

import sidestep
from sidestep._directory import newest
from sidestep.transformers import SidestepMixin, _problem


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        row = torch.arange(8) + i
        return {"input_ids": row, "labels": row}


class SavesProcessor(transformers.TrainerCallback):
    """Three files, in the way of an EMA, an adapter and a processor."""

    def on_save(self, args, state, control, **rest):
        place = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        assert os.path.isdir(place)
        for name in ("ema.bin", "adapter.bin", "processor/preprocessor_config.json"):
            path = Path(place, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{name} of {state.global_step}")


class OfTRL(transformers.Trainer):
    def _save_checkpoint(self, model, trial):
        Path(self.args.output_dir).mkdir(exist_ok=True)
        Path(self.args.output_dir, "README.md").write_text("# the model card")
        super()._save_checkpoint(model, trial)


class OfAxolotl(OfTRL):
    def _save(self, output_dir=None, state_dict=None):
        super()._save(output_dir, state_dict=state_dict)
        Path(output_dir or self.args.output_dir, "of_save.json").write_text("{}")

    def save_model(self, output_dir=None, _internal_call=False):
        super().save_model(output_dir, _internal_call)
        Path(output_dir or self.args.output_dir, "of_save_model.json").write_text("{}")

    def _save_optimizer_and_scheduler(self, output_dir):
        super()._save_optimizer_and_scheduler(output_dir)
        Path(output_dir, "of_optimizer.json").write_text("{}")


class Ours(SidestepMixin, OfAxolotl):
    pass


def trainer(kind, directory, steps=2, **more):
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=steps, save_steps=1, use_cpu=True, report_to=[],
        disable_tqdm=True, per_device_train_batch_size=2, **more,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    return kind(model, arguments, train_dataset=Rows(), callbacks=[SavesProcessor()])


def small(place):
    """The files that are no tensors, and no records of sidestep."""
    names = {str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()}
    tensors = {"model.safetensors", "optimizer.pt"}
    return {n for n in names - tensors if not n.startswith((".metadata", ".sidestep", "__"))}


def every_override_and_on_save(root):
    """The same names as with stock, and the same bytes."""
    trainer(OfAxolotl, root / "stock").train()
    trainer(Ours, root / "ours").train()
    for step in (1, 2):
        stock, ours = (root / by / f"checkpoint-{step}" for by in ("stock", "ours"))
        assert small(stock) == small(ours), small(stock) ^ small(ours)
        listed = set(sidestep.load_metadata(ours).files)
        assert small(ours) <= listed
        for name in small(stock) - {"training_args.bin", "trainer_state.json", "rng_state.pth"}:
            if not name.endswith((".pt", ".pth")):
                assert (stock / name).read_bytes() == (ours / name).read_bytes(), name
    assert (root / "ours" / "README.md").read_text() == "# the model card"
    top = {p.name for p in (root / "ours").iterdir()}
    assert top == {"README.md", "checkpoint-1", "checkpoint-2"}, top


def the_new_one_stays_beside_one_from_the_future(root):
    trainer(Ours, root, steps=1).train()
    later = time.time() + 10_000_000
    for path in (root / "checkpoint-1", root / "checkpoint-1" / ".metadata"):
        os.utime(path, (later, later))
    (root / "checkpoint-9").mkdir()  # of another program
    (root / "checkpoint-9" / "model.bin").write_bytes(b"theirs")
    os.utime(root / "checkpoint-9", (later, later))
    trainer(Ours, root, steps=3, save_total_limit=1).train(str(root / "checkpoint-1"))
    there = {p.name for p in root.iterdir() if p.is_dir()}
    assert there == {"checkpoint-3", "checkpoint-9"}, there
    assert (root / "checkpoint-9" / "model.bin").read_bytes() == b"theirs"


def visible(root):
    """What is in ``root``, but for the hidden directories, where a save under way has its files."""
    found = sorted(path.relative_to(root) for path in root.rglob("*"))
    return [path for path in found if not path.parts[0].startswith(".sidestep")]


def an_evaluator_changes_nothing(root):
    """It resumes while a save of the trainer is under way, which is committed afterwards.  Nothing
    hidden is left then, of the evaluator neither."""
    seen = []

    class Evaluates(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **rest):
            if state.global_step == 2 and not seen:
                before = visible(root)
                assert newest(str(root), "checkpoint-", _problem) == 1
                trainer(Ours, root)._load_from_checkpoint(str(root / "checkpoint-1"))
                seen.append((before, visible(root)))
                pause.__exit__(None, None, None)

        def on_step_end(self, args, state, control, **rest):
            if state.global_step == 2:
                one.wait_for_checkpoint()
                pause.__enter__()

    pause = sidestep.paused()
    one = trainer(Ours, root, steps=3)
    one.add_callback(Evaluates())
    one.train()
    before, after = seen[0]
    assert before == after, set(before) ^ set(after)
    there = {p.name for p in root.iterdir() if p.is_dir()}
    assert {"checkpoint-1", "checkpoint-2", "checkpoint-3"} == there, there


def main():
    root = Path(sys.argv[1])
    cases = (
        every_override_and_on_save,
        the_new_one_stays_beside_one_from_the_future,
        an_evaluator_changes_nothing,
    )
    for case in cases:
        (root / case.__name__).mkdir(parents=True)
        case(root / case.__name__)
        print("passed", case.__name__, flush=True)


main()
