"""Keras' own folder and settings, without importing Keras."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path


def keras_home() -> Path:
    """Where Keras keeps its settings and data sets."""
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")


def configured_backend() -> str | None:
    """The backend that keras.json names."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return json.loads((keras_home() / "keras.json").read_text(encoding="utf-8")).get("backend")
    return None
