# SPDX-License-Identifier: BSD-3-Clause
"""Tensors are put on huge pages, and stay where and what they are."""

from __future__ import annotations

import errno
import os

import pytest
import torch

import sidestep


def test_a_model_and_its_moments() -> None:
    model = torch.nn.Linear(2048, 2048, bias=False)  # 16 MiB
    optimizer = torch.optim.Adam(model.parameters())
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    before = model.weight.detach().clone()
    address = model.weight.data_ptr()
    report = sidestep.huge_pages({"model": model, "optimizer": optimizer, "step": 3})
    if report.reason == os.strerror(errno.EINVAL):
        pytest.skip("this kernel does not know MADV_COLLAPSE")
    assert 3 * (12 << 20) <= report.bytes <= 3 * (16 << 20)
    assert report.huge_bytes <= report.bytes
    assert report.huge_bytes == report.bytes or report.reason
    assert report.took_s > 0
    assert model.weight.data_ptr() == address
    assert torch.equal(model.weight, before)


def test_nothing_is_large() -> None:
    report = sidestep.huge_pages({"scalar": torch.ones(())})
    assert (report.bytes, report.huge_bytes, report.reason) == (0, 0, "")
