"""`%load_ext flatout` and `%unload_ext flatout` in IPython and Jupyter."""

from __future__ import annotations

from typing import Any

from . import switch as patch


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext flatout`: accelerates the models of this notebook."""
    patch.enable()


def unload_ipython_extension(ipython: Any) -> None:
    """Called by `%unload_ext flatout`: gives Keras its own methods back."""
    patch.disable()
