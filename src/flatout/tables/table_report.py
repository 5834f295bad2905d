"""`Table.explain`: how a table is held, what a set of keys finds in it, and what a batch costs, measured here."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flatout.base.when_used import jax, keras, ops, tf, torch

if TYPE_CHECKING:
    from .table import Table


@dataclass(frozen=True)
class TableReport:
    """What `Table.explain` found.

    Attributes:
        rows: Keys in the table.
        slots: Room for rows on the device, gaps included.
        columns: The type of each column on the device.
        join: How keys find their rows.
        duplicates: Repeated rows that were aggregated.
        nbytes: What the table takes on the device.
        policy: What a missing key gives.
        checked: Keys that were looked at, or None if none were given.
        missing: How many of them are not in the table.
        examples: Some of those.
        microseconds: For a batch of `batch_size` keys with all columns, compiled; the median of several runs.
        device: Where it was measured.
    """

    name: str
    rows: int
    slots: int
    columns: dict[str, str]
    join: str
    duplicates: int
    nbytes: int
    policy: Any
    checked: int | None
    missing: int | None
    examples: tuple[Any, ...]
    batch_size: int
    microseconds: float
    device: str

    @property
    def coverage(self) -> float | None:
        """The share of the keys that is in the table."""
        return None if not self.checked or self.missing is None else 1 - self.missing / self.checked

    def __str__(self) -> str:
        advice = " (log2(rows) dependent reads; join='codes' and `table.codes` need one)"
        lines = [
            f"{self.name}: {self.rows:,} rows in {self.slots:,} slots, {self.nbytes:,} bytes on the device",
            f"  join        {self.join}{advice if 'searchsorted' in self.join else ''}",
            f"  columns     {', '.join(f'{name} ({dtype})' for name, dtype in self.columns.items())}",
            f"  missing     {self.policy!r}",
            f"  duplicates  {self.duplicates:,} rows aggregated",
        ]
        if self.coverage is not None:
            examples = f", such as {', '.join(map(repr, self.examples))}" if self.examples else ""
            found = f"{self.coverage:.2%} of {self.checked:,} keys; {self.missing:,} missing{examples}"
            lines.append(f"  coverage    {found}")
        cost = f"{self.microseconds:.1f} us for a batch of {self.batch_size:,} keys on {self.device}"
        return "\n".join([*lines, f"  cost        {cost}"])


def explain(table: Table, values: Sequence[Any], batch_size: int) -> TableReport:
    """Build the report; `values` may be empty."""
    checked = missing = None
    examples: tuple[Any, ...] = ()
    if values:
        _, slots = table.index.found(values, must_be_present=False)
        checked, missing = len(slots), int((slots < 0).sum())
        shown: Any = np.asarray(values[0], dtype=object)[np.flatnonzero(slots < 0)] if len(values) == 1 else []
        examples = tuple(dict.fromkeys(shown))[:5]
    microseconds, device = _measured(table, batch_size)
    return TableReport(
        name=table.name,
        rows=table.rows,
        slots=table.size,
        columns={name: spec.dtype for name, spec in table.columns.items()},
        join=table.join,
        duplicates=table.duplicates,
        nbytes=sum(math.prod(variable.shape) * _itemsize(variable.dtype) for variable in table.variables),
        policy=table.missing,
        checked=checked,
        missing=missing,
        examples=examples,
        batch_size=batch_size,
        microseconds=microseconds,
        device=device,
    )


def _itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _measured(table: Table, batch_size: int) -> tuple[float, str]:
    """The time of one join of all columns, compiled, with keys that are on the device already; and which device."""
    keys = ops.convert_to_tensor(table.index.sample(batch_size))

    def join(keys: Any) -> list[Any]:
        row = table.lookup([keys])
        return [row[name] for name in table.columns]

    run, wait = _compiled(join)
    seconds = []
    for repeat in range(8):
        started = time.perf_counter()
        for _ in range(20 if repeat else 1):
            columns = run(keys)
        wait(columns)
        seconds.append((time.perf_counter() - started) / 20)
    device = columns[0].device
    # As tensorflow names it: /job:localhost/replica:0/task:0/device:CPU:0.
    name = getattr(device, "device_kind", str(device)).rpartition("device:")[2]
    return statistics.median(seconds[1:]) * 1e6, name


def _compiled(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """A function as the backend compiles it, and what waits for its results without copying them."""
    backend = keras.config.backend()
    if backend == "jax":
        return jax.jit(function), jax.block_until_ready
    if backend == "tensorflow":
        return tf.function(function, autograph=False), lambda _: tf.test.experimental.sync_devices()
    return function, lambda columns: torch.cuda.synchronize() if columns[0].is_cuda else None
