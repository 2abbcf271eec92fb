# SPDX-License-Identifier: BSD-3-Clause
"""make_bucket.py URL AUTHORITY NAME: waits until the store at URL answers, and makes a bucket."""

import sys

import boto3
from botocore.config import Config

url, authority, name = sys.argv[1:]
boto3.client(
    "s3",
    endpoint_url=url,
    verify=authority,
    region_name="us-east-1",
    aws_access_key_id="a",
    aws_secret_access_key="b",
    config=Config(retries={"total_max_attempts": 12}),
).create_bucket(Bucket=name)
