"""Checkpoints of other programs: recognized by names and files, whole or cut short, never changed.

The files are those that the programs write: zip archives of torch.save, safetensors, indexes,
JSON.
"""
import json
import os
import re
import shutil
import struct
import zipfile

from harness import one_line, other_user
from saved_cases import saved


class Root:
    """A directory to which other programs save."""

    def __init__(self, sidestep):
        self.sidestep = sidestep

    def write(self, name, data=b"x"):
        path = self.sidestep.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def torch(self, name):
        """Write a file as torch.save does."""
        path = self.write(name)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02N.")
            archive.writestr("archive/data/0", bytes(64))
            archive.writestr("archive/version", b"3\n")
        return path

    def safetensors(self, name, tensors=2):
        header = json.dumps({"__metadata__": {"format": "pt"}, **{
            f"w{i}": {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * i + 16]}
            for i in range(tensors)}}).encode()
        return self.write(name, struct.pack("<Q", len(header)) + header + bytes(16 * tensors))

    def index(self, name, shards):
        files = {f"w{i}": shard for i, shard in enumerate(shards)}
        return self.write(name, json.dumps({"metadata": {}, "weight_map": files}).encode())

    def entry(self, name):
        entry, = [entry for entry in self.sidestep.json("ls", "-a", self.sidestep.folder)["checkpoints"]
                  if entry["name"] == name]
        return entry["state"], entry["layout"], entry["reason"], entry["step"]

    def expect(self, name, layout, step):
        assert self.entry(name) == ("complete", layout, None, step), self.entry(name)
        self.sidestep.expect("latest", self.sidestep.folder, stdout=self.sidestep.path(name) + "\n")

    def expect_broken(self, name, layout, reason):
        state = self.entry(name)
        assert state[:3] == ("incomplete", layout, reason), state
        result = self.sidestep.run("latest", self.sidestep.folder)
        assert result.stdout != self.sidestep.path(name) + "\n", result.describe()
        assert reason in result.stderr, result.describe()

    def each_cut_short(self, names, name, layout):
        """Check that it is incomplete without each of the files, and with each cut in the middle."""
        for file in names:
            path = self.sidestep.path(f"{name}/{file}")
            with open(path, "rb") as opened:
                data = opened.read()
            for broken, words in ((data[:len(data) // 2], "truncated|not an index|no header"),
                                  (b"", "empty|truncated|not an index"), (None, "missing|no weights|no ")):
                if broken is None:
                    os.unlink(path)
                else:
                    self.write(f"{name}/{file}", broken)
                state = self.entry(name)
                assert state[:2] == ("incomplete", layout), (file, words, state)
                assert re.search(words, state[2]), (file, words, state)
            self.write(f"{name}/{file}", data)
        assert self.entry(name)[0] == "complete", self.entry(name)


def trainer(root, step):
    name = f"checkpoint-{step}"
    root.safetensors(f"{name}/model.safetensors")
    for file in ("optimizer.pt", "scheduler.pt", "training_args.bin"):
        root.torch(f"{name}/{file}")
    for rank in range(2):
        root.torch(f"{name}/rng_state_{rank}.pth")
    root.write(f"{name}/config.json", b"{}")
    root.write(f"{name}/trainer_state.json", json.dumps({"global_step": step, "epoch": 1}).encode())
    return name


def test_transformers(sidestep):
    """transformers' checkpoint-N: whole, and with each file cut short or missing"""
    root = Root(sidestep)
    name = trainer(root, 500)
    root.expect(name, "transformers", 500)
    sidestep.expect("latest", "--verify", sidestep.folder, status=5,
                    stderr=one_line(name, "has no checksums to verify it by"))
    root.each_cut_short(["trainer_state.json", "model.safetensors"], name, "transformers")
    os.unlink(sidestep.path(f"{name}/rng_state_0.pth"))
    root.expect_broken(name, "transformers", "rng_state_0.pth is missing")
    root.torch(f"{name}/rng_state_0.pth")
    root.write(f"{name}/optimizer.pt", b"PK\3\4 and so on, but no end of a zip file")
    root.expect_broken(name, "transformers", "optimizer.pt is truncated")
    root.torch(f"{name}/optimizer.pt")
    root.write(f"{name}/trainer_state.json", b'{"global_step": 400}')
    root.expect_broken(name, "transformers", "trainer_state.json is of another step")
    root.write(f"{name}/trainer_state.json", b'{"global_step": 5')
    root.expect_broken(name, "transformers", "trainer_state.json is truncated")
    trainer(root, 400)
    sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("checkpoint-400") + "\n",
                    stderr=re.compile("sidestep: passed over: .*checkpoint-500' is incomplete: "
                                      "trainer_state.json is truncated\n"))


def test_transformers_sharded(sidestep):
    """transformers' weights in shards: every shard that the index names"""
    root = Root(sidestep)
    name = trainer(root, 7)
    os.unlink(sidestep.path(f"{name}/model.safetensors"))
    root.expect_broken(name, "transformers", "there are no weights")
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    root.safetensors(f"{name}/{shards[0]}")
    root.expect_broken(name, "transformers", "model.safetensors.index.json is missing")
    root.index(f"{name}/model.safetensors.index.json", shards)
    root.expect_broken(name, "transformers", f"{shards[1]} is missing")
    root.safetensors(f"{name}/{shards[1]}")
    root.expect(name, "transformers", 7)
    root.each_cut_short(["model.safetensors.index.json", *shards], name, "transformers")
    for escape in ("../checkpoint-7/config.json", "/etc/passwd", ""):
        root.index(f"{name}/model.safetensors.index.json", [escape])
        root.expect_broken(name, "transformers",
                           "model.safetensors.index.json names something that is not a file")
    root.write(f"{name}/model.safetensors.index.json", b'{"weight_map": {"w": 7}}')
    root.expect_broken(name, "transformers",
                       "model.safetensors.index.json names something that is not a file")
    root.write(f"{name}/model.safetensors.index.json", b"[" * 100000)
    root.expect_broken(name, "transformers", "model.safetensors.index.json is not an index")


def test_transformers_fsdp(sidestep):
    """transformers under FSDP: a directory that is a DCP"""
    root = Root(sidestep)
    name = trainer(root, 8)
    os.unlink(sidestep.path(f"{name}/model.safetensors"))
    root.write(f"{name}/pytorch_model_fsdp_0/__0_0.distcp")
    root.expect_broken(name, "transformers", "pytorch_model_fsdp_0 has no .metadata")
    shutil.rmtree(sidestep.path(f"{name}/pytorch_model_fsdp_0"))
    for folder in ("pytorch_model_fsdp_0", "optimizer_0"):
        sidestep.copy("torch-2.14.1/four_ranks", f"{name}/{folder}")
        root.expect(name, "transformers", 8)
        os.rename(sidestep.path(f"{name}/{folder}/__2_0.distcp"), sidestep.path("aside"))
        root.expect_broken(name, "transformers", f"{folder}: file '__2_0.distcp': it is missing")
        os.rename(sidestep.path("aside"), sidestep.path(f"{name}/{folder}/__2_0.distcp"))
    entry, = sidestep.json("ls", sidestep.folder)["checkpoints"]  # all of it is counted
    sizes = [os.path.getsize(os.path.join(folder, file))
             for folder, _, files in os.walk(sidestep.path(name)) for file in files]
    assert (entry["files"], entry["bytes"]) == (len(sizes), sum(sizes)), entry


def test_accelerate(sidestep):
    """accelerate's checkpoint_N: weights, optimizer, the random states of all ranks"""
    root = Root(sidestep)
    name = "checkpoint_3"
    files = ["model.safetensors", "optimizer.bin", "random_states_0.pkl", "random_states_1.pkl"]
    root.safetensors(f"{name}/{files[0]}")
    root.torch(f"{name}/{files[1]}")
    root.torch(f"{name}/scheduler.bin")
    root.expect_broken(name, "accelerate", "random_states_0.pkl is missing")
    root.torch(f"{name}/{files[2]}")
    root.torch(f"{name}/{files[3]}")
    root.expect(name, "accelerate", 3)
    os.unlink(sidestep.path(f"{name}/random_states_0.pkl"))
    root.expect_broken(name, "accelerate", "random_states_0.pkl is missing")
    root.torch(f"{name}/random_states_0.pkl")
    root.each_cut_short(["model.safetensors"], name, "accelerate")


def test_torchtitan(sidestep):
    """torchtitan's step-N: a DCP, or weights for Hugging Face at the end"""
    root = Root(sidestep)
    sidestep.copy("torch-2.14.1/four_ranks", "step-10")
    assert root.entry("step-10") == ("committed", "torchtitan", None, 10)
    root.write("step-20/__0_0.distcp")
    root.expect_broken("step-20", "torchtitan", ".metadata is missing")
    os.unlink(sidestep.path("step-20/__0_0.distcp"))
    root.safetensors("step-30/model-00001-of-00001.safetensors")
    root.expect_broken("step-30", "torchtitan", "model.safetensors.index.json is missing")
    root.index("step-30/model.safetensors.index.json", ["model-00001-of-00001.safetensors"])
    assert root.entry("step-30") == ("complete", "torchtitan", None, 30)
    sidestep.expect("latest", "-q", sidestep.folder, stdout=sidestep.path("step-10") + "\n")
    os.rename(sidestep.path("step-10"), sidestep.path("elsewhere"))
    os.unlink(sidestep.path("elsewhere/.metadata"))
    root.expect("step-30", "torchtitan", 30)


def test_other_programs(sidestep):
    """what is not known to be whole is foreign: `latest` passes over it; a DCP is a checkpoint"""
    root = Root(sidestep)
    for name in ("iter_0000300/mp_rank_00/model_optim_rng.pt", "iter_0000200/common.pt",
                 "global_step400/mp_rank_00_model_states.pt"):
        root.torch(name)
        assert root.entry(name.split("/")[0])[0] == "foreign", root.entry(name.split("/")[0])
    root.write("latest", b"global_step400")
    root.write("latest_checkpointed_iteration.txt", b"300")
    sidestep.copy("torch-2.14.1/four_ranks", "iter_0000100")
    root.write("iter_0000500/common.pt")
    root.write("iter_0000500/__0_0.distcp")
    assert root.entry("iter_0000500")[0] == "incomplete", root.entry("iter_0000500")
    sidestep.expect("latest", "-q", sidestep.folder, stdout=sidestep.path("iter_0000100") + "\n")
    sidestep.run("gc", "--yes", sidestep.folder)
    assert os.path.exists(sidestep.path("global_step400/mp_rank_00_model_states.pt"))


def test_lightning(sidestep):
    """Lightning's .ckpt: a file, or a directory that is a DCP with meta.pt"""
    root = Root(sidestep)
    path = root.torch("epoch=0-step=50.ckpt")
    root.expect("epoch=0-step=50.ckpt", "lightning", 50)
    with open(path, "rb") as file:
        data = file.read()
    root.write("epoch=1-step=100.ckpt", data[:-30])
    root.expect_broken("epoch=1-step=100.ckpt", "lightning", "epoch=1-step=100.ckpt is truncated")
    root.write("epoch=1-step=100.ckpt", b"")
    root.expect_broken("epoch=1-step=100.ckpt", "lightning", "epoch=1-step=100.ckpt is empty")
    root.torch("last.ckpt")
    assert root.entry("last.ckpt") == ("complete", "lightning", None, None)
    root.torch("best.ckpt")  # no step, so it is never newer than one with a step
    assert root.entry("best.ckpt") == ("complete", "lightning", None, None)
    root.write("cut.ckpt", data[:-30])
    assert root.entry("cut.ckpt")[:3] == ("incomplete", "lightning", "cut.ckpt is truncated")
    root.write("notes.ckpt", b"not of torch.save")
    assert root.entry("notes.ckpt")[:2] == ("foreign", None)
    folder = sidestep.copy("torch-2.14.1/four_ranks", "epoch=2-step=150.ckpt")
    root.expect_broken("epoch=2-step=150.ckpt", "lightning", "meta.pt is missing")
    root.torch("epoch=2-step=150.ckpt/meta.pt")
    assert root.entry("epoch=2-step=150.ckpt")[:2] == ("committed", "lightning")
    sidestep.expect("latest", "-q", sidestep.folder, stdout=folder + "\n")


def test_names_alone_prove_nothing(sidestep):
    """directories with such names, but without such files, are foreign"""
    root = Root(sidestep)
    for name in ("checkpoint-5", "checkpoint_5", "iter_0000005", "global_step5", "step-5", "x.ckpt"):
        root.write(f"{name}/notes.txt")
        assert root.entry(name)[:3] == ("foreign", None, "it is not known to be a checkpoint")
    assert sidestep.run("latest", sidestep.folder).status == 10


def test_what_others_wrote_is_never_deleted(sidestep):
    """prune and gc leave other programs' checkpoints alone, whole or not"""
    root = Root(sidestep)
    saved(sidestep, 1, 2)
    whole, broken = trainer(root, 500), "checkpoint-600"
    root.safetensors(f"{broken}/model.safetensors")
    root.torch("epoch=0-step=50.ckpt")
    sidestep.run("prune", "--keep-last", "1", "--yes", sidestep.folder)
    sidestep.run("gc", "--yes", sidestep.folder)
    names = [entry["name"] for entry in sidestep.json("ls", "-a", sidestep.folder)["checkpoints"]]
    assert names == ["step-2", "epoch=0-step=50.ckpt", whole, broken], names
    result = sidestep.run("ls", sidestep.folder)
    assert "'checkpoint-600' is incomplete (transformers): trainer_state.json is missing" in (
        result.stderr), result.describe()
    result = sidestep.run("latest", "--verify", sidestep.folder)
    assert result.stdout == sidestep.path("step-2") + "\n", result.describe()
    assert sidestep.run("latest", sidestep.folder).stdout == result.stdout


def test_what_may_not_be_read_is_not_incomplete(sidestep):
    """an unreadable file of another program is not reported as cut short"""
    user = other_user(sidestep)
    root = Root(sidestep)
    name = trainer(root, 500)
    for file in ("trainer_state.json", "model.safetensors", "optimizer.pt"):
        os.chmod(sidestep.path(f"{name}/{file}"), 0)
        result = sidestep.run("ls", "--json", sidestep.folder, **user)
        assert result.status == 12, result.describe()
        entry, = json.loads(result.stdout)["checkpoints"]
        assert entry["state"] == "unreadable" and "Permission denied" in entry["reason"], entry
        os.chmod(sidestep.path(f"{name}/{file}"), 0o644)
    root.expect(name, "transformers", 500)


def test_tensors_beside_checkpoints(sidestep):
    """files of tensors, and directories of them, are foreign, and shown with their form"""
    root = Root(sidestep)
    root.safetensors("model.safetensors")
    root.torch("weights.pt")
    root.torch("training_args.bin")
    root.write("tokenizer.bin", b"something else")
    root.write("config.json", b"{}")
    root.safetensors("final/model.safetensors")
    root.torch("old/pytorch_model.bin")
    root.write("src/main.py")
    for name, form in (("model.safetensors", "safetensors"), ("weights.pt", "torch"),
                       ("training_args.bin", "torch"), ("tokenizer.bin", None), ("final", "safetensors"), ("old", "torch"),
                       ("src", None)):
        assert root.entry(name)[:2] == ("foreign", form), (name, root.entry(name))
    names = [entry["name"] for entry in sidestep.json("ls", "-a", sidestep.folder)["checkpoints"]]
    assert "config.json" not in names, names
    assert sidestep.run("latest", sidestep.folder).status == 10
    assert sidestep.json("ls", sidestep.folder)["checkpoints"] == []
