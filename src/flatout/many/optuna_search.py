"""An Optuna study by ask and tell: trials are asked for in batches, and trained many at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flatout.base.errors import InvalidOption

from .candidate import History
from .fit_many import fit_many
from .grid import Point
from .many import Many


def optimize(
    study: Any,
    build: Callable[..., Any],
    space: Callable[[Any], Point],
    x: Any = None,
    y: Any = None,
    *,
    trials: int,
    at_once: int = 16,
    metric: str = "val_loss",
    **arguments: Any,
) -> list[Many]:
    """Train the trials of an Optuna study, `at_once` of them at a time, and tell it what they came to.

    The value of a trial is the best one of the metric in any epoch, by the study's direction; each epoch's is reported
    too. A trial without a number, such as one that diverged at once, has failed; after an error so have all of its
    batch that have no value yet.

    Args:
        study: An `optuna.Study` with one direction.
        build: As for `flatout.fit_many`.
        space: Draws a point from a trial: `lambda trial: {"units": trial.suggest_int("units", 8, 64)}`. It may raise
            `optuna.TrialPruned` instead, and the trial is not trained.
        x: As for `flatout.fit_many`.
        y: As for `flatout.fit_many`.
        trials: How many.
        at_once: How many are asked for before the study hears of them.
        metric: A key of the histories.
        **arguments: As for `flatout.fit_many`.

    Returns:
        What each batch of trials came to, without the pruned ones.
    """
    if trials < 1 or at_once < 1:
        raise InvalidOption(f"There is at least one trial, at a time too. Received: {trials=}, {at_once=}.")
    if len(study.directions) != 1:
        raise InvalidOption(f"`optimize` wants a study with one direction. Received: {len(study.directions)}.")
    if arguments.get("folds") is not None:
        raise InvalidOption("A trial is one model, and `folds` makes several of it. Leave it out, or use `fit_many`.")
    done: list[Many] = []
    for start in range(0, trials, at_once):
        asked: list[Any] = []
        try:
            for _ in range(min(at_once, trials - start)):
                asked.append(study.ask())
            drawn = _drawn(study, asked, space)
            if drawn:
                done.append(fit_many(build, [point for _, point in drawn], x, y, **arguments))
                for (trial, _), history in zip(drawn, done[-1].histories, strict=True):
                    _tell(study, trial, history, metric)
        except BaseException:
            for trial in asked:
                study.tell(trial, state=_state("FAIL"), skip_if_finished=True)
            raise
    return done


def _drawn(study: Any, trials: list[Any], space: Callable[[Any], Point]) -> list[tuple[Any, Point]]:
    """The trials that are to be trained, with their points."""
    from optuna import TrialPruned

    drawn = []
    for trial in trials:
        try:
            drawn.append((trial, space(trial)))
        except TrialPruned:
            study.tell(trial, state=_state("PRUNED"))
    return drawn


def _tell(study: Any, trial: Any, history: History, metric: str) -> None:
    if metric not in history:
        raise InvalidOption(f"No history has {metric!r}. Received metrics: {', '.join(history)}.")
    values = {epoch: value for epoch, value in enumerate(history[metric]) if math.isfinite(value)}
    for epoch, value in values.items():
        trial.report(value, epoch)
    if values:
        best = max if study.direction.name == "MAXIMIZE" else min
        study.tell(trial, best(values.values()))
    else:
        study.tell(trial, state=_state("FAIL"))


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]
