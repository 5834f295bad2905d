"""Values that are read on the host: thresholds, sorted values, ranks, logs."""

import logging

import numpy as np
from keras import ops
from sklearn import metrics as skm

EDGES = np.array([0.0, 1.0, 5.0, 20.0])
EDGE_WEIGHTS = np.array([0.1, 1.0, 4.0, 10.0], "float32")
LOG = logging.getLogger(__name__)


def host_threshold(y_true, y_pred):  # rewritten: FO101 FO201
    error = ops.abs(y_true - y_pred)
    limit = float(ops.mean(error))
    kept = [error[i] for i in range(error.shape[0]) if float(error[i]) <= limit]
    return sum(kept) / len(kept)


def host_log(y_true, y_pred):  # rewritten: FO203
    loss = ops.mean(ops.square(y_true - y_pred))
    print("loss", float(loss))
    return loss


def host_branch(y_true, y_pred):  # rewritten: FO202
    loss = ops.mean(ops.abs(y_true - y_pred))
    if float(loss) > 1.0:
        loss = ops.square(loss)
    return loss


def host_top(y_true, y_pred):  # rewritten: FO101 FO205
    order = np.argsort(-ops.convert_to_numpy(y_pred), axis=1)
    hits = 0.0
    for i in range(y_true.shape[0]):
        if int(y_true[i]) in set(order[i][:2]):
            hits += 1
    return ops.convert_to_tensor(np.float32(hits / y_true.shape[0]))


def repeated_work(y_true, y_pred):  # rewritten on torch: FO306
    def gram():
        return ops.matmul(y_pred, ops.transpose(y_pred))

    return ops.mean(ops.square(gram())) + ops.sum(ops.diagonal(gram()))


def host_sorted(y_true, y_pred):  # rewritten on tensorflow torch: FO101 FO201
    error = ops.square(y_true - y_pred)
    ranked = sorted([float(value) for value in error], reverse=True)
    limit = ranked[max(1, len(ranked) // 4) - 1]
    total, count = 0.0, 0
    for i in range(error.shape[0]):
        if float(error[i]) >= limit:
            total, count = total + error[i], count + 1
    return total / count


def host_percentile(y_true, y_pred):  # rewritten on torch: FO205
    error = ops.abs(y_true - y_pred)
    limit = np.percentile(ops.convert_to_numpy(error), 75)
    return ops.mean(ops.where(error > limit, 0.0, error))


def hardest_quarter_loss(y_true, y_pred):  # rewritten on torch: FO201|FO205
    each = ops.mean(ops.square(y_true - y_pred), axis=-1)
    limit = np.quantile(ops.convert_to_numpy(each), 0.75)
    return ops.sum(ops.where(each >= limit, each, 0.0)) / ops.sum(ops.cast(each >= limit, "float32"))


def twice_loss(y_true, y_pred):  # rewritten on torch: FO306
    near = ops.exp(-ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1))
    far = ops.relu(1.0 - ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1))
    return ops.mean(near) + ops.mean(far) + ops.mean(ops.abs(y_true - y_pred))


def mean_of_floats_metric(y_true, y_pred):  # rewritten on torch: FO101 FO201
    return np.mean([abs(float(t) - float(p)) for t, p in zip(y_true, y_pred, strict=False)])


def numpy_select_loss(y_true, y_pred):  # rewritten: FO205
    t = np.asarray(y_true)
    w = np.select([t < 0, t < 1], [0.5, 1.0], default=2.0).astype("float32")
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


def above_median_loss(y_true, y_pred):  # rewritten on torch: FO205|FO201
    e = ops.abs(y_true - y_pred)
    med = np.median(ops.convert_to_numpy(e))
    return ops.mean(ops.where(e > med, e, 0.0))


def sorted_by_key_loss(y_true, y_pred):  # rewritten on torch: FO101 FO201
    e = ops.square(y_true - y_pred)
    order = sorted(range(e.shape[0]), key=lambda i: float(e[i]), reverse=True)
    k = max(1, len(order) // 2)
    return sum(e[i] for i in order[:k]) / k


def rank_correlation_metric(y_true, y_pred):  # rewritten on torch: FO205
    a = np.argsort(np.argsort(ops.convert_to_numpy(y_true)))
    b = np.argsort(np.argsort(ops.convert_to_numpy(y_pred)))
    n = len(a)
    d = (a - b).astype("float64")
    return 1.0 - 6.0 * float(np.sum(d * d)) / max(n * (n * n - 1), 1)


def precision_at_three_metric(y_true, y_pred):  # rewritten on torch: FO101 FO205
    hits = []
    for t, p in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred), strict=False):
        top = np.argsort(p)[::-1][:3]
        hits.append(t[top].sum() / 3)
    return float(np.mean(hits))


def chosen_weights_loss(y_true, y_pred):  # rewritten on torch: FO205|FO201
    labels = ops.convert_to_numpy(y_true).astype("int32")
    weights = np.array([2.0 if c == 0 else 0.5 if c == 2 else 1.0 for c in labels], dtype=np.float32)
    return ops.mean(ops.convert_to_tensor(weights) * ops.square(y_pred))


def partition_loss(y_true, y_pred):  # rewritten on torch: FO205|FO201
    e = ops.square(y_true - y_pred)
    k = max(1, y_pred.shape[0] // 3)
    cut = np.partition(ops.convert_to_numpy(e), -k)[-k]
    return ops.sum(ops.where(e >= cut, e, 0.0)) / k


def shared_top_metric(y_true, y_pred):  # rewritten on torch: FO101 FO205
    share = 0.0
    t_np, p_np = ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred)
    for t, p in zip(t_np, p_np, strict=False):
        a = set(np.argsort(t)[-3:].tolist())
        b = set(np.argsort(p)[-3:].tolist())
        share += len(a.intersection(b)) / 3
    return share / len(t_np)


def area_metric(y_true, y_pred):  # rewritten on torch: FO205
    return skm.roc_auc_score(np.asarray(y_true), np.asarray(y_pred))


def list_mle_loss(y_true, y_pred):  # rewritten on torch: FO101 FO205
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        order = np.argsort(ops.convert_to_numpy(t))[::-1]
        ranked = ops.stack([p[int(k)] for k in order])
        for i in range(len(order)):
            total = total + ops.logsumexp(ranked[i:]) - ranked[i]
    return total / len(y_true)


def list_mle_ops_loss(y_true, y_pred):  # rewritten on torch: FO101
    rows = []
    for i in range(y_true.shape[0]):
        order = ops.argsort(-y_true[i])
        ranked = ops.take(y_pred[i], order)
        tails = [ops.logsumexp(ranked[k:]) for k in range(y_true.shape[1])]
        rows.append(ops.sum(ops.stack(tails) - ranked))
    return ops.mean(ops.stack(rows))


def changes_metric(y_true, y_pred):  # rewritten on torch: FO101|FO102 FO201|FO205
    def changes(rows):
        return [sum(int(a != b) for a, b in zip(row[1:], row[:-1], strict=False)) for row in rows]

    t, p = changes(ops.convert_to_numpy(y_true)), changes(ops.convert_to_numpy(y_pred))
    return float(np.mean([abs(a - b) for a, b in zip(t, p, strict=False)]))


def interval_weights_loss(y_true, y_pred):  # rewritten on torch: FO205
    k = np.searchsorted(EDGES, ops.convert_to_numpy(y_true), side="right") - 1
    w = ops.convert_to_tensor(EDGE_WEIGHTS[k])
    return ops.mean(w * ops.square(y_true - y_pred))


def gain_metric(y_true, y_pred):  # rewritten on tensorflow torch: FO205
    order = np.argsort(-ops.convert_to_numpy(y_pred))
    gains = ops.take(y_true, order)
    discount = 1.0 / np.log2(np.arange(2, y_true.shape[0] + 2))
    return ops.sum(gains * discount.astype("float32"))


def hard_examples_loss(y_true, y_pred):  # rewritten on torch: FO101
    losses = [ops.mean(ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=False)]
    losses.sort(key=float, reverse=True)
    hardest = losses[: max(1, len(losses) // 3)]
    return sum(hardest) / len(hardest)


def top_fraction_loss(y_true, y_pred):  # rewritten on torch: FO205|FO201
    e = ops.square(y_true - y_pred)
    cut = np.sort(ops.convert_to_numpy(e).ravel())[-2]
    return ops.sum(ops.where(e >= cut, e, 0.0)) / 2


def reciprocal_rank_metric(y_true, y_pred):  # rewritten on torch: FO205
    best = []
    for t, p in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred), strict=False):
        rank = list(np.argsort(-p))
        best.append(1.0 / (rank.index(int(np.argmax(t))) + 1))
    return float(np.mean(best))


def logs_if_wanted_loss(y_true, y_pred):  # rewritten on torch: FO203 FO201
    per = ops.mean(ops.square(y_true - y_pred), axis=-1)
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("worst %s", float(ops.max(per)))
    return ops.mean(per)


def along_axis(y_true, y_pred):  # rewritten on torch: FO205
    err = np.apply_along_axis(lambda row: np.max(row) - np.min(row), 1, ops.convert_to_numpy(y_true - y_pred))
    return ops.convert_to_tensor(np.float32(err.mean()))


def along_axis_norm(y_true, y_pred):  # rewritten on torch: FO205
    def rms(v):
        return np.sqrt(np.mean(v**2))

    return np.mean(np.apply_along_axis(rms, -1, np.asarray(y_true) - np.asarray(y_pred)))
