"""verify checks files of other programs, and names the ones that it cannot check."""
import os
import re
import shutil

from damage_cases import data_offset, flip
from harness import other_user
from layout_cases import Root, trainer


def fsdp_trainer(sidestep, root, step):
    """A checkpoint of transformers under FSDP: DCPs in directories, and files of all kinds."""
    name = trainer(root, step)
    os.unlink(sidestep.path(f"{name}/model.safetensors"))
    sidestep.copy("torch-2.14.1/four_ranks", f"{name}/pytorch_model_fsdp_0")
    sidestep.copy("torch-2.14.1/nested", f"{name}/optimizer_0")
    root.write(f"{name}/merges.txt", b"a b\n")
    return name


def problems(sidestep, *path, status=3):
    """(file, kind) of each problem that verify finds."""
    report = sidestep.json("verify", sidestep.path("/".join(path)), status=status)
    return [(problem["file"], problem["kind"]) for problem in report["problems"]]


def flip_end(path, back):
    with open(path, "r+b") as file:
        file.seek(-back, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-back, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def test_verify_trainer(sidestep):
    """transformers: every file is read, and those without checksums are named with their format"""
    name = trainer(Root(sidestep), 500)
    path = sidestep.path(name)
    report = sidestep.json("verify", path)
    assert report["ok"] and report["problems"] == [], report
    size = sum(os.path.getsize(os.path.join(path, file)) for file in os.listdir(path))
    assert report["checked_bytes"] == size, report
    assert report["unchecked"] == [{"file": "config.json", "what": "JSON"},
                                   {"file": "model.safetensors", "what": "safetensors"},
                                   {"file": "trainer_state.json", "what": "JSON"}], report
    sidestep.expect("verify", path, stdout=re.compile(
        rf"ok       {path}  [\d.]+ KiB checked\n  without checksums: config.json \(JSON\), "
        r"model.safetensors \(safetensors\), trainer_state.json \(JSON\)" "\n"))


def test_verify_fsdp(sidestep):
    """... and DCPs in its directories, each with its own checks"""
    root = Root(sidestep)
    name = fsdp_trainer(sidestep, root, 8)
    report = sidestep.json("verify", sidestep.path(name))
    assert report["ok"] and {"file": "merges.txt", "what": "of an unknown format"} in \
        report["unchecked"], report
    shard = sidestep.path(f"{name}/optimizer_0/__0_0.distcp")
    flip(shard, data_offset(shard, bytes.fromhex("000000000000803f00000040")) + 5)
    assert problems(sidestep, name) == [("optimizer_0/__0_0.distcp", "hash")]
    os.unlink(sidestep.path(f"{name}/pytorch_model_fsdp_0/__3_0.distcp"))
    assert ("pytorch_model_fsdp_0/__3_0.distcp", "missing") in problems(sidestep, name)
    os.unlink(sidestep.path(f"{name}/optimizer_0/.metadata"))
    assert ("optimizer_0/.metadata", "incomplete") in problems(sidestep, name)


def test_verify_finds_what_is_wrong(sidestep):
    """a flipped bit, a cut, zeros and random bytes are found in each kind of file"""
    root = Root(sidestep)
    name = trainer(root, 500)

    def cut(path):
        os.truncate(path, os.path.getsize(path) // 2)

    def zero(path):
        with open(path, "r+b") as file:
            file.write(bytes(os.path.getsize(path)))

    cases = [("optimizer.pt", lambda path: flip_end(path, os.path.getsize(path) - 150), "hash"),
             ("scheduler.pt", cut, "hash"), ("rng_state_1.pth", zero, "hash"),
             ("training_args.bin", lambda path: os.truncate(path, 0), "hash"),
             ("model.safetensors", lambda path: os.truncate(path, os.path.getsize(path) - 1), "hash"),
             ("model.safetensors", zero, "hash"), ("trainer_state.json", cut, "hash"),
             ("config.json", lambda path: os.truncate(path, 1), "hash")]
    for file, damage, kind in cases:
        whole = sidestep.path("whole")
        shutil.copytree(sidestep.path(name), whole)
        damage(sidestep.path(f"{name}/{file}"))
        assert (file, kind) in problems(sidestep, name), (file, problems(sidestep, name))
        shutil.rmtree(sidestep.path(name))
        os.rename(whole, sidestep.path(name))
    assert sidestep.json("verify", sidestep.path(name))["ok"]
    os.unlink(sidestep.path(f"{name}/rng_state_0.pth"))  # a file that this form must have
    report = sidestep.json("verify", sidestep.path(name), status=4)
    assert [(p["kind"], p["message"]) for p in report["problems"]] == [
        ("incomplete", "rng_state_0.pth is missing")], report


def test_verify_what_megatron_writes_first(sidestep):
    """Megatron's common.pt, which it writes first, is not a checkpoint: alone, and with others"""
    root = Root(sidestep)
    root.torch("run/common.pt")
    assert problems(sidestep, "run", status=4) == [(".metadata", "incomplete")]
    root.write("run/metadata.json", b"{}")
    assert problems(sidestep, "run", status=4) == [(".metadata", "incomplete")]
    root.torch("run/model.pt")  # a user's directory, in which a file has that name
    assert problems(sidestep, "run", status=0) == []


def test_verify_root_of_others(sidestep):
    """a root with checkpoints of other programs: each is counted, and so are files beside them"""
    root = Root(sidestep)
    trainer(root, 500)
    fsdp_trainer(sidestep, root, 600)
    root.torch("epoch=0-step=50.ckpt")
    root.torch("best.ckpt")
    root.safetensors("checkpoint_3/model.safetensors")
    root.torch("checkpoint_3/random_states_0.pkl")
    root.safetensors("model.safetensors")
    root.safetensors("final/model.safetensors")
    root.write("src/main.py")
    report = sidestep.json("verify", sidestep.folder)
    assert [os.path.basename(entry["path"]) for entry in report["checkpoints"]] == [
        "best.ckpt", "final", "model.safetensors", "checkpoint_3", "epoch=0-step=50.ckpt",
        "checkpoint-500", "checkpoint-600"], report
    assert report["counts"]["ok"] == 7 and report["counts"]["other"] == 1, report["counts"]
    flip_end(sidestep.path("best.ckpt"), os.path.getsize(sidestep.path("best.ckpt")) - 150)
    report = sidestep.json("verify", sidestep.folder, status=3)
    assert [os.path.basename(entry["path"]) for entry in report["checkpoints"]
            if not entry["ok"]] == ["best.ckpt"], report
    os.unlink(sidestep.path("best.ckpt"))
    os.unlink(sidestep.path("checkpoint-500/trainer_state.json"))
    result = sidestep.run("verify", sidestep.folder)
    assert result.status == 4 and "5 ok, 0 damaged, 1 uncommitted" in result.stdout, result.describe()
    path = sidestep.path("checkpoint-500")
    assert f"INCOMPLETE  {path}  " in result.stdout, result.describe()
    assert sidestep.run("verify", path).status == 4


def test_verify_of_files(sidestep):
    """a single file: safetensors, torch.save, and another"""
    root = Root(sidestep)
    for path, what in ((root.safetensors("a.safetensors"), "safetensors"), (root.torch("a.pt"), None),
                       (root.write("old.pt", b"\x80\x02N."), "a pickle")):
        report = sidestep.json("verify", path)
        assert report["ok"] and report["checked_bytes"] == os.path.getsize(path), report
        assert report["unchecked"] == ([{"file": None, "what": what}] if what else []), report
    flip_end(sidestep.path("a.pt"), os.path.getsize(sidestep.path("a.pt")) - 150)
    assert problems(sidestep, "a.pt") == [(None, "hash")]
    assert sidestep.run("verify", root.write("notes.txt")).status == 5


def test_verify_index(sidestep):
    """a Hugging Face directory: all files that the index names"""
    root = Root(sidestep)
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for shard in shards:
        root.safetensors(f"hub/{shard}")
    root.index("hub/model.safetensors.index.json", shards)
    os.symlink(sidestep.path(f"hub/{shards[0]}"), sidestep.path("hub/linked.safetensors"))
    report = sidestep.json("verify", sidestep.path("hub"))
    assert report["ok"] and len(report["unchecked"]) == 4, report
    os.unlink(sidestep.path(f"hub/{shards[1]}"))
    report = sidestep.json("verify", sidestep.path("hub"), status=4)
    assert [(p["kind"], p["message"]) for p in report["problems"]] == [
        ("incomplete", f"{shards[1]} is missing")], report


def test_verify_of_what_may_not_be_read(sidestep):
    """an unreadable file of another program: status 12, no damage"""
    user = other_user(sidestep)
    name = fsdp_trainer(sidestep, Root(sidestep), 8)
    for file in ("optimizer.pt", "trainer_state.json", "optimizer_0/__0_0.distcp", "optimizer_0"):
        path = sidestep.path(f"{name}/{file}")
        mode = os.stat(path).st_mode
        os.chmod(path, 0)
        result = sidestep.run("verify", sidestep.path(name), **user)
        assert result.status == 12 and "UNREADABLE" in result.stdout, result.describe()
        assert f"  {file}: permission: " in result.stdout and "1 problem\n" in result.stdout, \
            result.describe()
        assert sidestep.run("verify", sidestep.folder, **user).status == 12, file
        os.chmod(path, mode)
    assert sidestep.run("verify", sidestep.path(name), **user).status == 0


def test_verify_beside_shards(sidestep):
    """Lightning's directory: a DCP and meta.pt, which is checked, too"""
    root = Root(sidestep)
    folder = sidestep.copy("torch-2.14.1/four_ranks", "epoch=2-step=150.ckpt")
    root.torch("epoch=2-step=150.ckpt/meta.pt")
    assert sidestep.json("verify", folder)["ok"]
    flip_end(f"{folder}/meta.pt", os.path.getsize(f"{folder}/meta.pt") - 150)
    assert problems(sidestep, "epoch=2-step=150.ckpt") == [("meta.pt", "hash")]
