"""What a GPU does: spans that overlap count once; on a GPU, kernels are seen and take less than the whole time."""

from __future__ import annotations

import time

import keras
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.bench.bench_device import device
from flatout.doctor.measuring.device_activity import DeviceSpan, device_activity, seconds_covered

_SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


@given(_SPANS)
def test_what_is_covered_counts_once(spans: list[tuple[int, int]]) -> None:
    seconds = {at for began, length in spans for at in range(began, began + length)}
    assert seconds_covered(DeviceSpan(began, began + length) for began, length in spans) == len(seconds)


@pytest.mark.backend("tensorflow")
def test_no_profiler_no_share() -> None:
    assert device_activity(lambda: 1) is None


@pytest.mark.backend("jax", "torch")
def test_kernels_of_a_gpu_are_seen() -> None:
    if not device().is_gpu:
        pytest.skip("needs a GPU")
    values = keras.ops.ones((2048, 2048))

    def run() -> int:
        for _ in range(5):
            float(keras.ops.sum(keras.ops.matmul(values, values)))
            time.sleep(0.01)
        return 5

    run()
    began = time.perf_counter()
    found = device_activity(run)
    assert found is not None
    assert found.kernels >= 2
    assert 0 < found.seconds < (time.perf_counter() - began) / 5
