# SPDX-License-Identifier: BSD-3-Clause
"""torch's own save, async_save and load, also after `sidestep.install` has replaced them by ours.

This module is imported before anything is replaced.
"""

from __future__ import annotations

from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

save = state_dict_saver.save
async_save = state_dict_saver.async_save
load = state_dict_loader.load
