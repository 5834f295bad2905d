"""Losses as people post them, in torch."""

import torch
import torch.nn.functional as F


def triplet_anchor_loss(y_true, y_pred):  # codes: FO101
    out = torch.zeros(())
    for k in range(y_pred.size(0)):
        out = out + F.relu(torch.dist(y_pred[k], y_true[k]) - 0.2)
    return out / y_pred.size(0)


def sampled_softmax_loss(y_true, y_pred):  # codes: FO101 FO201
    losses = []
    for b in range(y_pred.shape[0]):
        logp = torch.log_softmax(y_pred[b], dim=-1)
        losses.append(-logp[y_true[b].long().item()])
    return torch.stack(losses).mean()


def inplace_sum_loss(y_true, y_pred):  # codes: FO101
    total = torch.tensor(0.0)
    for t, p in zip(y_true, y_pred, strict=False):
        total += (t - p).pow(2).mean()
    return total.div(len(y_true))


def pair_hinge_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.shape[0]
    loss = 0.0
    for i in range(n):
        for j in range(i):
            gap = (y_pred[i] - y_pred[j]) * torch.sign(y_true[i] - y_true[j])
            loss = loss + torch.clamp(1 - gap, min=0)
    return loss / (n * (n - 1) / 2 + 1e-8)


def channel_loss(y_true, y_pred):  # codes: FO104
    return sum(F.l1_loss(y_pred[..., c], y_true[..., c]) * (c + 1) for c in range(y_pred.shape[-1]))


def masked_rows_loss(y_true, y_pred):  # codes: FO108
    m = y_true.ge(0)
    return (y_pred[m] - y_true[m]).abs().sum() / m.float().sum().clamp(min=1.0)
