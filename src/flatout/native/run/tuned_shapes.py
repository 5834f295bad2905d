"""Which shape of a fused kernel was the fastest on a GPU, remembered on disk."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from flatout.base import disk_cache
from flatout.native.fused.fused_plan import FusedPlan

_FILE = "tuned.json"


def in_order_of_speed(device: str, found: list[FusedPlan]) -> list[FusedPlan]:
    """Plans with the one first that was the fastest on a GPU, if that was measured."""
    known = _read()
    return sorted(found, key=lambda plan: known.get(_key(device, plan)) != [plan.cluster, plan.warps])


def _key(device: str, plan: FusedPlan) -> str:
    """All of a plan that is not tuned."""
    facts = {
        name: value for name, value in dataclasses.asdict(plan).items() if name not in ("cluster", "warps", "input")
    }
    return f"{device}: {json.dumps(facts)}"


def _read() -> dict[str, Any]:
    try:
        known = json.loads((disk_cache.folder("kernels") / _FILE).read_text())
    except (OSError, ValueError):
        # Not there, or not ours: nothing is known.
        return {}
    return known if isinstance(known, dict) else {}


def remember(device: str, plan: FusedPlan) -> None:
    """Note a plan as the fastest on a GPU."""
    known = {**_read(), _key(device, plan): [plan.cluster, plan.warps]}
    disk_cache.put(disk_cache.folder("kernels") / _FILE, json.dumps(known, indent=1).encode())
