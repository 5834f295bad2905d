"""Sentences for the user on stderr, which never break the user's program."""

from __future__ import annotations

import sys


def tell(message: str) -> None:
    """Write `flatout: message` on stderr; a closed or broken stderr is no error."""
    write(f"flatout: {message}")


def write(text: str) -> None:
    """Write a text on stderr after what the program has printed so far; says nothing where nobody listens."""
    for stream, output in ((sys.stdout, ""), (sys.stderr, text + "\n")):
        # A stream is None without a console, closed (ValueError) or a broken pipe (OSError).
        try:
            if stream is not None:
                stream.write(output)
                stream.flush()
        except (OSError, ValueError):
            pass
