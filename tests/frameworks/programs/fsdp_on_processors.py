# SPDX-License-Identifier: BSD-3-Clause
"""FSDP2 in Accelerate, and in what is built on it, where there are only processors."""

import os

import accelerate.state
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

USE = "ACCELERATE_USE_FSDP"
SHARDED = {
    "fsdp_version": 2,
    "state_dict_type": "SHARDED_STATE_DICT",
    "auto_wrap_policy": "no_wrap",
}


def fsdp_on_processors():
    """Accelerate takes FSDP only for accelerators; torch shards on processors as well.

    How it shards is what ``accelerate launch --use_fsdp`` was told, if it has started us."""
    plugin = FullyShardedDataParallelPlugin(**({} if USE in os.environ else SHARDED))
    begin = accelerate.state.AcceleratorState.__init__

    def begin_sharded(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.distributed_type = DistributedType.FSDP
        self.fsdp_plugin = plugin

    accelerate.state.AcceleratorState.__init__ = begin_sharded
