"""Helpers that losses of another file call."""

from keras import ops

MARGIN = 0.3


def overlap(a, b):
    """Of two intervals (start, length)."""
    left = ops.maximum(a[0], b[0])
    right = ops.minimum(a[0] + ops.abs(a[1]), b[0] + ops.abs(b[1]))
    shared = ops.maximum(right - left, 0.0)
    return shared / (ops.abs(a[1]) + ops.abs(b[1]) - shared + 1e-6)


def hinge(score, sign):
    return ops.maximum(0.0, MARGIN - sign * score)


def rows_of(*arrays):
    for i in range(arrays[0].shape[0]):
        yield tuple(array[i] for array in arrays)


class Weighting:
    def __init__(self, table):
        self.table = table

    def __call__(self, label):
        return self.table[int(label)]
