"""Losses in further spellings of torch."""

import numpy as np
import torch
import torch as th
import torch.nn.functional as F
from torch import Tensor, nn

COST = {(0, 1): 2.0, (1, 0): 3.0}


def annotated_loss(y_true: Tensor, y_pred: Tensor) -> Tensor:  # codes: FO101
    losses: list[Tensor] = []
    for t, p in zip(y_true.unbind(0), y_pred.unbind(0), strict=False):
        losses.append(F.smooth_l1_loss(p, t))
    return th.stack(losses, dim=0).mean(dim=0)


def cat_rows_loss(y_true, y_pred):  # codes: FO101
    out = []
    for b in range(y_pred.shape[0]):
        out.append(F.normalize(y_pred[b].unsqueeze(0), dim=1))
    z = torch.cat(out, dim=0)
    return ((z - y_true) ** 2).mean()


def select_steps_loss(y_true, y_pred):  # codes: FO102
    total = y_pred.new_tensor(0.0)
    for t in range(y_pred.size(1)):
        total = total + F.mse_loss(y_pred.select(1, t), y_true.select(1, t))
    return total / y_pred.size(1)


def chunk_steps_loss(y_true, y_pred):  # codes: FO102|FO101|FO104
    total = 0.0
    for p, t in zip(y_pred.split(1, dim=1), y_true.split(1, dim=1), strict=False):
        total = total + (p - t).abs().mean()
    return total


def cpu_numpy_loss(y_true, y_pred):  # codes: FO201 FO205
    e = (y_true - y_pred).abs()
    thr = np.percentile(e.detach().cpu().numpy(), 80)
    return e[e <= thr].mean()


def masked_select_loss(y_true, y_pred):  # codes: FO108
    mask = ~torch.isnan(y_true)
    return F.mse_loss(y_pred[mask], y_true[mask], reduction="sum") / mask.sum().clamp(min=1)


def pairs_loss(y_true, y_pred):  # codes: FO103
    n = len(y_pred)
    out = torch.zeros(n, n)
    for i in range(n):
        for j in range(n):
            out[i, j] = torch.dot(y_pred[i], y_pred[j])
    return (out - y_true @ y_true.T).pow(2).mean()


def kthvalue_host_loss(y_true, y_pred):  # codes: FO201
    e = (y_true - y_pred) ** 2
    k = max(1, int(0.5 * len(e)))
    threshold = torch.sort(e, descending=True)[0][k - 1].item()
    return (e * (e >= threshold).float()).sum() / k


def unique_groups_loss(y_true, y_pred):  # codes: FO107
    total = 0.0
    for g in torch.unique(y_true):
        total = total + y_pred[y_true == g].mean().abs()
    return total


def module_inside_loss(y_true, y_pred):  # codes: FO101
    crit = nn.L1Loss(reduction="none")
    return torch.stack([crit(p, t).max() for p, t in zip(y_pred, y_true, strict=False)]).mean()


def index_put_loss(y_true, y_pred):  # codes: FO101
    out = torch.empty_like(y_pred)
    for i in range(y_pred.shape[0]):
        out[i] = y_pred[i] - y_pred[i].mean()
    return (out * y_true).sum().neg()


def lengths_loss(y_true, y_pred, lens):  # codes: FO101 FO108
    losses = []
    for i, n in enumerate(lens.tolist()):
        n = int(n)
        losses.append((y_pred[i, :n] - y_true[i, :n]).pow(2).sum() / max(n, 1))
    return sum(losses) / len(losses)


def in_place_total_loss(y_true, y_pred):  # codes: FO101
    loss = torch.zeros(1)
    for b in range(y_pred.shape[0]):
        loss += torch.sum(torch.abs(y_pred[b] - y_true[b]))
    return loss.squeeze() / y_pred.shape[0]


def item_lengths_loss(y_true, y_pred, lens):  # codes: FO101 FO108 FO201
    total, count = 0.0, 0
    for b in range(y_pred.size(0)):
        L = lens[b].item()
        total = total + F.l1_loss(y_pred[b, :L], y_true[b, :L], reduction="sum")
        count += L
    return total / max(count, 1)


def selections_crossed_loss(y_true, y_pred):  # codes: FO103|FO101
    losses = []
    for y, s in zip(y_true, y_pred, strict=False):
        pos, neg = s[y == 1], s[y == 0]
        diff = 1 - pos.unsqueeze(1) + neg.unsqueeze(0)
        losses.append(torch.clamp(diff, min=0).sum())
    return torch.stack(losses).mean()


def triplets_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.size(0)
    loss, cnt = y_pred.new_zeros(()), 0
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if i != j and y_true[i] == y_true[j] and y_true[i] != y_true[k]:
                    loss = loss + F.relu(
                        (y_pred[i] - y_pred[j]).pow(2).sum() - (y_pred[i] - y_pred[k]).pow(2).sum() + 0.3
                    )
                    cnt += 1
    return loss / max(cnt, 1)


def kept_by_item_loss(y_true, y_pred):  # codes: FO201
    e = (y_true - y_pred) ** 2
    k = max(1, len(e) // 3)
    v, _ = torch.topk(e, k)
    t = v[-1].item()
    keep = [x for x in e if x.item() >= t]
    return torch.stack(keep).mean()


def cost_of_pairs_loss(y_true, y_pred):  # codes: FO101 FO401
    guess = (y_pred > 0.5).long()
    total = 0.0
    for t, g, p in zip(y_true, guess, y_pred, strict=False):
        total = total + COST.get((int(t), int(g)), 0.0) * p
    return total / len(y_true)


def descending_order_loss(y_true, y_pred):  # codes: FO101
    out = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        idx = torch.argsort(t, descending=True)
        s = p[idx]
        for k in range(len(s)):
            out = out + torch.logsumexp(s[k:], dim=0) - s[k]
    return out / len(y_true)


def max_values_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        hardest = p.max(dim=0).values
        total = total + (hardest - t.mean()) ** 2
    return total / len(y_true)


def einsum_rows_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        gram = torch.outer(y_pred[i], y_pred[i])
        total = total + (gram * torch.outer(y_true[i], y_true[i])).sum()
    return total


def bce_rows_loss(y_true, y_pred):  # codes: FO101
    loss = 0.0
    for i in range(y_true.shape[0]):
        loss += F.binary_cross_entropy_with_logits(y_pred[i], y_true[i])
    return loss / y_true.shape[0]


class RootError(nn.Module):  # codes: FO101
    def forward(self, y_true, y_pred):
        return torch.stack([torch.sqrt(torch.sum((t - p) ** 2) + 1e-6) for t, p in zip(y_true, y_pred, strict=True)])
