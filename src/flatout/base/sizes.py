"""Bytes in words."""

from __future__ import annotations


def as_size(nbytes: int) -> str:
    """A number of bytes as people write it: `"1.5 GB"`."""
    size = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
