"""When a fit is one for processes, and for how many."""

from __future__ import annotations

import keras
import pytest

import flatout
from flatout.base.options import Options
from flatout.cluster.choice import group_wanted


@pytest.mark.parametrize(
    "options",
    [Options(), Options(enabled=False, workers=2), Options(engine="stock", workers=2, launcher="local")],
)
def test_none_is_wanted(options: Options) -> None:
    assert group_wanted(options) is None


def test_what_starts_them_is_said_or_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = group_wanted(Options(workers=2, launcher="local"))
    assert wanted is not None
    assert (wanted.workers, wanted.launcher) == (2, "local")
    one = group_wanted(Options(workers=1, launcher="local"))
    assert one is not None
    assert one.workers == 1
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    by_ray = group_wanted(Options(workers=8))
    assert by_ray is not None
    assert (by_ray.workers, by_ray.launcher) == (8, "ray")


def test_devices_of_this_process_come_first() -> None:
    """There are four in the tests on jax, and one elsewhere."""
    wanted = group_wanted(Options(workers=2))
    assert (wanted is None) == (keras.config.backend() == "jax")
    assert group_wanted(Options(workers="auto")) is None


@pytest.mark.parametrize(
    "options", [{"launcher": "slurm"}, {"restarts": -1}, {"restarts": "often"}, {"workers": 10**6}]
)
def test_nonsense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(flatout.InvalidOption, match="Received: "), flatout.options(**options):
        group_wanted(Options(**options))  # type: ignore[arg-type]
