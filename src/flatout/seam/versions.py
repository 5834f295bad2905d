"""Which versions of Keras are known here, and what differs between them."""

from __future__ import annotations

# Keras' internals that we touch were read in these versions; `make keras-versions` runs the tests on each.
TESTED_KERAS = ((3, 12), (3, 17))
# What Keras keeps its global seed generator under; 3.12 has no constant for it.
GLOBAL_SEED_GENERATOR = "global_seed_generator"


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
    low, (major, beyond) = TESTED_KERAS
    return f"{low[0]}.{low[1]} to {major}.{beyond - 1}"
