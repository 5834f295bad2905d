"""The slab: page-aligned, cut into slots, used again, registered with CUDA once and given back once."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from flatout.data.device import pinned_memory as pinned
from flatout.data.device.cuda_driver import CudaError, Driver
from flatout.data.device.pinned_memory import Slab, borrowed, view


@pytest.fixture(autouse=True)
def _no_idle_slab() -> Iterator[None]:
    pinned._unpin_all()
    yield
    pinned._unpin_all()


class FakeLibrary:
    """libcuda as far as we call it; remembers what is registered and current."""

    def __init__(self, failing: str = ""):
        self.failing, self.registered, self.stack, self.calls = failing, dict[int, int](), list[Any](), list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self.failing:
                return 712
            if name == "cuCtxPushCurrent_v2":
                self.stack.append(arguments[0])
            elif name == "cuCtxPopCurrent_v2":
                self.stack.pop()
            elif name == "cuMemHostRegister_v2":
                assert self.stack, "there is no current context"
                assert arguments[0].value % mmap.PAGESIZE == 0
                self.registered[arguments[0].value] = arguments[1].value
            elif name == "cuMemHostUnregister":
                del self.registered[arguments[0].value]
            elif name == "cuGetErrorName":
                ctypes.cast(arguments[1], ctypes.POINTER(ctypes.c_char_p))[0] = b"CUDA_ERROR_SOME"
            return 0

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    library = FakeLibrary()
    driver = Driver(library)
    monkeypatch.setattr(pinned, "cuda_driver", lambda: driver)
    return library


def test_slots_start_on_pages_and_do_not_overlap() -> None:
    slots = Slab(10 * mmap.PAGESIZE).slots(3, mmap.PAGESIZE + 1)
    assert [slot.size for slot in slots] == [2 * mmap.PAGESIZE] * 3
    assert all(slot.ctypes.data % mmap.PAGESIZE == 0 for slot in slots)
    for number, slot in enumerate(slots):
        slot[:] = number
    assert [set(slot.tolist()) for slot in slots] == [{0}, {1}, {2}]


def test_views_share_the_slot() -> None:
    (slot,) = Slab(mmap.PAGESIZE).slots(1, mmap.PAGESIZE)
    rows = view(slot, 128, (3, 5), np.dtype("float32"))
    rows[...] = 7
    assert slot[128:188].view("float32").tolist() == [7.0] * 15
    assert rows.flags.writeable
    assert np.shares_memory(rows, slot)


def test_a_slab_is_used_again() -> None:
    with borrowed(100_000) as slab:
        first = slab
    with borrowed(50_000) as slab:
        assert slab is first


def test_two_borrowers_at_once_have_a_slab_each_and_the_larger_is_kept() -> None:
    with borrowed(50_000) as one, borrowed(100_000) as other:
        assert not np.shares_memory(one.memory, other.memory)
    with borrowed(10) as slab:
        assert slab is other
    assert pinned._idle == [other]


def test_borrowing_is_thread_safe() -> None:
    failures = []

    def use() -> None:
        for _ in range(200):
            with borrowed(20_000) as slab:
                slab.memory[:100] = threading.get_ident() % 251
                if not (slab.memory[:100] == threading.get_ident() % 251).all():
                    failures.append(slab)

    crew = [threading.Thread(target=use) for _ in range(6)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert not failures
    assert len(pinned._idle) == 1


def test_without_a_gpu_the_memory_is_plain_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> Driver:
        raise CudaError("there is no CUDA driver (libcuda.so.1)")

    monkeypatch.setattr(pinned, "cuda_driver", no_driver)
    with borrowed(1000, pin=True) as slab:
        assert not slab.is_pinned
        assert slab.why_not == "there is no CUDA driver (libcuda.so.1)"
        slab.memory[:] = 1


def test_pages_are_registered_once_and_given_back_once(library: FakeLibrary) -> None:
    for _ in range(3):
        with borrowed(100_000, pin=True) as slab:
            assert slab.is_pinned
            assert library.registered == {slab.memory.ctypes.data: slab.memory.size}
    assert library.calls.count("cuMemHostRegister_v2") == 1
    with borrowed(200_000, pin=True) as larger:
        assert len(library.registered) == 2
    assert library.registered == {larger.memory.ctypes.data: larger.memory.size}
    pinned._unpin_all()
    assert library.registered == {}
    assert library.stack == []


def test_a_plain_slab_is_not_lent_to_who_wants_it_pinned(library: FakeLibrary) -> None:
    with borrowed(100_000) as plain:
        pass
    with borrowed(50_000, pin=True) as slab:
        assert slab is not plain
        assert slab.is_pinned


def test_a_refusal_of_the_driver_leaves_plain_memory_and_a_clean_context(library: FakeLibrary) -> None:
    library.failing = "cuMemHostRegister_v2"
    with borrowed(1000, pin=True) as slab:
        assert not slab.is_pinned
        assert slab.why_not == "cuMemHostRegister_v2 failed with CUDA_ERROR_SOME (712)"
    assert library.stack == []


def test_a_driver_without_a_gpu_is_an_error_of_ours() -> None:
    with pytest.raises(CudaError, match="cuInit failed with CUDA_ERROR_SOME"):
        Driver(FakeLibrary(failing="cuInit"))


def test_a_forked_child_takes_a_slab_of_its_own(library: FakeLibrary) -> None:
    with borrowed(1000, pin=True) as slab:
        slab.memory[:] = 1
    child = os.fork()
    if child == 0:
        with borrowed(1000) as own:
            own.memory[:] = 2
        os._exit(0 if own is not slab and "cuMemHostUnregister" not in library.calls else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert set(slab.memory.tolist()) == {1}
