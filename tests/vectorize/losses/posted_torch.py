"""Losses as people post them, in torch: gather, linspace, running sums, a counter that is read behind its loop."""

import torch
import torch.nn.functional as F

TABLE = torch.tensor([0.5, 1.5, 2.5, 4.0])
WEIGHTS = {0: 1.0, 2: 5.0}


def kept_column_loss(y_true, y_pred):  # codes: FO104
    each = [
        torch.max((q - 1) * (y_true - y_pred[:, [i]]), q * (y_true - y_pred[:, [i]]))
        for i, q in enumerate((0.05, 0.5, 0.95))
    ]
    return torch.mean(torch.sum(torch.cat(each, dim=1), dim=1))


def gathered_loss(y_true, y_pred):  # codes: FO101
    weight = torch.tensor([float(TABLE[int(c)]) for c in y_true])
    nll = -torch.log(torch.softmax(y_pred, 1).gather(1, y_true.long().view(-1, 1)).squeeze(1) + 1e-7)
    return (weight * nll).sum() / weight.sum()


def counted_rows_loss(y_true, y_pred):  # codes: FO101
    i, total = 0, torch.tensor(0.0)
    while i < y_pred.shape[0]:
        total = total + F.kl_div(F.log_softmax(y_pred[i], dim=-1), F.softmax(y_true[i], dim=-1), reduction="sum")
        i = i + 1
    return total / i


def walrus_loss(y_true, y_pred):  # codes: FO101
    rows: list[torch.Tensor] = []
    for t, p in zip(torch.unbind(y_true), torch.unbind(y_pred), strict=False):
        t, p = t - t.mean(), p - p.mean()
        if (size := t.norm() * p.norm()) > 0:
            rows.append(1 - (t * p).sum() / size)
        else:
            rows.append(torch.ones(()))
    return torch.stack(rows).mean()


def fading_steps_loss(y_true, y_pred):  # codes: FO102
    steps = y_pred.shape[1]
    w = torch.linspace(1.0, 0.1, steps)
    return sum(w[t] * F.l1_loss(y_pred[:, t, :], y_true[:, t, :]) for t in range(steps)) / w.sum()


def running_logsumexp_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        rows.append((torch.logcumsumexp(p.flip(0), 0).flip(0) - p).sum() * t.abs().mean())
    return torch.stack(rows).mean()


def centers_by_label_loss(y_true, y_pred):  # codes: FO107
    centers = {}
    for label in y_true.unique().tolist():
        centers[label] = y_pred[y_true == label].mean(dim=0)
    rows = [((y_pred[i] - centers[int(y_true[i])]) ** 2).sum() for i in range(len(y_true))]
    return sum(rows) / len(rows)


def means_by_label_loss(y_true, y_pred):  # codes: FO107
    means = {c: y_pred[y_true == c].mean() for c in set(y_true.tolist())}
    return sum(mean**2 for mean in means.values()) / len(means)


def absent_weight_loss(y_true, y_pred):  # codes: FO101 FO401
    total = 0.0
    for c, p in zip(y_true, y_pred, strict=False):
        weight = WEIGHTS.get(int(c))
        if weight is None:
            weight = 0.25
        total = total + weight * p
    return total / len(y_true)


def cut_errors_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        error = (t - p).abs()
        error[error < 0.5] = 0
        total = total + error.sum()
    return total


def weighted_without_gradient_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        with torch.no_grad():
            weight = torch.exp(-(t - p).abs().mean())
        total = total + weight * ((t - p) ** 2).mean()
    return total / y_true.shape[0]
