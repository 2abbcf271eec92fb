# SPDX-License-Identifier: BSD-3-Clause
"""The Python package with s3:// URLs, over the strict server; stock torch reads a copy on disk."""

import json

import servers
from programs import sidestep
from python_programs import SERIES, run

PROGRAM = """
import sys
import torch
import sidestep

url = sys.argv[1]
state = {"model": {"w": torch.arange(3_000_000, dtype=torch.float32)}, "step": 1}
sidestep.save(state, checkpoint_id=url)
state = {"model": {"w": state["model"]["w"] + 1}, "step": 2}
handle = sidestep.async_save(state, checkpoint_id=url)
handle.result()
target = {"model": {"w": torch.zeros(3_000_000)}, "step": 0}
sidestep.load(target, checkpoint_id=url)
assert torch.equal(target["model"]["w"], state["model"]["w"]) and target["step"] == 2
assert sidestep.latest(url.rpartition("/")[0]) == url
assert torch.equal(sidestep.read(url)["model"]["w"], state["model"]["w"])
metadata = sidestep.Reader(url).read_metadata()
assert metadata.state_dict_metadata["model.w"].size == torch.Size([3_000_000])
try:
    sidestep.load(target, checkpoint_id=url + "-missing")
except sidestep.Error as error:
    assert error.status == sidestep.Status.ENOTFOUND and url in str(error), error
else:
    raise AssertionError("a checkpoint that is not there was loaded")
"""

STOCK = """
import sys
import torch
import torch.distributed.checkpoint as dcp

target = {"model": {"w": torch.zeros(3_000_000)}, "step": 0}
dcp.load(target, checkpoint_id=sys.argv[1])
assert torch.equal(target["model"]["w"], torch.arange(3_000_000, dtype=torch.float32) + 1)
assert target["step"] == 2
"""


def test_saves_and_loads_and_stock_reads_a_copy(tmp_path):
    with servers.strict(bucket="runs") as store:
        run(PROGRAM, "s3://runs/job/step-2", **store.environment())
        client = store.client()
        keys = [o["Key"] for o in client.list_objects_v2(Bucket="runs")["Contents"]]
        assert len(keys) == 3, keys
        for key in keys:
            client.download_file("runs", key, str(tmp_path / key.rpartition("/")[2]))
    run(STOCK, tmp_path)


def test_a_series_resumes_and_keeps_the_last_two():
    with servers.strict(bucket="runs") as store:
        run(SERIES, "s3://runs/job", **store.environment())
        keys = [o["Key"] for o in store.client().list_objects_v2(Bucket="runs")["Contents"]]
        names = {key.split("/")[1] for key in keys}
        assert names == {".sidestep", "step-3", "step-4"}, keys


def test_a_mirror_in_a_bucket_is_pruned_with_its_root(tmp_path):
    near, far = tmp_path / "job", "s3://runs/job"
    keep = ["--mirror", "--keep-last=1", "--json", near]
    with servers.strict(bucket="runs") as store:
        run(SERIES, near, SIDESTEP_MIRROR="s3://runs", **store.environment())
        sidestep(store, "pin", f"{near}/step-3")
        sidestep(store, "mirror", "--keep-last=1", near, far)
        for place in (near, far):
            sidestep(store, "unpin", f"{place}/step-3")
        gone = [f"{near}/step-3", f"{far}/step-3"]
        assert json.loads(sidestep(store, "prune", "-n", *keep))["removed"] == gone
        said = json.loads(sidestep(store, "prune", "--yes", *keep))
        assert said["removed"] == gone and f"{far}/step-4: " in said["kept"][1], said
        assert json.loads(sidestep(store, "gc", "--mirror", "--json", near))["removed"] == []
        looks = sidestep(store, "watch", "--once", "--mirror", "--json", near).splitlines()
        assert [json.loads(look)["root"] for look in looks] == [str(near), far]


SAVES = """
import sys
import torch
import sidestep

for step in range(3):
    sidestep.save({"w": torch.ones(1000)}, checkpoint_id=f"{sys.argv[1]}/step-{step}")
"""


def test_metrics_count_the_requests_that_were_repeated(tmp_path):
    def retries(name, rules):
        metrics = tmp_path / name
        with servers.strict(bucket="runs") as store:
            store.control(rules=rules)
            run(SAVES, "s3://runs/job", SIDESTEP_METRICS=str(metrics), **store.environment())
            failed = len(store.log(status=503))
        (line,) = [x for x in metrics.read_text().splitlines() if x.startswith("sidestep_object_r")]
        name, count = line.split()
        assert name.startswith("sidestep_object_retries_total")
        return int(count), failed

    assert retries("calm", []) == (0, 0)
    count, failed = retries("flaky", [{"fault": "status", "status": 503, "every": 5}])
    assert count == failed > 2
