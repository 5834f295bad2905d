"""Refused: it does more than compute, draws random numbers, or defines a gradient of its own."""

import collections
import itertools
import random
import time

import keras
import numpy as np
from keras import ops

SEED = keras.random.SeedGenerator(3)
HISTORY = []
CALLS = 0
RNG = np.random.default_rng(0)
COUNTS_OF_CALLS = {"n": 0}
QUEUE = collections.deque(maxlen=4)
SEEN_LABELS = set()
TOTALS = np.zeros(3)
CACHE = {}
SHARED = [1.0]
CYCLE = itertools.cycle([2.0])


def numpy_noise_loss(y_true, y_pred):  # refused: FO304
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = total + ops.mean(ops.square(t - p + np.random.normal(0.0, 0.1)))
    return total


def chosen_sample_loss(y_true, y_pred):  # refused: FO304
    total = 0.0
    for _ in range(4):
        i = random.randrange(y_pred.shape[0])
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def dropped_rows_loss(y_true, y_pred):  # refused: FO304
    rows = []
    for i in range(y_pred.shape[0]):
        keep = ops.cast(keras.random.uniform((), seed=SEED) > 0.2, "float32")
        rows.append(keep * ops.mean(ops.square(y_true[i] - y_pred[i])))
    return ops.mean(ops.stack(rows))


def remembered_loss(y_true, y_pred):  # refused: FO303
    total = 0.0
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.square(y_true[i] - y_pred[i]))
        HISTORY.append(error)
        total = total + error
    return total


def counted_loss(y_true, y_pred):  # refused: FO303
    global CALLS
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        CALLS += 1
        total = total + ops.sum(ops.abs(t - p))
    return total


def shown_loss(y_true, y_pred):  # refused: FO203
    total = 0.0
    for i in range(y_pred.shape[0]):
        error = ops.mean(ops.square(y_true[i] - y_pred[i]))
        print("row", i)
        total = total + error
    return total


@ops.custom_gradient
def clipped(x):
    def backward(*args, upstream=None):
        return 0.5 * (args[0] if upstream is None else upstream)

    return ops.clip(x, -1.0, 1.0), backward


def own_slope_loss(y_true, y_pred):  # refused: FO101
    return sum(ops.sum(clipped(t - p)) for t, p in zip(y_true, y_pred, strict=False))


class Stateful(keras.losses.Loss):  # refused: FO303
    def __init__(self):
        super().__init__()
        self.worst = 0.0

    def call(self, y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            error = ops.mean(ops.square(y_true[i] - y_pred[i]))
            self.worst = error
            total = total + error
        return total


def generator_noise_loss(y_true, y_pred):  # refused: FO304
    return sum(ops.mean(ops.square(y_pred[i] + RNG.normal() - y_true[i])) for i in range(y_pred.shape[0]))


def shuffled_loss(y_true, y_pred):  # refused: FO304
    order = list(range(y_pred.shape[0]))
    random.shuffle(order)
    total = 0.0
    for i in order[:2]:
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def writes_dict_loss(y_true, y_pred):  # refused: FO303 FO402
    total = 0.0
    for i in range(y_pred.shape[0]):
        e = ops.mean(ops.square(y_true[i] - y_pred[i]))
        COUNTS_OF_CALLS["n"] = COUNTS_OF_CALLS["n"] + 1
        total = total + e
    return total


def clocked_loss(y_true, y_pred):  # refused: FO101 FO303 FO206 FO203
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i])) * (time.time() % 1.0)
    return total


def writes_file_loss(y_true, y_pred):  # refused: FO101 FO206
    total = 0.0
    for i in range(y_pred.shape[0]):
        with open("/dev/null", "a") as f:  # noqa: PTH123
            f.write(str(i))
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


def raises_loss(y_true, y_pred):  # refused: FO101 FO203 FO202
    total = 0.0
    for i in range(y_pred.shape[0]):
        if float(y_pred[i, 0]) > 1e6:
            raise ValueError("diverged")
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total


@ops.custom_gradient
def straight(x):
    def backward(*args, upstream=None):
        return args[0] if upstream is None else upstream

    return ops.sign(x), backward


def custom_in_helper_loss(y_true, y_pred):  # refused: FO101
    def one(t, p):
        return ops.mean(ops.square(straight(p) - t))

    return ops.mean(ops.stack([one(t, p) for t, p in zip(y_true, y_pred, strict=False)]))


class Counting(keras.losses.Loss):  # refused: FO303
    def __init__(self):
        super().__init__()
        self.count = 0

    def call(self, y_true, y_pred):
        rows = []
        for t, p in zip(y_true, y_pred, strict=False):
            self.count += 1
            rows.append(ops.mean(ops.abs(t - p)))
        return ops.stack(rows)


class Remember(keras.losses.Loss):  # refused: FO106 FO303
    def __init__(self):
        super().__init__()
        self.seen = []

    def call(self, y_true, y_pred):
        rows = []
        for t, p in zip(y_true, y_pred, strict=False):
            rows.append(ops.mean(ops.abs(t - p)))
            self.seen.append(rows[-1])
        return ops.stack(rows)


def mixup_loss(y_true, y_pred):  # refused: FO304
    total = 0.0
    for i in range(y_pred.shape[0]):
        lam = random.betavariate(0.4, 0.4)
        total = total + ops.mean(ops.square(lam * y_pred[i] - lam * y_true[i]))
    return total


@ops.custom_gradient
def reversed_gradient(x):
    def backward(*args, upstream=None):
        return -(args[0] if upstream is None else upstream)

    return x, backward


def adversarial_rows_loss(y_true, y_pred):  # refused: FO101
    return sum(ops.mean(ops.square(reversed_gradient(p) - t)) for t, p in zip(y_true, y_pred, strict=False))


def rows_left_out_loss(y_true, y_pred):  # refused: FO304
    kept = [ops.mean(ops.abs(t - p)) for t, p in zip(y_true, y_pred, strict=False) if np.random.rand() < 0.9]
    return sum(kept) / max(len(kept), 1)


def queue_loss(y_true, y_pred):  # refused: FO303 FO402 FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        QUEUE.append(float(ops.mean(ops.abs(t - p))))
        total = total + ops.mean(ops.square(t - p)) * len(QUEUE)
    return total


def first_seen_loss(y_true, y_pred):  # refused: FO303 FO402 FO401 FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        label = int(y_true[i])
        if label not in SEEN_LABELS:
            SEEN_LABELS.add(label)
            total = total + ops.square(y_pred[i])
    return total


def written_totals_loss(y_true, y_pred):  # refused: FO303 FO402 FO106 FO101
    for i in range(y_pred.shape[0]):
        TOTALS[int(y_true[i])] += float(y_pred[i])
    return ops.mean(ops.square(y_pred)) + float(TOTALS.sum()) * 0.0


class Momentum(keras.losses.Loss):  # refused: FO303 FO106 FO101
    def __init__(self):
        super().__init__()
        self.running = 0.0

    def call(self, y_true, y_pred):
        loss = sum(ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))
        self.running = 0.9 * self.running + 0.1 * float(loss)
        return loss - self.running


def cached_rows_loss(y_true, y_pred):  # refused: FO303 FO402 FO401 FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        key = int(y_true[i])
        if key not in CACHE:
            CACHE[key] = len(CACHE) + 1.0
        total = total + CACHE[key] * ops.square(y_pred[i])
    return total


def lengthened_alias_loss(y_true, y_pred):  # refused: FO303
    seen = SHARED
    seen += [1.0]
    return sum(ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))


def drawn_from_iterator_loss(y_true, y_pred):  # refused: FO206
    return sum(next(CYCLE) * ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))


class Flagged(keras.losses.Loss):  # refused: FO206
    def call(self, y_true, y_pred):
        setattr(self, "seen", True)  # noqa: B010
        return sum(ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False))


class Remembering:
    seen: list[int] = []  # noqa: RUF012

    def __init__(self):
        self.total = 0.0

    def add(self, x):
        self.seen.append(1)
        self.total = self.total + x


def remembering_object_loss(y_true, y_pred):  # refused: FO206
    sums = Remembering()
    for t, p in zip(y_true, y_pred, strict=False):
        sums.add(ops.mean(ops.square(t - p)))
    return sums.total
