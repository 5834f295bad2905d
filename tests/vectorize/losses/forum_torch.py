"""Losses as they stand in forum posts, in torch."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

criterion = nn.CrossEntropyLoss()


def one_by_one_loss(y_true, y_pred):  # codes: FO101
    loss = 0
    for i in range(y_pred.shape[0]):
        loss += criterion(y_pred[i].unsqueeze(0), y_true[i].long().unsqueeze(0))
    return loss / y_pred.shape[0]


def stacked_norms_loss(y_true, y_pred):  # codes: FO101
    return torch.stack([torch.norm(a - b + 1e-3) for a, b in zip(y_true, y_pred, strict=False)]).mean()


def class_dice_loss(y_true, y_pred):  # codes: FO104
    prob = torch.softmax(y_pred, dim=-1)
    dice = 0.0
    for c in range(prob.shape[-1]):
        target = (y_true == c).float()
        inter = (prob[..., c] * target).sum()
        dice = dice + (2 * inter + 1) / (prob[..., c].sum() + target.sum() + 1)
    return 1 - dice / prob.shape[-1]


def mean_iou_metric(y_true, y_pred):  # codes: FO104
    guess = y_pred.argmax(dim=-1)
    ious = []
    for c in range(y_pred.shape[-1]):
        inter = ((guess == c) & (y_true == c)).sum().item()
        union = ((guess == c) | (y_true == c)).sum().item()
        if union > 0:
            ious.append(inter / union)
    return sum(ious) / len(ious)


def ragged_rows_loss(y_true, y_pred, lens):  # codes: FO101 FO108
    out = []
    for b, n in enumerate(lens):
        out.append(F.l1_loss(y_pred[b, : n.item()], y_true[b, : n.item()], reduction="sum"))
    return torch.stack(out).sum() / lens.sum()


def nt_xent_loss(y_true, y_pred):  # codes: FO103
    z = F.normalize(y_pred, dim=1)
    n = z.shape[0]
    total = 0.0
    for i in range(n):
        num = torch.exp(torch.dot(z[i], z[i - 1]))
        den = sum(torch.exp(torch.dot(z[i], z[k])) for k in range(n) if k != i)
        total = total - torch.log(num / den)
    return total / n + 0.0 * y_true.sum()


def class_centres_loss(y_true, y_pred):  # codes: FO104
    total = y_pred.new_zeros(())
    for c in range(3):
        members = y_pred[y_true == c]
        if members.shape[0] < 2:
            continue
        total = total + ((members - members.mean(0)) ** 2).sum(-1).mean()
    return total


def extended_list_loss(y_true, y_pred):  # codes: FO101 FO102|FO104
    terms = []
    for row, target in zip(y_pred, y_true, strict=False):
        terms.extend([(row[k] - target[k]).abs() for k in range(row.shape[0])])
    return torch.mean(torch.stack(terms))


def filled_rows_loss(y_true, y_pred):  # codes: FO101
    out = torch.empty(y_pred.shape[0])
    for i, (t, p) in enumerate(zip(y_true, y_pred, strict=False)):
        out[i] = ((t - p) ** 2).max()
    return out.mean()


def clipped_ratio_loss(y_true, y_pred):  # codes: FO101 FO201
    loss = torch.tensor(0.0)
    for i in range(y_true.size(0)):
        advantage = y_true[i].item()
        ratio = torch.exp(y_pred[i].clamp(-2, 2))
        loss = loss - torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return loss / y_true.size(0)


def sampled_anchor_loss(y_true, y_pred):  # codes: FO103
    d = torch.cdist(y_pred, y_pred)
    losses = []
    for i in range(d.shape[0]):
        pos = [d[i, j] for j in range(d.shape[0]) if j != i and y_true[j] == y_true[i]]
        neg = [d[i, j] for j in range(d.shape[0]) if y_true[j] != y_true[i]]
        if len(pos) > 0 and len(neg) > 0:
            losses.append(F.relu(max(pos) - min(neg) + 0.3))
    if len(losses) == 0:
        return y_pred.sum() * 0
    return torch.stack(losses).mean()


def numpy_weights_loss(y_true, y_pred):  # codes: FO205|FO201
    counts = np.array([(y_true.cpu().numpy() == c).sum() for c in range(3)])
    w = torch.tensor(counts.max() / np.clip(counts, 1, None), dtype=torch.float32)
    return F.cross_entropy(y_pred, y_true.long(), weight=w, reduction="sum")
