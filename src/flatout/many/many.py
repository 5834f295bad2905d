"""What came of many models: a frame of results, the best one, the models themselves, a picture."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flatout.base.errors import InvalidOption, MissingExtra

from .candidate import Candidate, History

# Metrics of which more is better, by what their names hold; of all others less is.
_MORE = (
    *("acc", "auc", "precision", "recall", "f1", "fbeta", "iou", "io_u", "dice", "r2", "cosine", "correlation"),
    *("sensitivity", "specificity", "hits", "true_"),
)


class Many:
    """The models that `flatout.fit_many` trained, in the order of their points.

    Attributes:
        points: The arguments of `build` of each model, with its `seed`, and its `fold` if there are folds.
        histories: What `History.history` holds of each, a dict of lists.
        models: The trained models.
        ways: How they ran, in words, and how many that way.
    """

    def __init__(self, candidates: Sequence[Candidate], ways: dict[str, int]):
        self._candidates = list(candidates)
        self.ways = ways

    def __len__(self) -> int:
        return len(self._candidates)

    @property
    def points(self) -> list[dict[str, Any]]:
        return [candidate.coordinates for candidate in self._candidates]

    @property
    def histories(self) -> list[History]:
        return [candidate.so_far for candidate in self._candidates]

    @property
    def models(self) -> list[Any]:
        return [candidate.trained_model() for candidate in self._candidates]

    @property
    def frame(self) -> Any:
        """A pandas frame with a row for each model.

        Its point, the last value of each metric under its name and the best one under `best_` and its name, how many
        epochs it took and how many seconds: from its first step to its last, which others may have shared.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra(
                "`Many.frame` is a pandas frame. Install pandas: pip install 'flatout[data]'."
            ) from error
        return pandas.DataFrame(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """The same as a list of dicts."""
        rows = []
        for candidate in self._candidates:
            history = candidate.so_far
            last = {name: values[-1] for name, values in history.items() if values}
            best = {f"best_{name}": _best(name, values) for name, values in history.items() if numbers_among(values)}
            epochs = max((len(values) for values in history.values()), default=0)
            found = {**last, **best, "epochs": epochs, "seconds": candidate.seconds}
            # A callback may note what is named as a part of the point, such as the rate that it has come to.
            point = candidate.coordinates
            rows.append({**point, **{f"last_{name}" if name in point else name: found[name] for name in found}})
        return rows

    def best(self, metric: str, mode: str = "auto") -> int:
        """The number of the model with the best value of a metric in any epoch.

        Args:
            metric: A key of the histories, such as `"val_accuracy"`.
            mode: `"max"`, `"min"`, or `"auto"`: more is better of accuracies, AUC, precision and the like.
        """
        found = self.ranked(metric, mode)
        if _best(metric, self.histories[found[0]].get(metric, [])) is None:
            raise InvalidOption(f"No model has a value of {metric!r} that is a number.")
        return found[0]

    def ranked(self, metric: str, mode: str = "auto") -> list[int]:
        """The numbers of all models, the best one first; the arguments are those of `best`."""
        known = sorted({name for history in self.histories for name in history})
        if metric not in known:
            raise InvalidOption(f"No history has {metric!r}. Received metrics: {', '.join(known)}.")
        if mode not in ("auto", "min", "max"):
            raise InvalidOption(f"`mode` is 'auto', 'min' or 'max'. Received: {mode!r}.")
        more = is_more_better(metric) if mode == "auto" else mode == "max"
        values = [_best(metric, history.get(metric, []), more) for history in self.histories]
        worst = float("inf")
        places = [worst if value is None else -value if more else value for value in values]
        return sorted(range(len(values)), key=places.__getitem__)

    def plot(self, metric: str | None = None, path: str | Path | None = None) -> Any:
        """A picture of the histories: every model's metric by epoch, the best one on top.

        Args:
            metric: A key of the histories; by default `val_loss` or `loss`.
            path: Write it to this file: `.svg`, or `.html`, one page that needs no network.

        Returns:
            What a notebook shows as the picture.
        """
        from .many_picture import Picture

        picture = Picture(self, metric or metric_of(self.histories) or "loss")
        if path is not None:
            picture.write(Path(path))
        return picture

    def __repr__(self) -> str:
        ways = "; ".join(f"{count} {way}" for way, count in self.ways.items())
        return f"<flatout.Many: {len(self)} models ({ways})>"


def metric_of(histories: Sequence[History]) -> str | None:
    """What models are compared by: the loss on validation data, else in training."""
    known = {name for history in histories for name in history}
    return next((name for name in ("val_loss", "loss") if name in known), min(known, default=None))


def is_more_better(metric: str) -> bool:
    """Whether a metric is one of those that grow, by its name."""
    name = metric.removeprefix("val_")
    return "loss" not in name and "error" not in name and any(part in name for part in _MORE)


def _best(metric: str, values: Sequence[Any], more: bool | None = None) -> Any:
    """The best of some values; those that are no numbers do not count."""
    found = [value for _, value in numbers_among(values) if value == value]
    if not found:
        return None
    return max(found) if (is_more_better(metric) if more is None else more) else min(found)


def numbers_among(values: Sequence[Any]) -> list[tuple[int, float]]:
    """Places and values of those that are single numbers: metrics may be arrays, and callbacks note words."""
    return [
        (place, value)
        for place, value in enumerate(values)
        if isinstance(value, numbers.Number) or getattr(value, "shape", None) == ()
    ]
