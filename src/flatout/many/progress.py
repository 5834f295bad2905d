"""What a user sees while many models train: how many are done, how long it will take, and the best so far."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .candidate import Candidate, History
from .many import is_more_better, metric_of

_ROWS = 8
_REFRESHES_PER_SECOND = 2


@contextlib.contextmanager
def shown(candidates: Sequence[Candidate], epochs: int, verbose: Any) -> Iterator[None]:
    """Meanwhile, show a table of the candidates in the terminal or notebook; nothing if `verbose` is 0."""
    if not verbose:
        yield
        return
    from rich.console import Console
    from rich.live import Live

    display = _Display(candidates, epochs)
    console = Console()
    if not console.is_terminal and not console.is_jupyter:
        # In a file or a pipe: what it came to, once.
        yield
        console.print(display)
        return
    with Live(display, console=console, refresh_per_second=_REFRESHES_PER_SECOND):
        yield


class _Display:
    def __init__(self, candidates: Sequence[Candidate], epochs: int):
        self._candidates = candidates
        self._epochs = epochs
        self._began = time.perf_counter()

    def __rich__(self) -> Any:
        from rich import box
        from rich.table import Table

        finished = [one for one in self._candidates if one.history is not None]
        running = [one for one in self._candidates if one.history is None and _epochs_of(one.so_far)]
        metric = metric_of([one.so_far for one in self._candidates])
        table = Table("", "model", "epoch", metric or "loss", box=box.SIMPLE_HEAD, title=self._title(finished, running))
        best = sorted((one for one in self._candidates if _last(one, metric) is not None), key=_key(metric))
        for place, candidate in enumerate(best[:_ROWS]):
            point = ", ".join(f"{name}={_short(value)}" for name, value in candidate.coordinates.items())
            state = "[green]done[/]" if candidate.history is not None else "[yellow]runs[/]"
            value = f"{_last(candidate, metric):.4g}"
            table.add_row(state, point, str(_epochs_of(candidate.so_far)), f"[bold]{value}[/]" if not place else value)
        return table

    def _title(self, finished: list[Candidate], running: list[Candidate]) -> str:
        count = len(self._candidates)
        # A model that was stopped early is as good as all of its epochs.
        done = sum(1.0 for _ in finished) + sum(_epochs_of(one.so_far) / max(1, self._epochs) for one in running)
        seconds = time.perf_counter() - self._began
        left = f", about {_duration(seconds * (count - done) / done)} left" if 0 < done < count else ""
        return f"{len(finished)} of {count} models done, {len(running)} run, {_duration(seconds)}{left}"


def _last(candidate: Candidate, metric: str | None) -> Any:
    values = candidate.so_far.get(metric or "", [])
    return values[-1] if values and values[-1] == values[-1] else None


def _key(metric: str | None) -> Any:
    sign = -1.0 if metric is not None and is_more_better(metric) else 1.0
    return lambda candidate: sign * _last(candidate, metric)


def _epochs_of(history: History) -> int:
    return max((len(values) for values in history.values()), default=0)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)[:24]


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
