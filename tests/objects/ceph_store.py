# SPDX-License-Identifier: BSD-3-Clause
"""Ceph's S3 interface over one monitor and one device in memory, without systemd."""

import uuid

import daemons

PROGRAMS = ["ceph-mon", "ceph-osd", "ceph", "ceph-authtool", "monmaptool", "radosgw",
            "radosgw-admin", "setpriv"]  # fmt: skip
ACCESS_KEY, SECRET_KEY = "test-key", "test-secret"

# A monitor address of version 1 hangs, and without cephx radosgw loops.
CONFIGURATION = """[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{monitor}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {folder}/keyring
run dir = {folder}
admin socket = {folder}/$name.socket
log file = {folder}/$name.ceph.log
mon cluster log file = {folder}/cluster.log
crash dir = {folder}
mon data = {folder}/mon
osd data = {folder}/osd
rgw data = {folder}/rgw
osd objectstore = memstore
memstore device bytes = 2G
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 2000
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{gateway}
"""


def _make_keys(group, run):
    key = ["ceph-authtool", group.folder / "keyring", "--gen-key", "-n"]
    run(*key, "mon.", "--create-keyring", "--cap", "mon", "allow *")
    run(*key, "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *",
        "--cap", "mgr", "allow *")  # fmt: skip
    run(*key, "client.rgw", "--cap", "mon", "allow rw", "--cap", "osd", "allow rwx")


def _start_monitor(group, run, conf, fsid, port):
    folder = group.folder
    run("monmaptool", "--create", "--fsid", fsid, "--add", "a", f"127.0.0.1:{port}",
        folder / "monmap")  # fmt: skip
    run("ceph-mon", *conf, "--mkfs", "-i", "a", "--monmap", folder / "monmap",
        "--keyring", folder / "keyring")  # fmt: skip
    group.start("mon", "ceph-mon", *conf, "-i", "a", "-f")
    group.wait_for_port(port)


def _start_device(group, run, conf):
    name = str(uuid.uuid4())
    run("ceph", *conf, "osd", "new", name)
    key = run("ceph", *conf, "auth", "get-or-create", "osd.0", "mon", "allow profile osd",
              "osd", "allow *")  # fmt: skip
    with open(group.folder / "keyring", "a", encoding="ascii") as file:
        file.write(key)
    run("ceph-osd", *conf, "-i", "0", "--mkfs", "--osd-uuid", name)
    group.start("osd", "ceph-osd", *conf, "-i", "0", "-f")


def start(group):
    """Starts all in the folder of the group; returns the endpoint."""
    daemons.need(*PROGRAMS)
    folder, fsid = group.folder, str(uuid.uuid4())
    for name in ("mon", "osd", "rgw"):
        (folder / name).mkdir()
    monitor, gateway = daemons.free_ports(2)
    text = CONFIGURATION.format(fsid=fsid, monitor=monitor, gateway=gateway, folder=folder)
    (folder / "ceph.conf").write_text(text)
    conf = ["-c", folder / "ceph.conf"]
    _make_keys(group, group.run)
    _start_monitor(group, group.run, conf, fsid, monitor)
    _start_device(group, group.run, conf)
    group.run("radosgw-admin", *conf, "-n", "client.rgw", "user", "create", "--uid", "test",
              "--display-name", "test", "--access-key", ACCESS_KEY,
              "--secret-key", SECRET_KEY)  # fmt: skip
    group.start("radosgw", "radosgw", *conf, "-n", "client.rgw", "-f")
    group.wait_for_port(gateway)
    return f"http://127.0.0.1:{gateway}"
