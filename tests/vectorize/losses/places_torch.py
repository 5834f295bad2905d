"""Places, groups and bins in spellings of torch."""

import torch
import torch.nn.functional as F
from torch import nn


def nonzero_gather(y_true, y_pred):  # codes: FO108
    idx = torch.nonzero(y_true > 0).squeeze(1)
    if idx.numel() == 0:
        return y_pred.sum() * 0
    return F.softplus(-y_pred[idx]).mean()


def where_loop(y_true, y_pred):  # codes: FO101|FO108
    loss = y_pred.new_zeros(())
    for i in torch.where(y_true == 1)[0]:
        loss = loss + (1 - y_pred[i]) ** 2
    return loss / len(y_true)


def where_pairs(y_true, y_pred):  # codes: FO103|FO108|FO101
    pos = (y_true == 1).nonzero(as_tuple=True)[0]
    neg = (y_true == 0).nonzero(as_tuple=True)[0]
    total = torch.zeros(())
    for i in pos:
        for j in neg:
            total = total + torch.clamp(1 - y_pred[i] + y_pred[j], min=0)
    return total / max(1, len(pos) * len(neg))


def class_centers_range(y_true, y_pred):  # codes: FO104
    total = 0
    for c in range(3):
        m = y_true == c
        if m.sum() == 0:
            continue
        total = total + y_pred[m].mean(dim=0).pow(2).sum()
    return total


def class_any(y_true, y_pred):  # codes: FO104
    losses = []
    for c in range(y_pred.shape[1]):
        sel = y_true.eq(c)
        if sel.any():
            losses.append(-F.log_softmax(y_pred, dim=1)[sel, c].mean())
    return torch.stack(losses).mean()


def filled_sum(y_true, y_pred):  # codes: FO101
    out = torch.zeros(3)
    for i in range(len(y_pred)):
        out[y_true[i]] += y_pred[i]
    return (out**2).sum()


def counted_sum(y_true, y_pred):  # codes: FO101
    total, count = torch.zeros(3, 2), torch.zeros(3)
    for row, label in zip(y_pred, y_true, strict=False):
        total[label] = total[label] + row
        count[label] += 1
    centers = total / count.clamp(min=1).unsqueeze(1)
    return sum((row - centers[label]).pow(2).sum() for row, label in zip(y_pred, y_true, strict=False)) / len(y_pred)


def module_rows(y_true, y_pred):  # codes: FO101
    crit = nn.L1Loss(reduction="sum")
    loss = 0.0
    for b, (p, t) in enumerate(zip(y_pred, y_true, strict=False)):  # noqa: B007
        loss = loss + crit(p, t)
    return loss / (b + 1)


def index_select_rows(y_true, y_pred):  # codes: FO108
    keep = torch.nonzero(y_true, as_tuple=False).view(-1)
    return y_pred.index_select(0, keep).pow(2).sum()


def scatter_hist(y_true, y_pred):  # codes: FO104
    ece = torch.zeros(1)
    edges = torch.linspace(0, 1, 6)
    for lo, hi in zip(edges[:-1], edges[1:], strict=False):  # noqa: RUF007
        inside = (y_pred > lo) & (y_pred <= hi)
        if inside.sum().item() > 0:
            ece += (y_pred[inside].mean() - y_true[inside].mean()).abs() * inside.float().mean()
    return ece.squeeze()


def batch_hard_loss(y_true, y_pred):  # codes: FO101
    d = torch.cdist(y_pred, y_pred) + 1e-6
    out = []
    for i in range(len(y_true)):
        same = y_true == y_true[i]
        hardest_pos = (d[i] * same.float()).max()
        hardest_neg = d[i].masked_fill(same, 1e6).min()
        out.append(F.relu(hardest_pos - hardest_neg + 0.3))
    return torch.stack(out).mean()
