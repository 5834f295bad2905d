"""Arrays of other libraries that kernels read where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flatout.native.launch.buffers import adopted

pytestmark = pytest.mark.backend("jax")


class _OnTheGpu:
    """An array as jax has it: its address is known before its rows are there."""

    def __init__(self, **interface: Any):
        shown = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None}
        self.__cuda_array_interface__ = {**shown, **interface}
        self.has_arrived = False

    def block_until_ready(self) -> None:
        self.has_arrived = True


def test_rows_have_arrived_when_they_are_adopted() -> None:
    rows = _OnTheGpu()
    array = adopted(rows, None, None)
    assert array is not None
    assert (array.pointer, array.shape, array.dtype, array.owner) == (4096, (2, 3), np.dtype("float32"), rows)
    assert rows.has_arrived


@pytest.mark.parametrize("strides", [(4, 8), (24, 4)])
def test_other_orders_in_memory_are_not_adopted(strides: tuple[int, int]) -> None:
    assert adopted(_OnTheGpu(strides=strides), None, None) is None


def test_arrays_of_the_host_are_not_adopted() -> None:
    assert adopted(np.zeros(3), None, None) is None
