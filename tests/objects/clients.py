# SPDX-License-Identifier: BSD-3-Clause
"""Programs of others that use object stores: stock torch with s3fs or s3torchconnector (stock.py),
rclone, and the command line of AWS. `tools/setup clients` installs them.

Each finds the store by the environment that sidestep finds it by, in so far as it can.
"""

import pathlib
import subprocess

import programs

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = programs.tool.ROOT / ".venv/clients/bin/python"
MISSING = "s3fs and s3torchconnector are not installed (tools/setup clients)"


def environment_of(store):
    """Checksums in trailers are newer than some of the stores."""
    return {
        **programs.environment_of(store),
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        "AWS_DEFAULT_REGION": store.region,
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_CONFIG_STORE_TYPE": "s3",
        "RCLONE_CONFIG_STORE_PROVIDER": "Other",
        "RCLONE_CONFIG_STORE_ENV_AUTH": "true",
        "RCLONE_CONFIG_STORE_ENDPOINT": store.endpoint,
        "RCLONE_CONFIG_STORE_REGION": store.region,
        "RCLONE_CONFIG_STORE_LIST_VERSION": "2",
    }


def run(store, *command):
    done = subprocess.run(
        list(map(str, command)),
        env=environment_of(store),
        capture_output=True,
        text=True,
        timeout=programs.SECONDS,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def stock(store, *words):
    run(store, PYTHON, HERE / "stock.py", *words)


def copy_by_aws(store, source, target):
    run(store, "aws", "--endpoint-url", store.endpoint,
        "s3", "cp", "--recursive", "--only-show-errors", source, target)  # fmt: skip


def copy_by_rclone(store, source, target):
    ends = [str(end).replace("s3://", "store:") for end in (source, target)]
    run(store, "rclone", "copy", "--s3-no-check-bucket", *ends)


COPIERS = {"aws": copy_by_aws, "rclone": copy_by_rclone}
