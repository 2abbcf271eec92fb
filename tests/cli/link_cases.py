"""Symbolic links in place of files, or of a whole checkpoint: every command reads through them, and
none writes, renames or deletes through one."""
import filecmp
import os

from saved_cases import saved


def files_of(folder):
    return sorted(os.listdir(folder))


def link_all(sidestep, name):
    """Move each file of a checkpoint to a store of blobs, and leave links, as a download cache does."""
    os.makedirs(sidestep.path("blobs"), exist_ok=True)
    checkpoint = sidestep.path(name)
    for file in files_of(checkpoint):
        blob = sidestep.path(f"blobs/{name}-{file}")
        os.rename(f"{checkpoint}/{file}", blob)
        os.symlink(os.path.relpath(blob, checkpoint), f"{checkpoint}/{file}")
    return checkpoint


def test_commands_read_through_links(sidestep):
    """show, cat, verify, diff, convert and cp read a checkpoint of links, of ours and of torch's"""
    saved(sidestep, 1)
    os.rename(sidestep.path("step-1"), sidestep.path("ours"))
    sidestep.copy("torch-2.14.1/four_ranks", "torchs")
    for name in ("ours", "torchs"):
        whole, made = sidestep.path(f"{name}-whole"), sidestep.path(f"{name}-made")
        sidestep.run("cp", sidestep.path(name), whole)
        linked = link_all(sidestep, name)
        tensor = sidestep.json("show", whole)["tensors"][0]["name"]
        for arguments in (["verify", linked], ["show", linked], ["show", "--stats", linked],
                          ["diff", linked, whole], ["convert", linked, made + ".pt"],
                          ["convert", linked, made + ".safetensors", "--objects=skip"]):
            result = sidestep.run(*arguments)
            assert result.status == 0, result.describe()
        read = [sidestep.run("cat", place, tensor, binary=True).stdout for place in (linked, whole)]
        assert read[0] == read[1] and read[0], name
        assert sidestep.run("cp", linked, made).status == 0
        for file in files_of(made):
            assert not os.path.islink(f"{made}/{file}"), file
            if file.endswith(".distcp"):
                assert filecmp.cmp(f"{made}/{file}", f"{whole}/{file}", shallow=False), file
        assert all(os.path.islink(f"{linked}/{file}") for file in files_of(linked))


def test_rebuild_replaces_links_and_no_targets(sidestep):
    """rebuild reads shards through links, and its .metadata replaces a link, not what it leads to"""
    saved(sidestep, 1)
    checkpoint = link_all(sidestep, "step-1")
    blob = sidestep.path("blobs/step-1-.metadata")
    with open(blob, "wb") as file:
        file.write(b"damaged")
    assert sidestep.run("verify", checkpoint).status == 3
    assert sidestep.run("rebuild", checkpoint).status == 0
    assert sidestep.run("verify", checkpoint).status == 0
    assert not os.path.islink(f"{checkpoint}/.metadata")
    with open(blob, "rb") as file:
        assert file.read() == b"damaged"


def test_a_step_that_is_a_link(sidestep):
    """ls, latest, verify of the root, prune and gc of a step that is a link to another disk"""
    saved(sidestep, 1, 2)
    os.mkdir(sidestep.path("../" + os.path.basename(sidestep.folder) + "-disk"))
    disk = sidestep.folder.rstrip("/") + "-disk"
    try:
        os.rename(sidestep.path("step-2"), f"{disk}/step-2")
        os.symlink(f"{disk}/step-2", sidestep.path("step-2"))
        states = {entry["name"]: entry["state"]
                  for entry in sidestep.json("ls", sidestep.folder)["checkpoints"]}
        assert states == {"step-1": "committed", "step-2": "committed"}, states
        sidestep.expect("latest", sidestep.folder, stdout=sidestep.path("step-2") + "\n")
        assert sidestep.run("verify", sidestep.folder).status == 0
        for command in (["prune", "--yes", "--keep-last", "1"], ["gc"]):
            result = sidestep.run(*command, sidestep.folder)
            assert result.status == 0, result.describe()
        assert os.path.islink(sidestep.path("step-2")) and len(files_of(f"{disk}/step-2")) == 3
        assert os.path.isdir(sidestep.path("step-1"))  # one that is ours has to stay
        assert sidestep.run("verify", sidestep.path("step-2")).status == 0
    finally:
        for file in files_of(f"{disk}/step-2") if os.path.isdir(f"{disk}/step-2") else []:
            os.remove(f"{disk}/step-2/{file}")
        if os.path.isdir(f"{disk}/step-2"):
            os.rmdir(f"{disk}/step-2")
        os.rmdir(disk)
