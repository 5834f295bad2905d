"""The user's wishes: one frozen `Options`, read from FLATOUT_* variables, keyword arguments and contexts."""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .errors import InvalidOption

ENGINES = ("auto", "jax", "tensorflow", "torch", "native", "stock")
PLACEMENTS = ("auto", "resident", "streamed", "direct")
PRECISIONS = ("exact", "fast")
LAUNCHERS = ("auto", "local", "ray")
_CHOICES = {"engine": ENGINES, "data": PLACEMENTS, "precision": PRECISIONS, "launcher": LAUNCHERS}


@dataclass(frozen=True)
class Options:
    """How flatout shall run a call.

    Attributes:
        enabled: False hands everything to stock Keras.
        engine: `"auto"`, a backend's name, `"native"` (CUDA kernels for dense models) or `"stock"`.
        data: `"auto"`, `"resident"` (all rows in device memory), `"streamed"` (chunks sent ahead of their use) or
            `"direct"` (files read straight into device memory).
        precision: `"exact"` (Keras' own results) or `"fast"` (sums may be rounded in another order).
        vram: What data may take of the device's memory: a share of what is free (`"0.6"`) or an amount (`"8GB"`).
        strict: Raise `FallbackRefused` instead of running stock Keras.
        force: Accelerate even work too small to gain, and try nothing first on an untested version of Keras.
        vectorize: Apply `flatout.vectorize` to the losses and metrics that `compile` is given.
        workers: How many devices or processes a batch is divided among, or `"auto"` for as many as there are devices.
        launcher: What starts processes: `"local"`, `"ray"`, or `"auto"`: Ray if `RAY_ADDRESS` is set.
        restarts: How often processes begin again from the last checkpoint when one of them is lost.
    """

    enabled: bool = True
    engine: str = "auto"
    data: str = "auto"
    precision: str = "exact"
    # Data must leave room for the model, its activations and XLA's workspace.
    vram: str = "0.6"
    strict: bool = False
    force: bool = False
    vectorize: bool = False
    workers: int | str = 1
    launcher: str = "auto"
    restarts: int = 0

    def __post_init__(self) -> None:
        self.budget(0)
        if self.workers != "auto":
            if not re.fullmatch("[1-9][0-9]*", str(self.workers)):
                raise InvalidOption(
                    f"Invalid value for option `workers`. Received: workers={self.workers!r}. "
                    "Expected a number of devices from 1 on, or 'auto'."
                )
            object.__setattr__(self, "workers", int(self.workers))
        if not re.fullmatch("[0-9]+", str(self.restarts)):
            raise InvalidOption(
                f"Invalid value for option `restarts`. Received: restarts={self.restarts!r}. Expected 0 or more."
            )
        object.__setattr__(self, "restarts", int(self.restarts))
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise InvalidOption(
                    f"Invalid value for option `{name}`. Received: {name}={value!r}. "
                    f"Expected one of {', '.join(map(repr, choices))}."
                )

    def budget(self, free: int) -> int:
        """Bytes that data may take of a device with so many free."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)(B?)\s*", self.vram)
        if match is None or (not match[2] and not match[4] and float(match[1]) > 1):
            raise InvalidOption(
                f"Invalid value for option `vram`. Received: vram={self.vram!r}. Expected a share of the free memory "
                "from 0 to 1, or an amount such as '8GB'."
            )
        if not match[2] and not match[4]:
            return int(float(match[1]) * free)
        return int(float(match[1]) * (1024 if match[3] else 1000) ** " kMGT".index(match[2] or " "))


def _flag(variable: str, text: str) -> bool:
    value = text.strip().lower()
    if value in ("1", "true", "on", "yes"):
        return True
    if value in ("", "0", "false", "off", "no"):
        return False
    raise InvalidOption(f"Invalid value for {variable}. Received: {text!r}. Expected 1 or 0.")


def from_environment(environ: Mapping[str, str] | None = None) -> Options:
    """Read `FLATOUT`, and `FLATOUT_` with ENGINE, DATA, PRECISION, VRAM, STRICT, FORCE, VECTORIZE, WORKERS, LAUNCHER or
    RESTARTS."""
    environ = os.environ if environ is None else environ
    settings: dict[str, Any] = {}
    for field in fields(Options):
        variable = "FLATOUT" if field.name == "enabled" else f"FLATOUT_{field.name.upper()}"
        text = environ.get(variable)
        if text is not None and isinstance(field.default, bool):
            settings[field.name] = _flag(variable, text)
        elif text:
            settings[field.name] = text
    return Options(**settings)


_overrides: contextvars.ContextVar[tuple[tuple[str, Any], ...]] = contextvars.ContextVar("flatout_options", default=())
_process_overrides: dict[str, Any] = {}


def current() -> Options:
    """The options in force here: environment, then `enable(...)`, then the innermost `options(...)`."""
    return replace(from_environment(), **{**_process_overrides, **dict(_overrides.get())})


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(Options)}
    for name in settings:
        if name not in known:
            raise InvalidOption(f"Unknown option. Received: {name!r}. Expected one of {', '.join(sorted(known))}.")
    settings = {name: value for name, value in settings.items() if value is not None}
    checked = Options(**settings)
    return {name: getattr(checked, name) for name in settings}


def set_for_process(**settings: Any) -> dict[str, Any]:
    """Set options until `clear_for_process`, and return them as set; `flatout.enable(**options)` does this."""
    checked = _checked(settings)
    _process_overrides.clear()
    _process_overrides.update(checked)
    return checked


def clear_for_process() -> None:
    _process_overrides.clear()


@contextlib.contextmanager
def options(**settings: Any) -> Iterator[Options]:
    """Set options for a `with` block; `None` leaves a setting alone.

    Example:
        >>> import flatout
        >>> with flatout.options(engine="stock") as chosen:
        ...     print(chosen.engine)
        stock
    """
    token = _overrides.set(tuple({**dict(_overrides.get()), **_checked(settings)}.items()))
    try:
        yield current()
    finally:
        _overrides.reset(token)
