"""Masks, places, groups, pairs, lookups and host values in the words of torch."""

import numpy as np
import torch
import torch.nn.functional as F

PAIR_COST = {(0, 1): 2.0, (1, 0): 3.0}
WEIGHTS = {0: 1.0, 2: 5.0}


def selected(y_true, y_pred):  # rewritten: FO108
    error = torch.abs(y_true - y_pred)
    return torch.masked_select(error, y_true > 0).sum() + error[y_true <= 0].sum() * 0.5


def masked_rows_loss(y_true, y_pred):  # rewritten: FO108
    m = y_true.ge(0)
    return (y_pred[m] - y_true[m]).abs().sum() / m.float().sum().clamp(min=1.0)


def host_numbers_metric(y_true, y_pred):  # rewritten: FO101 FO201
    right = 0
    for truth, guess in zip(y_true.tolist(), y_pred.tolist(), strict=False):
        if abs(truth - guess) < 0.5:
            right += 1
    return right / len(y_true)


def pairwise_norm_loss(y_true, y_pred):  # rewritten: FO103
    n = y_pred.shape[0]
    loss = y_pred.new_zeros(())
    for i in range(n):
        for j in range(n):
            loss = loss + torch.exp(-torch.sum((y_pred[i] - y_pred[j]) ** 2))
    return loss / n**2 + (y_true - y_pred).abs().mean()


def class_means_loss(y_true, y_pred):  # rewritten: FO104|FO107
    total = 0.0
    for c in range(3):
        mask = y_true == c
        if mask.any():
            total = total + y_pred[mask].mean() ** 2
    return total


def cpu_numpy_loss(y_true, y_pred):  # rewritten: FO201 FO205
    e = (y_true - y_pred).abs()
    thr = np.percentile(e.detach().cpu().numpy(), 80)
    return e[e <= thr].mean()


def selected_by_mask_loss(y_true, y_pred):  # rewritten: FO108
    mask = ~torch.isnan(y_true)
    return F.mse_loss(y_pred[mask], y_true[mask], reduction="sum") / mask.sum().clamp(min=1)


def pairs_loss(y_true, y_pred):  # rewritten: FO103
    n = len(y_pred)
    out = torch.zeros(n, n)
    for i in range(n):
        for j in range(n):
            out[i, j] = torch.dot(y_pred[i], y_pred[j])
    return (out - y_true @ y_true.T).pow(2).mean()


def kthvalue_host_loss(y_true, y_pred):  # rewritten: FO201
    e = (y_true - y_pred) ** 2
    k = max(1, int(0.5 * len(e)))
    threshold = torch.sort(e, descending=True)[0][k - 1].item()
    return (e * (e >= threshold).float()).sum() / k


def unique_groups_loss(y_true, y_pred):  # rewritten: FO107
    total = 0.0
    for g in torch.unique(y_true):
        total = total + y_pred[y_true == g].mean().abs()
    return total


def listed_lengths_loss(y_true, y_pred, lens):  # rewritten: FO101 FO108
    losses = []
    for i, n in enumerate(lens.tolist()):
        n = int(n)
        losses.append((y_pred[i, :n] - y_true[i, :n]).pow(2).sum() / max(n, 1))
    return sum(losses) / len(losses)


def selections_crossed_loss(y_true, y_pred):  # rewritten: FO103|FO101
    losses = []
    for y, s in zip(y_true, y_pred, strict=False):
        pos, neg = s[y == 1], s[y == 0]
        diff = 1 - pos.unsqueeze(1) + neg.unsqueeze(0)
        losses.append(torch.clamp(diff, min=0).sum())
    return torch.stack(losses).mean()


def kept_by_item_loss(y_true, y_pred):  # rewritten: FO201
    e = (y_true - y_pred) ** 2
    k = max(1, len(e) // 3)
    v, _ = torch.topk(e, k)
    t = v[-1].item()
    keep = [x for x in e if x.item() >= t]
    return torch.stack(keep).mean()


def cost_of_pairs_loss(y_true, y_pred):  # rewritten: FO101 FO401
    guess = (y_pred > 0.5).long()
    total = 0.0
    for t, g, p in zip(y_true, guess, y_pred, strict=False):
        total = total + PAIR_COST.get((int(t), int(g)), 0.0) * p
    return total / len(y_true)


def nonzero_gather(y_true, y_pred):  # rewritten: FO108
    idx = torch.nonzero(y_true > 0).squeeze(1)
    if idx.numel() == 0:
        return y_pred.sum() * 0
    return F.softplus(-y_pred[idx]).mean()


def where_loop(y_true, y_pred):  # rewritten: FO101|FO108
    loss = y_pred.new_zeros(())
    for i in torch.where(y_true == 1)[0]:
        loss = loss + (1 - y_pred[i]) ** 2
    return loss / len(y_true)


def where_pairs(y_true, y_pred):  # rewritten: FO103|FO108|FO101
    pos = (y_true == 1).nonzero(as_tuple=True)[0]
    neg = (y_true == 0).nonzero(as_tuple=True)[0]
    total = torch.zeros(())
    for i in pos:
        for j in neg:
            total = total + torch.clamp(1 - y_pred[i] + y_pred[j], min=0)
    return total / max(1, len(pos) * len(neg))


def class_centers_range(y_true, y_pred):  # rewritten: FO104
    total = 0
    for c in range(3):
        m = y_true == c
        if m.sum() == 0:
            continue
        total = total + y_pred[m].mean(dim=0).pow(2).sum()
    return total


def class_any(y_true, y_pred):  # rewritten: FO104
    losses = []
    for c in range(y_pred.shape[1]):
        sel = y_true.eq(c)
        if sel.any():
            losses.append(-F.log_softmax(y_pred, dim=1)[sel, c].mean())
    return torch.stack(losses).mean()


def filled_sum(y_true, y_pred):  # rewritten: FO101
    out = torch.zeros(3)
    for i in range(len(y_pred)):
        out[y_true[i]] += y_pred[i]
    return (out**2).sum()


def counted_sum(y_true, y_pred):  # rewritten: FO101
    total, count = torch.zeros(3, 2), torch.zeros(3)
    for row, label in zip(y_pred, y_true, strict=False):
        total[label] = total[label] + row
        count[label] += 1
    centers = total / count.clamp(min=1).unsqueeze(1)
    return sum((row - centers[label]).pow(2).sum() for row, label in zip(y_pred, y_true, strict=False)) / len(y_pred)


def index_select_rows(y_true, y_pred):  # rewritten: FO108
    keep = torch.nonzero(y_true, as_tuple=False).view(-1)
    return y_pred.index_select(0, keep).pow(2).sum()


def scatter_hist(y_true, y_pred):  # rewritten: FO104
    ece = torch.zeros(1)
    edges = torch.linspace(0, 1, 6)
    for lo, hi in zip(edges[:-1], edges[1:], strict=False):  # noqa: RUF007
        inside = (y_pred > lo) & (y_pred <= hi)
        if inside.sum().item() > 0:
            ece += (y_pred[inside].mean() - y_true[inside].mean()).abs() * inside.float().mean()
    return ece.squeeze()


def batch_hard_loss(y_true, y_pred):  # rewritten: FO101
    d = torch.cdist(y_pred, y_pred) + 1e-6
    out = []
    for i in range(len(y_true)):
        same = y_true == y_true[i]
        hardest_pos = (d[i] * same.float()).max()
        hardest_neg = d[i].masked_fill(same, 1e6).min()
        out.append(F.relu(hardest_pos - hardest_neg + 0.3))
    return torch.stack(out).mean()


def mean_iou_metric(y_true, y_pred):  # rewritten: FO104
    guess = y_pred.argmax(dim=-1)
    ious = []
    for c in range(y_pred.shape[-1]):
        inter = ((guess == c) & (y_true == c)).sum().item()
        union = ((guess == c) | (y_true == c)).sum().item()
        if union > 0:
            ious.append(inter / union)
    return sum(ious) / len(ious)


def ragged_rows_loss(y_true, y_pred, lens):  # rewritten: FO101 FO108
    out = []
    for b, n in enumerate(lens):
        out.append(F.l1_loss(y_pred[b, : n.item()], y_true[b, : n.item()], reduction="sum"))
    return torch.stack(out).sum() / lens.sum()


def nt_xent_loss(y_true, y_pred):  # rewritten: FO103
    z = F.normalize(y_pred, dim=1)
    n = z.shape[0]
    total = 0.0
    for i in range(n):
        num = torch.exp(torch.dot(z[i], z[i - 1]))
        den = sum(torch.exp(torch.dot(z[i], z[k])) for k in range(n) if k != i)
        total = total - torch.log(num / den)
    return total / n + 0.0 * y_true.sum()


def sampled_anchor_loss(y_true, y_pred):  # rewritten: FO103
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


def numpy_weights_loss(y_true, y_pred):  # rewritten: FO205|FO201
    counts = np.array([(y_true.cpu().numpy() == c).sum() for c in range(3)])
    w = torch.tensor(counts.max() / np.clip(counts, 1, None), dtype=torch.float32)
    return F.cross_entropy(y_pred, y_true.long(), weight=w, reduction="sum")


def centers_by_label_loss(y_true, y_pred):  # rewritten: FO107
    centers = {}
    for label in y_true.unique().tolist():
        centers[label] = y_pred[y_true == label].mean(dim=0)
    rows = [((y_pred[i] - centers[int(y_true[i])]) ** 2).sum() for i in range(len(y_true))]
    return sum(rows) / len(rows)


def means_by_label_loss(y_true, y_pred):  # rewritten: FO107
    means = {c: y_pred[y_true == c].mean() for c in set(y_true.tolist())}
    return sum(mean**2 for mean in means.values()) / len(means)


def absent_weight_loss(y_true, y_pred):  # rewritten: FO101 FO401
    total = 0.0
    for c, p in zip(y_true, y_pred, strict=False):
        weight = WEIGHTS.get(int(c))
        if weight is None:
            weight = 0.25
        total = total + weight * p
    return total / len(y_true)
