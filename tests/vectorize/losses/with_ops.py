"""Losses as people post them, in `keras.ops`, NumPy and pandas: each is rewritten, and its codes are reported."""

import itertools

import keras
import numpy as np
import pandas as pd
from keras import ops

ALPHA = {0: 0.25, 1: 0.5, 2: 1.0}
PRICES = pd.DataFrame({"code": [0, 1, 2], "price": [1.0, 4.0, 0.5], "fee": [0.1, 0.2, 0.3]}).set_index("code")
SCALE = np.array([1.0, 2.0, 0.5], "float32")
PENALTY = [[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]]


def cosine_rows_loss(y_true, y_pred):  # codes: FO101
    sims = []
    for idx in range(len(y_pred)):
        a, b = y_true[idx], y_pred[idx]
        num = ops.sum(a * b)
        den = ops.sqrt(ops.sum(a**2)) * ops.sqrt(ops.sum(b**2)) + 1e-7
        sims.append(1 - num / den)
    return sum(sims) / len(sims)


def huber_elements_loss(y_true, y_pred, delta=1.0):  # codes: FO101 FO201|FO202
    batch, dim = y_true.shape
    loss = 0.0
    for b in range(batch):
        for d in range(dim):
            err = y_true[b, d] - y_pred[b, d]
            if abs(float(err)) <= delta:
                loss += 0.5 * err * err
            else:
                loss += delta * (ops.abs(err) - 0.5 * delta)
    return loss / (batch * dim)


def focal_comprehension_loss(y_true, y_pred):  # codes: FO101
    clipped = ops.clip(y_pred, 1e-6, 1 - 1e-6)
    return -ops.mean(ops.stack([ops.sum(t * (1 - p) ** 2 * ops.log(p)) for t, p in zip(y_true, clipped, strict=False)]))


def total_variation_loss(y_true, y_pred):  # codes: FO102
    tv = 0
    for t in range(y_pred.shape[1] - 1):
        tv += ops.mean(ops.abs(y_pred[:, t + 1] - y_pred[:, t]))
    return tv + ops.mean(ops.square(y_true - y_pred))


def weighted_horizon_loss(y_true, y_pred):  # codes: FO102|FO104
    steps = y_pred.shape[1]
    weights = [0.9**k for k in range(steps)]
    return sum(w * ops.mean(ops.square(y_true[:, k] - y_pred[:, k])) for k, w in enumerate(weights)) / steps


def second_difference_loss(y_true, y_pred):  # codes: FO102
    rough = 0.0
    for t in range(1, y_pred.shape[1] - 1):
        rough = rough + ops.sum(ops.square(y_pred[:, t - 1] - 2 * y_pred[:, t] + y_pred[:, t + 1]))
    return rough + ops.sum(ops.abs(y_true - y_pred))


def contrastive_pairs_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.shape[0]
    loss, count = 0.0, 0
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            dist = ops.sum(ops.square(y_pred[i] - y_pred[j]))
            same = ops.cast(ops.equal(y_true[i], y_true[j]), "float32")
            loss += same * dist + (1 - same) * ops.relu(1.0 - dist)
            count += 1
    return loss / max(count, 1)


def margin_rank_loss(y_true, y_pred):  # codes: FO103 FO201|FO202
    losses = []
    for i, j in itertools.product(range(y_true.shape[0]), repeat=2):
        if y_true[i] > y_true[j]:
            losses.append(ops.relu(0.3 - (y_pred[i] - y_pred[j])))
    return sum(losses)


def concordance(y_true, y_pred):  # codes: FO103 FO201|FO202
    """Harrell's C as a metric."""
    good = total = 0.0
    for i in range(y_true.shape[0]):
        for j in range(i + 1, y_true.shape[0]):
            if float(y_true[i]) != float(y_true[j]):
                total += 1.0
                if (float(y_true[i]) > float(y_true[j])) == (float(y_pred[i]) > float(y_pred[j])):
                    good += 1.0
    return good / max(total, 1.0)


def per_class_iou_loss(y_true, y_pred):  # codes: FO104
    ious = []
    for c in range(y_pred.shape[-1]):
        t, p = y_true[..., c], y_pred[..., c]
        inter = ops.sum(t * p)
        ious.append((inter + 1.0) / (ops.sum(t) + ops.sum(p) - inter + 1.0))
    return 1.0 - ops.mean(ops.stack(ious))


def pinball_list_loss(y_true, y_pred):  # codes: FO104
    losses = []
    for k, q in enumerate([0.05, 0.5, 0.95]):
        e = y_true - y_pred[:, k]
        losses.append(ops.mean(ops.maximum(q * e, (q - 1) * e)))
    return ops.sum(ops.stack(losses))


def expected_cost_loss(y_true, y_pred):  # codes: FO104
    labels = ops.cast(y_true, "int32")
    total = 0.0
    for true in range(3):
        for guess in range(3):
            hit = ops.cast(labels == true, "float32")
            total = total + ops.sum(hit * y_pred[:, guess]) * PENALTY[true][guess]
    return total / y_true.shape[0]


def class_balance_loss(y_true, y_pred):  # codes: FO101 FO401
    w = ops.stack([ALPHA[int(label)] for label in y_true])
    ce = -ops.log(ops.take_along_axis(y_pred, ops.cast(y_true, "int32")[:, None], axis=1)[:, 0] + 1e-7)
    return ops.mean(w * ce)


def price_table_loss(y_true, y_pred):  # codes: FO101 FO401
    out = 0.0
    for k in range(y_true.shape[0]):
        row = PRICES.loc[int(y_true[k])]
        out = out + row["price"] * ops.abs(y_pred[k]) + row.fee
    return out / y_true.shape[0]


def scaled_by_label_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for label, row in zip(y_true, y_pred, strict=False):
        total = total + SCALE[int(label)] * ops.logsumexp(row) - row[int(label)]
    return total / len(y_true)


def present_only_loss(y_true, y_pred):  # codes: FO101 FO201|FO202
    vals = []
    for t, p in zip(y_true, y_pred, strict=False):
        if not bool(ops.isnan(t)):
            vals.append(ops.square(t - p))
    if not vals:
        return ops.sum(0.0 * y_pred)
    return sum(vals) / len(vals)


def valid_length_loss(y_true, y_pred, lengths):  # codes: FO101 FO108 FO201
    losses = []
    for i, n in enumerate(lengths):
        n = int(n)
        losses.append(ops.sum(ops.square(y_true[i, :n] - y_pred[i, :n])))
    return ops.mean(ops.stack(losses))


def mask_select_loss(y_true, y_pred):  # codes: FO108
    keep = ops.not_equal(y_true, -1.0)
    return ops.mean(ops.square(y_true[keep] - y_pred[keep]))


def group_spread_loss(y_true, y_pred):  # codes: FO107|FO104
    spread = 0.0
    for g in range(3):
        member = ops.cast(ops.equal(y_true, g), "float32")
        count = ops.sum(member)
        centre = ops.sum(member * y_pred) / ops.maximum(count, 1.0)
        spread = spread + ops.sum(member * ops.square(y_pred - centre))
    return spread


def hardest_quarter_loss(y_true, y_pred):  # codes: FO201|FO205
    each = ops.mean(ops.square(y_true - y_pred), axis=-1)
    limit = np.quantile(ops.convert_to_numpy(each), 0.75)
    return ops.sum(ops.where(each >= limit, each, 0.0)) / ops.sum(ops.cast(each >= limit, "float32"))


def logged_loss(y_true, y_pred):  # codes: FO203 FO201
    value = ops.mean(ops.abs(y_true - y_pred))
    print(f"loss now: {float(value):.4f}")
    return value


def switch_loss(y_true, y_pred):  # codes: FO202
    mse = ops.mean(ops.square(y_true - y_pred))
    return mse if float(mse) < 1.0 else ops.sqrt(mse)


def top_two_metric(y_true, y_pred):  # codes: FO101 FO205
    hits = 0
    for label, row in zip(y_true, y_pred, strict=False):
        best = np.argsort(ops.convert_to_numpy(row))[-2:]
        hits += int(int(label) in best)
    return hits / len(y_true)


def twice_loss(y_true, y_pred):  # codes: FO306
    near = ops.exp(-ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1))
    far = ops.relu(1.0 - ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1))
    return ops.mean(near) + ops.mean(far) + ops.mean(ops.abs(y_true - y_pred))


def _row_kl(t, p):
    t, p = (ops.clip(v, 1e-6, 1.0) for v in (t, p))
    return ops.sum(t * (ops.log(t) - ops.log(p)))


def helper_kl_loss(y_true, y_pred):  # codes: FO101
    i, acc = 0, []
    while i < y_true.shape[0]:
        acc.append(_row_kl(y_true[i], y_pred[i]))
        i += 1
    return ops.mean(ops.stack(acc))


lambda_rows_loss = lambda y_true, y_pred: sum(ops.max(ops.abs(t - p)) for t, p in zip(y_true, y_pred)) / y_true.shape[0]  # noqa: B905, E731


class AsymmetricLoss(keras.losses.Loss):  # codes: FO101
    def __init__(self, over=2.0, under=1.0, **kwargs):
        super().__init__(**kwargs)
        self.over, self.under = over, under

    def _side(self, error):
        return ops.where(error > 0, self.under * error, -self.over * error)

    def call(self, y_true, y_pred):
        return ops.stack([ops.mean(self._side(y_true[n] - y_pred[n])) for n in range(y_true.shape[0])])
