from __future__ import annotations

import itertools
import json
from pathlib import Path

import doctor_cases
import pytest

from flatout.doctor.diagnosis_facts import Span
from flatout.doctor.showing.chrome_trace import events

pytestmark = pytest.mark.backend("jax")


def test_lanes_are_named_threads_in_the_order_of_the_budget() -> None:
    found = events(doctor_cases.diagnosis())
    named = {one["tid"]: one["args"]["name"] for one in found if one["name"] == "thread_name"}
    assert list(named.values()) == ["input", "callbacks", "launch", "compute", "transfer"]
    assert [one["args"]["name"] for one in found if one["name"] == "process_name"] == [
        "flatout doctor: examples/forecast/train.py"
    ]
    assert all(named[one["tid"]] == one["cat"] for one in found if one["ph"] == "X")


def test_times_are_microseconds() -> None:
    spans = [one for one in events(doctor_cases.diagnosis()) if one["ph"] == "X"]
    assert len(spans) == len(doctor_cases.diagnosis().timeline)
    second = next(one for one in spans if one["name"] == "copy 1")
    assert (second["ts"], second["dur"]) == (pytest.approx(70_200), pytest.approx(1_600))


def test_spans_that_overlap_get_a_track_each() -> None:
    timeline = (Span("input", "a", 0.0, 2.0), Span("input", "b", 1.0, 2.0), Span("input", "c", 2.0, 1.0))
    found = [one for one in events(doctor_cases.diagnosis(timeline=timeline)) if one["ph"] == "X"]
    assert {one["name"]: one["tid"] for one in found} == {"a": 1, "c": 1, "b": 2}
    for _, track in itertools.groupby(found, key=lambda one: one["tid"]):
        for before, after in itertools.pairwise(track):
            assert before["ts"] + before["dur"] <= after["ts"]


def test_no_timeline_is_no_event() -> None:
    assert events(doctor_cases.bare()) == []


def test_hostile_names_are_valid_json(tmp_path: Path) -> None:
    doctor_cases.hostile().save_trace(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert any("<script>" in one["name"] for one in found)
    json.dumps(found, ensure_ascii=False).encode()
