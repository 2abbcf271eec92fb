# SPDX-License-Identifier: BSD-3-Clause
"""Clients that others wrote read from every store what sidestep saved there, and sidestep reads
what they put there: `make check-objects` runs this. The strict server is left out: over plain http
it wants the hash of each body, which most of these clients leave out."""

import json

import clients
import pytest
import servers
from programs import sidestep, well

BUCKET = "runs"
STORES = ["moto", "radosgw", "swift"]


# What others' clients and stores do not do with each other, whatever we do.
UNABLE = {
    ("radosgw", "connector", "save"): "it sends checksums in trailers, which Ceph 16 does not know",
    ("swift", "s3fs", "save"): "Swift's 404 to HEAD has a body, which aiohttp takes for an answer",
}


def skip_the_unable(store, way, action):
    if (store.name, way, action) in UNABLE:
        pytest.skip(UNABLE[store.name, way, action])


@pytest.fixture(scope="module", params=STORES)
def store(request):
    with getattr(servers, request.param)(bucket=BUCKET) as store:
        store.name = request.param
        yield store


@pytest.fixture
def url(store, request):
    """A name that no other test uses."""
    return f"s3://{BUCKET}/{request.node.name}/step-1".replace("[", "-").replace("]", "")


@pytest.fixture(scope="module")
def saved(store, tmp_path_factory):
    """A checkpoint that two ranks of ours sent in parts; and the same on a disk."""
    url, folder = f"s3://{BUCKET}/saved/step-1", tmp_path_factory.mktemp("saved") / "step-1"
    for path in (url, folder):
        well(store, "world_tool", "save", path, 2, "rows", 200, 7)
    return url, folder


@pytest.fixture(scope="module")
def of_stock(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stock") / "step-1"
    clients.stock(store, "save", "files", folder)
    return folder


def check_ours(store, path, same):
    assert sidestep(store, "verify", path).startswith("ok")
    assert sidestep(store, "diff", path, same).startswith("same")
    well(store, "world_tool", "load", path, 3, "columns", 200, 7)


@pytest.mark.parametrize("way", ["s3fs", "connector"])
def test_stock_torch_loads_ours(store, saved, way):
    skip_the_unable(store, way, "load")
    clients.stock(store, "load", way, *saved)


@pytest.mark.parametrize("way", ["s3fs", "connector"])
def test_ours_reads_what_stock_torch_saved(store, of_stock, url, way):
    skip_the_unable(store, way, "save")
    clients.stock(store, "save", way, url)
    assert sidestep(store, "diff", url, of_stock).startswith("same")
    sidestep(store, "verify", url)
    listed = json.loads(sidestep(store, "ls", "--json", url.rpartition("/")[0]))["checkpoints"]
    assert [(item["name"], item["state"]) for item in listed] == [("step-1", "committed")]


@pytest.mark.parametrize("copier", clients.COPIERS)
def test_a_copy_on_a_disk(store, saved, tmp_path, copier):
    clients.COPIERS[copier](store, saved[0], tmp_path / "step-1")
    check_ours(store, tmp_path / "step-1", saved[0])
    clients.stock(store, "load", "files", tmp_path / "step-1", saved[1])


@pytest.mark.parametrize("copier", clients.COPIERS)
def test_a_copy_in_the_store(store, saved, url, copier):
    clients.COPIERS[copier](store, saved[1], url)
    check_ours(store, url, saved[1])
    clients.stock(store, "load", "s3fs", url, saved[1])


@pytest.mark.parametrize("copier", clients.COPIERS)
def test_a_copy_of_what_stock_torch_saved(store, of_stock, url, copier):
    clients.COPIERS[copier](store, of_stock, url)
    assert sidestep(store, "diff", url, of_stock).startswith("same")
    clients.stock(store, "load", "s3fs", url, of_stock)


def test_the_rig_notices_another_state(store, saved, of_stock):
    with pytest.raises(AssertionError):
        clients.stock(store, "load", "s3fs", saved[0], of_stock)
