"""On a GPU: models drawn at random end where Keras ends, by a kernel a stage and by one kernel."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, Phase, given, reject, settings

from flatout.base.errors import Refusal
from tests.native.cases import Case
from tests.native.fused_cases import by_fused
from tests.native.networks import cases, fused_cases
from tests.native.parity import assert_ends_where_keras_ends, by_kernels

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("full_precision")]

_DRAWN = settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)


@_DRAWN
@given(case=cases())
def test_a_kernel_a_stage(launcher: Any, case: Case) -> None:
    assert_ends_where_keras_ends(case, by_kernels(case, launcher))


@_DRAWN
@given(case=fused_cases())
def test_one_kernel(launcher: Any, case: Case) -> None:
    try:
        found = by_fused(case, launcher)
    except Refusal:
        reject()
    assert_ends_where_keras_ends(case, found, at_most_elsewhere=float("inf"))
