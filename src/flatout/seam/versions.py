"""Which versions of Keras are known here, and what differs between them."""

from __future__ import annotations

# Keras' internals that we touch were read in these versions, and its own test suite passes under us on them.
TESTED_KERAS = ((3, 15, 1), (3, 16))


def version_tuple(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `"3.16.0.dev1"` gives `(3, 16, 0)`."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def is_keras_3(version: str) -> bool:
    """Whether a version is not one of Keras before it had backends; an unknown one is taken for new."""
    return version.partition(".")[0] not in ("0", "1", "2")


def is_tested(version: str) -> bool:
    low, high = TESTED_KERAS
    return low <= version_tuple(version) < high


def tested_versions() -> str:
    """In words."""
    low, high = (".".join(map(str, version)) for version in TESTED_KERAS)
    return f"{low} to below {high}"
