#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A real `rclone mount` of an S3 server: saves, series and the doctor say before the first byte that
it cannot keep a checkpoint, and why, and nothing is left in the bucket."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import judge
import mounts
import rig as rigs

MODES = ["off", "full"]  # of rclone's cache: without one, files can only be appended to
SECONDS = 30


def without_aws():
    """The environment; rclone takes the variables of other programs, and stumbles over them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


class Bucket:
    """A server of tests/objects with one bucket, as a context."""

    def __init__(self, rig):
        self.command = [sys.executable, os.path.join(rig.top, "tests", "objects", "server.py"),
                        "--bucket", "bucket", "--until-eof", "--no-tls"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.endpoint = json.loads(self.process.stdout.readline())["endpoint"]
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait()

    def remote(self):
        return (f":s3,provider=Other,access_key_id=test-key,secret_access_key=test-secret,"
                f"endpoint='{self.endpoint}',list_version=2,no_check_bucket=true:bucket")


class Rclone:
    """A mount of the bucket, as a context."""

    def __init__(self, rig, bucket, mode):
        self.path = tempfile.mkdtemp(prefix="rclone-", dir=rig.scratch)
        cache = tempfile.mkdtemp(prefix="cache-", dir=rig.scratch)
        self.command = ["rclone", "mount", bucket.remote(), self.path, "--config", "/dev/null",
                        "--vfs-cache-mode", mode, "--cache-dir", cache, "--vfs-write-back", "0s"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        env=without_aws())
        deadline = time.monotonic() + SECONDS
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"rclone: {self.process.communicate()[1]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *error):
        subprocess.run(["umount", "-l", self.path], check=False)
        self.process.terminate()
        self.process.communicate()


def test_mode(rig, saver, bucket, mode):
    why = "rclone uploads a file when it has been closed"
    complaints = []
    with Rclone(rig, bucket, mode) as mount:
        result = rigs.run([saver, "save", os.path.join(mount.path, "it"), "1"])
        os.mkdir(os.path.join(mount.path, "there"))
        in_place = rigs.run([saver, "save", os.path.join(mount.path, "there"), "1"])
        series = rigs.run([saver, "series", os.path.join(mount.path, "there"), "1"])
        for what in (result, in_place, series):
            if what.status in (0, None) or why not in what.err or "s3://" not in what.err:
                complaints.append(f"not refused: {what}")
        complaints += judge.doctor_says(rig, mount.path, "no", why)
    left = subprocess.run(["rclone", "--config", "/dev/null", "lsf", "-R", bucket.remote()],
                          capture_output=True, text=True, check=False, env=without_aws())
    if left.returncode != 0 or left.stdout.strip() not in ("", "there/"):
        complaints.append(f"left in the bucket: {left}")
    rig.test(f"rclone mount --vfs-cache-mode {mode}", complaints)


def control(rig, saver, bucket):
    """The same server is good enough for a save that asks the store itself."""
    result = rigs.run([saver, "save", "s3://bucket/it", "1"], 60, {
        "AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": bucket.endpoint})
    rig.test("s3:// itself", [] if result.status == 0 else [str(result)])


def main():
    rig = rigs.Rig(__doc__, in_memory=True)
    reason = mounts.reason_not_to()
    for program in ("rclone", "fusermount3"):
        if shutil.which(program) is None:
            reason = f"{program} is not installed"
    if reason is not None:
        rig.skip("rclone mount", reason)
        rig.finish()
    saver = rig.tool("saver_tool")
    with Bucket(rig) as bucket:
        for mode in MODES:
            test_mode(rig, saver, bucket, mode)
        control(rig, saver, bucket)
    rig.finish()


if __name__ == "__main__":
    main()
