"""Which way rows go to the device: long ones by copies of their own, if the driver does that. On a GPU: tests/gpu."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from flatout.data.device import copy_stream
from flatout.data.device.cuda_driver import Driver
from flatout.data.device.sinks import DeviceMemory

pytestmark = pytest.mark.backend("torch")
ROWS = 7
NUMBERS = np.array([3, 0, 6, 3], np.int32)


class HostAsDevice:
    """libcuda as far as a copy stream calls it; its device memory is the host's. What is launched is only counted."""

    def __init__(self, missing: str = "", failing: str = ""):
        self._missing, self._failing = missing, failing
        self.launched = 0

    def __getattr__(self, name: str) -> Any:
        if name == self._missing:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if name == self._failing:
                return 801
            if name == "cuMemcpyBatchAsync_v2":
                addresses = [ctypes.cast(array.value, ctypes.POINTER(ctypes.c_uint64)) for array in arguments[:3]]
                for number in range(arguments[3].value):
                    ctypes.memmove(*(array[number] for array in addresses))
            elif name == "cuLaunchKernel":
                self.launched += 1
            elif name == "cuStreamCreateWithPriority":
                ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_void_p))[0] = 1
            return 0

        return call


def gathered(library: HostAsDevice, row_bytes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """What arrived of some rows, twice, and what should."""
    driver = Driver(library)
    monkeypatch.setattr(copy_stream, "cuda_driver", lambda: driver)
    rows = np.random.default_rng(0).integers(0, 256, (ROWS, row_bytes), np.uint8)
    target = np.zeros((len(NUMBERS), row_bytes), np.uint8)
    sender = copy_stream.CopyStream()
    for _ in range(2):
        sender.gather(DeviceMemory(target.ctypes.data, target.nbytes), rows.ctypes.data, row_bytes, NUMBERS)
    sender.close()
    return target, rows[NUMBERS]


@pytest.mark.parametrize("row_bytes", [2**16, 2**16 + 4, 150_528])
def test_long_rows_get_copies_of_their_own(row_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = HostAsDevice()
    arrived, expected = gathered(library, row_bytes, monkeypatch)
    np.testing.assert_array_equal(arrived, expected)
    assert library.launched == 0


@pytest.mark.parametrize(
    ("library", "row_bytes"),
    [
        (HostAsDevice(), 2**15),
        (HostAsDevice(missing="cuMemcpyBatchAsync_v2"), 2**16),
        (HostAsDevice(failing="cuMemcpyBatchAsync_v2"), 2**16),
    ],
    ids=["short rows", "an older driver", "a GPU that cannot"],
)
def test_others_are_fetched_by_a_kernel(library: HostAsDevice, row_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered(library, row_bytes, monkeypatch)
    assert library.launched == 2
