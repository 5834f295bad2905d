"""Numbers and names of a model as C spells them."""

from __future__ import annotations

import math
import re

from flatout.base.errors import Refusal, reason


def c_float(number: float) -> str:
    """A float32 literal of C, exact."""
    if not math.isfinite(number):
        raise Refusal(reason("native_model", f"one of its constants is {number}"))
    text = f"{number:.9g}"
    return f"{text}f" if any(mark in text for mark in ".e") else f"{text}.0f"


def c_bool(value: bool) -> str:
    return "true" if value else "false"


def identifier(name: str) -> str:
    """A layer's name as one of C."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"layer_{made}" if made[:1].isdigit() else made
