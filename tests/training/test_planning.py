"""The plan is a pure function: facts and options in, a decision with its reasons out."""

from __future__ import annotations

import dataclasses

import pytest

from flatout.base.errors import REASONS, reason
from flatout.base.options import Options
from flatout.base.sizes import as_size
from flatout.seam.versions import version_tuple
from flatout.training.planning.costs import Costs
from flatout.training.planning.decision import decide
from flatout.training.planning.plan import CallFacts

COSTS = Costs(saved_by_step=1e-3, stock_start=0.2, own_start=0.4)
GOOD = CallFacts(
    "fit", "jax", "3.15.1", rows=60_000, batch_size=32, steps=18_750, nbytes=10**8, free_bytes=10**10, costs=COSTS
)


def codes(facts: CallFacts, **options: object) -> list[str]:
    return [why.code for why in decide(facts, Options(**options)).reasons]  # type: ignore[arg-type]


def test_a_large_fit_on_arrays_runs_on_the_engine_of_the_backend() -> None:
    plan = decide(GOOD, Options())
    assert (plan.engine, plan.data, plan.reasons) == ("jax", "resident", ())
    assert "60,000" in plan.explain()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"backend": "numpy"}, "backend"),
        ({"steps": 199}, "small"),
        ({"costs": COSTS._replace(own_start=30.0)}, "small"),
        ({"costs": COSTS._replace(saved_by_step=0.0)}, "nothing_to_save"),
        ({"costs": COSTS._replace(saved_by_step=0.0), "steps": None}, "nothing_to_save"),
        ({"obstacles": (reason("run_eagerly"),)}, "run_eagerly"),
    ],
)
def test_each_obstacle_hands_over_to_stock_keras_with_its_reason(change: dict[str, object], code: str) -> None:
    facts = dataclasses.replace(GOOD, **change)  # type: ignore[arg-type]
    assert codes(facts) == [code]
    assert decide(facts, Options()).engine == "stock"


def test_a_keras_that_nobody_has_tested_is_tried_and_that_is_said() -> None:
    untested = dataclasses.replace(GOOD, keras_version="3.99.0")
    assert codes(untested) == ["self_checked"]
    assert decide(untested, Options()).accelerated
    assert codes(dataclasses.replace(GOOD, keras_version="3.12.0")) == []


def test_force_accelerates_small_work_and_unknown_versions_only() -> None:
    assert codes(dataclasses.replace(GOOD, steps=1, keras_version="4.0"), force=True) == []


def test_seconds_decide_and_not_steps() -> None:
    assert codes(dataclasses.replace(GOOD, steps=201)) == []
    assert codes(dataclasses.replace(GOOD, steps=12, costs=Costs(5.0, 0.0, 20.0))) == []
    assert codes(dataclasses.replace(GOOD, steps=1, costs=Costs(1e-3, 0.2, 0.0))) == []
    assert "0.20 s more to start" in decide(GOOD, Options()).explain()


def test_what_does_not_fit_is_streamed() -> None:
    large = dataclasses.replace(GOOD, nbytes=10**12)
    plan = decide(large, Options())
    assert (plan.engine, plan.data, [why.code for why in plan.reasons]) == ("jax", "streamed", ["memory"])
    assert "budget" in plan.explain()
    assert decide(large, Options(data="resident")).data == "resident"
    assert decide(GOOD, Options(vram="1kB")).data == "streamed"
    assert decide(GOOD, Options(data="streamed")).data == "streamed"


def test_files_go_straight_into_the_memory_of_a_device_that_has_its_own() -> None:
    files = dataclasses.replace(GOOD, is_file=True)
    assert decide(files, Options()).data == "resident"
    assert decide(files, Options(data="direct")).data == "direct"
    assert decide(dataclasses.replace(files, copies=True), Options()).data == "direct"
    assert codes(GOOD, data="direct") == ["placement"]


def test_sources_of_batches_are_streamed() -> None:
    batches = dataclasses.replace(GOOD, source="a generator", rows=None, batch_size=None, steps=None, nbytes=None)
    plan = decide(batches, Options())
    assert (plan.data, [why.code for why in plan.reasons]) == ("streamed", ["batches"])
    assert codes(batches, data="resident") == ["placement"]


def test_switched_off_and_asked_for_stock() -> None:
    assert codes(GOOD, enabled=False) == ["disabled"]
    assert codes(GOOD, engine="stock") == ["asked_for_stock"]


def test_versions_and_sizes_read_well() -> None:
    assert version_tuple("3.16.0.dev20260821") == (3, 16, 0)
    assert (as_size(999), as_size(1_500_000)) == ("999 B", "1.5 MB")


def test_every_reason_is_one_sentence() -> None:
    assert all(text.count("{}") <= 2 for text in REASONS.values())


@pytest.mark.parametrize(
    ("change", "options", "data", "tables"),
    [
        ({}, {}, "resident", "resident"),
        ({"copies": True}, {}, "direct", "direct"),
        ({"table_bytes": 10**9}, {}, "direct", "direct"),
        ({"host_bytes": 10**8}, {}, "streamed", "disk"),
        ({"host_bytes": 10**8, "shuffles": False}, {}, "streamed", "ahead"),
        ({"copies": True, "free_bytes": 10**7}, {}, "streamed", "memory"),
        ({"copies": True, "free_bytes": 10**7, "host_bytes": 10**8}, {}, "streamed", "disk"),
        ({"copies": True, "free_bytes": 10**7, "host_bytes": 10**8, "shuffles": False}, {}, "streamed", "ahead"),
        ({}, {"data": "streamed"}, "streamed", "memory"),
        ({}, {"vram": "50MB"}, "streamed", "disk"),
        ({"steps": 3}, {}, "host", "host"),
        ({"table_bytes": 0}, {"data": "streamed"}, "streamed", None),
    ],
)
def test_tables_are_decoded_where_there_is_room_for_them(
    change: dict[str, object], options: dict[str, str], data: str, tables: str | None
) -> None:
    facts = dataclasses.replace(GOOD, is_file=True, table_bytes=10**8, shuffles=True, host_bytes=10**10)
    plan = decide(dataclasses.replace(facts, **change), Options(**options))  # type: ignore[arg-type]
    assert (plan.data, plan.tables) == (data, tables)
    assert ("decoded_to_disk" in {why.code for why in plan.reasons}) == (tables == "disk")
    assert ("tables" in plan.explain()) == (tables is not None)
