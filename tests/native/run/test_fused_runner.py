"""Which shape of the one kernel is taken, for one model and for many at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flatout.native.fused.fused_plan import FusedPlan
from flatout.native.run.fused_runner import in_order_of_speed

pytestmark = pytest.mark.backend("jax")


def plan(cluster: int) -> FusedPlan:
    return FusedPlan(784, (128,), 10, 32, cluster, 8, 2, False, "exact", None, 2)


@pytest.mark.parametrize(("models", "cluster"), [(1, 16), (2, 16), (8, 16), (9, 8), (15, 8), (132, 8)])
def test_many_models_get_fewer_blocks_each(models: int, cluster: int) -> None:
    """132 processors hold 8 clusters of 16 blocks, or 16 of 8."""
    launcher: Any = SimpleNamespace(device_name="none that was tuned", processors=132)
    assert in_order_of_speed(launcher, [plan(16), plan(8)], models)[0].cluster == cluster
