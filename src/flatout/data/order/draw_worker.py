"""A process that draws permutations for another one: run as a script, it imports NumPy and nothing else.

Requests come by the standard input: the number of a generator, the number of rows, and the length of a state of NumPy's
generator that follows, which is 0 where the generator goes on. The permutation goes to one of two places of the
generator, in turns, in a file that both processes have in memory; a byte on the standard output says that it is there.
"""

from __future__ import annotations

import mmap
import struct
import sys

import numpy as np

REQUEST = struct.Struct("<3q")
# The words of a state, then the position, whether there is a normal variate in store, and that.
_REST = struct.Struct("<2qd")


def packed_state(state: tuple[str, np.ndarray, int, int, float]) -> bytes:
    """A state of `numpy.random.RandomState` as bytes."""
    return state[1].astype("<u4").tobytes() + _REST.pack(*state[2:])


def _unpacked_state(data: bytes) -> tuple[str, np.ndarray, int, int, float]:
    return "MT19937", np.frombuffer(data[: -_REST.size], "<u4"), *_REST.unpack(data[-_REST.size :])


def main(file: int, rows_of_place: int) -> None:
    places = np.frombuffer(mmap.mmap(file, 0), np.int32).reshape(-1, 2, rows_of_place)
    generators: dict[int, np.random.RandomState] = {}
    drawn: dict[int, int] = {}
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while request := requests.read(REQUEST.size):
        place, rows, length = REQUEST.unpack(request)
        if length:
            generators[place] = np.random.RandomState()
            generators[place].set_state(_unpacked_state(requests.read(length)))
            drawn[place] = 0
        drawn[place] += 1
        places[place, drawn[place] % 2, :rows] = generators[place].permutation(rows)
        answers.write(b"!")
        answers.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
