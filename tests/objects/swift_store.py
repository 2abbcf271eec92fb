# SPDX-License-Identifier: BSD-3-Clause
"""OpenStack Swift with its S3 interface, as one node of one device, without systemd."""

import getpass

import daemons

PROGRAMS = ["memcached", "swift-ring-builder", "swift-proxy-server", "swift-object-server",
            "swift-container-server", "swift-account-server", "setpriv"]  # fmt: skip
KINDS = ("object", "container", "account")
ACCESS_KEY, SECRET_KEY = "test:tester", "testing"

SERVER = """[DEFAULT]
devices = {folder}/devices
mount_check = false
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
PROXY = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
[pipeline:main]
pipeline = catch_errors cache s3api tempauth bulk slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{cache}
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
"""


def _make_ring(group, kind, port):
    name = f"{kind}.builder"
    group.run("swift-ring-builder", name, "create", "4", "1", "1")
    group.run("swift-ring-builder", name, "add", "--region", "1", "--zone", "1", "--ip",
              "127.0.0.1", "--port", port, "--device", "d1", "--weight", "1")  # fmt: skip
    group.run("swift-ring-builder", name, "rebalance")


def start(group):
    """Starts all in the folder of the group; returns the endpoint."""
    daemons.need(*PROGRAMS)
    folder, user = group.folder, getpass.getuser()
    if not daemons.has_attributes(folder):
        raise daemons.Missing(f"the file system of {folder} has no extended attributes")
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = sidestep\n")
    cache, proxy, *ports = daemons.free_ports(2 + len(KINDS))
    group.start("memcached", "memcached", "-l", "127.0.0.1", "-p", cache, "-U", "0", "-u", user)
    for kind, port in zip(KINDS, ports):
        _make_ring(group, kind, port)
        text = SERVER.format(folder=folder, port=port, user=user, kind=kind)
        (folder / f"{kind}.conf").write_text(text)
        group.start(kind, f"swift-{kind}-server", folder / f"{kind}.conf")
    text = PROXY.format(folder=folder, port=proxy, user=user, cache=cache)
    (folder / "proxy.conf").write_text(text)
    group.start("proxy", "swift-proxy-server", folder / "proxy.conf")
    for port in (cache, *ports, proxy):
        group.wait_for_port(port)
    return f"http://127.0.0.1:{proxy}"
