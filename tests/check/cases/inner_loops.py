"""Loops over time, pairs, classes and groups; recurrences; selections."""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch
from keras import backend as K
from keras import ops

QUANTILES = (0.1, 0.5, 0.9)
NUM_CLASSES = 40
CLASSES = list(range(20))


def time_loss(y_true, y_pred):
    total = 0.0
    t = 0
    while t < y_pred.shape[1]:  # expect: FO102
        total = total + ops.mean(ops.abs(y_true[:, t] - y_pred[:, t]))
        t += 1
    return total


def unstacked_time_loss(y_true, y_pred):
    steps = zip(tf.unstack(y_true, axis=1), tf.unstack(y_pred, axis=1))
    return tf.add_n([tf.reduce_mean(tf.square(a - b)) for a, b in steps])  # expect: FO102


def torch_time_loss(pred, target):
    losses = [torch.mean(torch.abs(pred[:, s] - target[:, s])) for s in range(pred.size(1))]  # expect: FO102
    return torch.stack(losses).mean()


def smoothing_loss(y_true, y_pred):
    ema, total = y_pred[:, 0], 0.0
    for t in range(1, y_pred.shape[1]):  # expect: FO102, FO106
        ema = 0.9 * ema + 0.1 * y_pred[:, t]
        total = total + ops.mean(ops.square(ema - y_true[:, t]))
    return total


def cumulative_loss(y_true, y_pred):
    running = ops.zeros_like(y_pred[:, 0])
    total = 0.0
    for t in range(y_pred.shape[1]):  # expect: FO102, FO106
        running = running + y_pred[:, t] - y_true[:, t]
        total = total + ops.mean(ops.abs(running))
    return total


def states_loss(y_true, y_pred):
    states = [y_pred[:, 0]]
    for t in range(1, y_pred.shape[1]):  # expect: FO102, FO106
        states.append(ops.tanh(states[-1] + y_pred[:, t]))
    return ops.mean(ops.square(ops.stack(states, axis=1) - y_true))


def edit_loss(y_true, y_pred):
    n, m = y_true.shape[1], y_pred.shape[1]
    table = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(1, n + 1):  # expect: FO102, FO106
        for j in range(1, m + 1):  # expect: FO102, FO106
            cost = ops.abs(y_true[:, i - 1] - y_pred[:, j - 1])
            table[i][j] = cost + ops.minimum(table[i - 1][j], table[i][j - 1])
    return ops.mean(table[n][m])


def pair_loss(y_true, y_pred):
    terms = []
    for i, j in itertools.combinations(range(y_pred.shape[0]), 2):  # expect: FO103
        terms.append(ops.sum(ops.square(y_pred[i] - y_pred[j])))
    return ops.mean(ops.stack(terms))


def nested_comprehension_loss(y_true, y_pred):
    n = len(y_pred)
    return sum(ops.sum(ops.abs(y_pred[i] - y_pred[j])) for i in range(n) for j in range(n) if i != j)  # expect: FO103


def row_pairs_loss(y_true, y_pred):
    total = 0.0
    for first in y_pred:  # expect: FO103
        for second in y_pred:
            total = total + tf.reduce_sum(tf.abs(first - second))
    return total


def triple_loss(y_true, y_pred):
    total = 0.0
    size = K.shape(y_pred)[0]
    for a in range(size):  # expect: FO103
        for p in range(size):
            for n in range(size):
                near = ops.sum(ops.square(y_pred[a] - y_pred[p]))
                far = ops.sum(ops.square(y_pred[a] - y_pred[n]))
                total = total + ops.maximum(near - far + 1.0, 0.0)
    return total


def _distance(points, i):
    total = 0.0
    for j in range(points.shape[0]):
        total = total + ops.sum(ops.square(points[i] - points[j]))
    return total


def pair_in_helper_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):  # expect: FO103
        total = total + _distance(y_pred, i)
    return total


def class_loss(y_true, y_pred):
    total = 0.0
    for c in range(NUM_CLASSES):  # expect: FO104
        total = total + ops.mean(y_true[..., c] * ops.log(y_pred[..., c] + 1e-7))
    return -total


def channel_loss(y_true, y_pred):
    return ops.mean(ops.stack([ops.mean(ops.abs(y_true[..., c] - y_pred[..., c])) for c in range(y_pred.shape[-1])]))  # expect: FO104


def listed_class_loss(y_true, y_pred):
    total = 0.0
    for label in CLASSES:  # expect: FO104
        mask = ops.cast(ops.equal(y_true, label), "float32")
        total = total + ops.sum(mask * y_pred[:, label])
    return total


def bounded_class_loss(y_true, y_pred):
    total = 0.0
    for c in range(int(K.max(y_true)) + 1):  # expect: FO104, FO201
        t = K.cast(K.equal(y_true, c), "float32")
        total = total + K.sum(t * y_pred[..., c])
    return -total


def quantile_loss(y_true, y_pred):
    total = 0.0
    for k, q in enumerate(QUANTILES):  # expect: FO104 info
        error = y_true[:, 0] - y_pred[:, k]
        total = total + ops.mean(ops.maximum(q * error, (q - 1.0) * error))
    return total


def group_loss(y_true, y_pred, group):
    total = 0.0
    for g in np.unique(ops.convert_to_numpy(group)):  # expect: FO107, FO201, FO205
        total = total + ops.mean(ops.square(y_true - y_pred)[group == g])  # expect: FO108
    return total


def torch_group_loss(pred, target, domain):
    total = 0.0
    for d in torch.unique(domain):  # expect: FO107, FO108
        total = total + torch.mean(torch.abs(pred - target)[domain == d])  # expect: FO108
    return total


def set_group_loss(y_true, y_pred, speaker):
    total = 0.0
    for s in set(speaker.tolist()):  # expect: FO107, FO201
        mask = ops.cast(speaker == s, "float32")
        total = total + ops.sum(mask * ops.square(y_true - y_pred)) / ops.sum(mask)
    return total


def masked_loss(y_true, y_pred):
    error = tf.square(y_true - y_pred)
    return tf.reduce_mean(tf.boolean_mask(error, y_true > 0))  # expect: FO108


def jnp_masked_loss(y_true, y_pred):
    keep = jnp.logical_not(jnp.isnan(y_true))
    return jnp.mean(jnp.square(y_true[keep] - y_pred[keep]))  # expect: FO108, FO108


def where_index_loss(y_true, y_pred):
    index = tf.where(y_true > 0)  # expect: FO108
    return tf.reduce_mean(tf.gather_nd(tf.abs(y_true - y_pred), index))


def torch_selected_loss(pred, target):
    return torch.masked_select(torch.abs(pred - target), target > 0).mean()  # expect: FO108


def lengths_loss(y_true, y_pred, lengths):
    terms = []
    for i in range(len(y_true)):  # expect: FO101
        n = lengths[i].item()  # expect: FO201
        terms.append(ops.mean(ops.square(y_true[i][:n] - y_pred[i][:n])))  # expect: FO108, FO108
    return ops.mean(ops.stack(terms))


def grown_list_loss(y_true, y_pred):
    worst = []
    error = ops.abs(y_true - y_pred)
    for i in range(error.shape[0]):  # expect: FO101
        if float(error[i]) > 1.0:  # expect: FO201, FO202
            worst.append(error[i])  # expect: FO108
    return ops.mean(ops.stack(worst))


def entry_state_loss(y_true, y_pred):
    state, total = {"h": ops.zeros_like(y_pred[:, 0])}, 0.0
    for t in range(y_pred.shape[1]):  # expect: FO102, FO106
        state["h"] = ops.tanh(0.5 * state["h"] + y_pred[:, t])
        total += ops.mean(ops.square(state["h"] - y_true[:, t]))
    return total


def entry_in_helper_loss(y_true, y_pred):
    state, total = {"h": ops.zeros_like(y_pred[:, 0])}, 0.0

    def step(frame):
        state["h"] = ops.tanh(0.5 * state["h"] + frame)
        return state["h"]

    for t in range(y_pred.shape[1]):  # expect: FO102, FO106
        total += ops.mean(ops.square(step(y_pred[:, t]) - y_true[:, t]))
    return total


def entry_in_comprehension_loss(y_true, y_pred):
    memory = [y_pred[:, 0]]

    def advance(frame):
        memory[0] = 0.8 * memory[0] + 0.2 * frame
        return memory[0]

    return ops.mean(ops.stack([advance(y_pred[:, t]) for t in range(1, 9)])) + sum(
        ops.mean(advance(y_pred[:, t]) - y_true[:, t])  # expect: FO102, FO106
        for t in range(y_pred.shape[1])
    )


def nonlocal_in_comprehension_loss(y_true, y_pred):
    h = ops.zeros_like(y_pred[:, 0])

    def step(frame):
        nonlocal h
        h = ops.tanh(h + frame)
        return h

    return sum(ops.mean(step(y_pred[:, t])) for t in range(y_pred.shape[1]))  # expect: FO102, FO106


def named_in_comprehension_loss(y_true, y_pred):
    h = ops.zeros_like(y_pred[:, 0])
    states = [h := ops.tanh(0.5 * h + y_pred[:, t]) for t in range(y_pred.shape[1])]  # expect: FO102, FO106
    return ops.mean(ops.square(ops.stack(states, 1) - y_true))


class Smoother:
    def __init__(self):
        self.h = 0.0

    def step(self, frame):
        self.h = 0.7 * self.h + 0.3 * frame
        return self.h


def object_state_loss(y_true, y_pred):
    smoother, total = Smoother(), 0.0
    for t in range(y_pred.shape[1]):  # expect: FO102, FO106
        total = total + ops.mean(ops.abs(smoother.step(y_pred[:, t]) - y_true[:, t]))
    return total


def entry_total_loss(y_true, y_pred):
    kept = {"total": 0.0, "count": 0}
    for t in range(y_pred.shape[1]):  # expect: FO102
        kept["error"] = ops.square(y_pred[:, t] - y_true[:, t])
        kept["total"] = kept["total"] + ops.mean(kept["error"])
        kept["count"] += 1
    return kept["total"] / kept["count"]


def accumulated_loss(y_true, y_pred):
    frames = ops.unstack(y_pred, axis=1)
    states = list(itertools.accumulate(frames, lambda h, x: ops.tanh(0.5 * h + x)))  # expect: FO102, FO106
    return ops.mean(ops.square(ops.stack(states, 1) - y_true))


def folded_loss(y_true, y_pred):
    last = functools.reduce(lambda h, x: torch.tanh(0.5 * h + x), y_pred.unbind(1))  # expect: FO102, FO106
    return torch.mean((last - y_true[:, -1]) ** 2)


def counted_top_loss(y_true, y_pred):
    count = int(ops.sum(ops.cast(y_true > 0, "int32")))  # expect: FO201
    return ops.mean(ops.top_k(ops.reshape(ops.square(y_true - y_pred), (-1,)), count)[0])  # expect: FO108


def counted_topk_loss(y_true, y_pred):
    error = ((y_true - y_pred) ** 2).flatten()
    return error.topk((y_true > 0).sum().item()).values.mean()  # expect: FO201, FO108

def listed_states_loss(y_true, y_pred):
    h = [0.0, 0.0, 0.0]
    for t in range(y_pred.shape[1]):  # expect: FO102, FO106
        for k in range(3):
            h[k] = ops.tanh(h[k] + y_pred[:, t])
    return sum(h)


def listed_in_entry_loss(y_true, y_pred):
    kept = {"steps": [0.0]}
    for t in range(y_pred.shape[1]):  # expect: FO102, FO106
        kept["steps"].append(0.9 * kept["steps"][-1] + ops.mean(y_pred[:, t]))
    return sum(kept["steps"])


def scattered_sums_loss(y_true, y_pred):
    sums = jnp.zeros((10,))
    for i in range(y_pred.shape[0]):  # expect: FO101
        sums = sums.at[int(y_true[i])].add(y_pred[i])  # expect: FO201
    return jnp.mean(sums)
