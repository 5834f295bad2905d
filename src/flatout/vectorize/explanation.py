"""What `vectorize(loss).explain()` says: what the loss became, what was verified, and the gain that was measured."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

from flatout.vectorize.verify.gradients import backend, on_device, outside_tracing
from flatout.vectorize.verify.trial_inputs import ordinary

_BATCH = 64
_REPEATS = 5


def explain(name: str, decision: Any, original: Callable[..., Any], measure: bool) -> str:
    """The decision about a loss, as text."""
    if decision.function is None:
        lines = [f"{name}: the original is kept. {decision.reason}"]
    else:
        ranks = ", ".join(f"{parameter} of rank {rank}" for parameter, rank in decision.rewrite.ranks)
        lines = [f"{name}: array code in place of loops ({decision.rewrite.form} form), for {ranks}."]
    if decision.rewrite is not None:
        title = "It became:" if decision.function is not None else "The rewrite that was rejected:"
        lines += ["", title, "", *(f"    {line}" for line in decision.rewrite.source.rstrip().splitlines()), ""]
        lines += [f"Note: {note}" for note in decision.rewrite.notes]
    verdict = decision.verdict
    if verdict is not None and decision.function is not None:
        lines.append(
            f"Verified {'by an earlier process ' if verdict.is_remembered else ''}"
            f"equal in value (2e-5) and gradient (2e-4 of its largest entry) on {backend()}, "
            f"inputs {verdict.digest}: {', '.join(verdict.compared)}."
        )
        lines += [f"Not compared: {text}." for text in verdict.skipped]
        lines += [f"Proviso: {note}" for note in verdict.notes]
    if measure and decision.function is not None and decision.recipe is not None:
        lines.append(_gain(decision, original))
    return "\n".join(lines)


def _gain(decision: Any, original: Callable[..., Any]) -> str:
    """Both forms, one after the other, outside compiled code: value alone, on one batch."""
    holder = getattr(original, "args", ())
    with outside_tracing():
        arrays = on_device(ordinary(decision.recipe, _BATCH))
        slow = _seconds(lambda: original(**arrays), 2)
        fast = _seconds(lambda: decision.function(*holder, **arrays), _REPEATS)
    ratio = slow / fast
    verdict = (
        f"{ratio:.1f} times faster" if ratio > 1.1 else "no gain" if ratio > 0.9 else f"{1 / ratio:.1f} times slower"
    )
    return (
        f"Measured now, one call on a batch of {_BATCH}, not compiled: {slow * 1e3:.2f} ms before, {fast * 1e3:.2f} ms "
        f"after ({verdict}). In a compiled step what is saved is mostly the time to compile."
    )


def _seconds(run: Callable[[], Any], repeats: int) -> float:
    from keras import ops

    return min(timeit.repeat(lambda: ops.convert_to_numpy(run()), number=1, repeat=1 + repeats)[1:])
