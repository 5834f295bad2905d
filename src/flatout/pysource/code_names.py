"""The names that a function's code reads."""

from __future__ import annotations

import types
from collections.abc import Iterator


def names_in(code: types.CodeType) -> Iterator[str]:
    """All names that code, and the code inside it, reads outside or of objects."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
