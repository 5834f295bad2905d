"""Loops, steps and lists in the words of torch."""

import torch
import torch as th
import torch.nn.functional as F
from torch import Tensor, nn

squared_error = nn.MSELoss()
cross_entropy = nn.CrossEntropyLoss()
TABLE = torch.tensor([0.5, 1.5, 2.5, 4.0])


def elements(y_true, y_pred):  # rewritten: FO101 FO201
    total = 0.0
    for i in range(len(y_pred)):
        label = y_true[i].item()
        scores = F.softmax(y_pred[i], dim=-1)
        total = total - torch.log(scores[int(label)])
    return total / len(y_pred)


def norms(y_true, y_pred):  # rewritten: FO101
    parts = []
    for target, guess in zip(torch.unbind(y_true), y_pred):  # noqa: B905
        parts.append(torch.norm(target - guess) + torch.clamp(guess, min=0.0).sum())
    return torch.stack(parts).mean()


def triplet_anchor_loss(y_true, y_pred):  # rewritten: FO101
    out = torch.zeros(())
    for k in range(y_pred.size(0)):
        out = out + F.relu(torch.dist(y_pred[k], y_true[k]) - 0.2)
    return out / y_pred.size(0)


def sampled_softmax_loss(y_true, y_pred):  # rewritten: FO101 FO201
    losses = []
    for b in range(y_pred.shape[0]):
        logp = torch.log_softmax(y_pred[b], dim=-1)
        losses.append(-logp[y_true[b].long().item()])
    return torch.stack(losses).mean()


def channel_loss(y_true, y_pred):  # rewritten: FO104
    return sum(F.l1_loss(y_pred[..., c], y_true[..., c]) * (c + 1) for c in range(y_pred.shape[-1]))


def preallocated_loss(y_true, y_pred):  # rewritten: FO101
    out = torch.zeros(y_pred.shape[0])
    for i in range(y_pred.shape[0]):
        out[i] = ((y_pred[i] - y_true[i]) ** 2).sum()
    return out.mean()


def cosine_each_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for a, b in zip(torch.unbind(y_true), torch.unbind(y_pred), strict=False):
        total = total + (1 - F.cosine_similarity(a, b, dim=0))
    return total / y_true.shape[0]


def module_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for i in range(len(y_true)):
        total += squared_error(y_pred[i], y_true[i])
    return total / len(y_true)


def cross_entropy_each_loss(y_true, y_pred):  # rewritten: FO101
    losses = [F.cross_entropy(y_pred[i : i + 1], y_true[i : i + 1].long()) for i in range(y_pred.shape[0])]
    return torch.stack(losses).mean()


def steps_loss(y_true, y_pred):  # rewritten: FO102
    loss = torch.tensor(0.0)
    for t in range(1, y_pred.shape[1]):
        loss = loss + (y_pred[:, t] - y_pred[:, t - 1]).abs().mean()
    return loss + F.mse_loss(y_pred, y_true)


def nested_where_loss(y_true, y_pred):  # rewritten: FO101
    rows = []
    for i in range(y_true.shape[0]):
        e = y_true[i] - y_pred[i]
        rows.append(torch.where(e.abs() < 1, 0.5 * e.pow(2), e.abs() - 0.5).mean())
    return torch.stack(rows).sum()


class WeightedLoss(nn.Module):  # reported: FO101
    def forward(self, y_true, y_pred):
        loss = 0.0
        for k in range(y_true.shape[0]):
            loss = loss + torch.abs(y_true[k] - y_pred[k]).max()
        return loss


def annotated_loss(y_true: Tensor, y_pred: Tensor) -> Tensor:  # rewritten: FO101
    losses: list[Tensor] = []
    for t, p in zip(y_true.unbind(0), y_pred.unbind(0), strict=False):
        losses.append(F.smooth_l1_loss(p, t))
    return th.stack(losses, dim=0).mean(dim=0)


def cat_rows_loss(y_true, y_pred):  # rewritten: FO101
    out = []
    for b in range(y_pred.shape[0]):
        out.append(F.normalize(y_pred[b].unsqueeze(0), dim=1))
    z = torch.cat(out, dim=0)
    return ((z - y_true) ** 2).mean()


def select_steps_loss(y_true, y_pred):  # rewritten: FO102
    total = y_pred.new_tensor(0.0)
    for t in range(y_pred.size(1)):
        total = total + F.mse_loss(y_pred.select(1, t), y_true.select(1, t))
    return total / y_pred.size(1)


def chunk_steps_loss(y_true, y_pred):  # rewritten: FO102|FO101|FO104
    total = 0.0
    for p, t in zip(y_pred.split(1, dim=1), y_true.split(1, dim=1), strict=False):
        total = total + (p - t).abs().mean()
    return total


def module_inside_loss(y_true, y_pred):  # rewritten: FO101
    crit = nn.L1Loss(reduction="none")
    return torch.stack([crit(p, t).max() for p, t in zip(y_pred, y_true, strict=False)]).mean()


def index_put_loss(y_true, y_pred):  # rewritten: FO101
    out = torch.empty_like(y_pred)
    for i in range(y_pred.shape[0]):
        out[i] = y_pred[i] - y_pred[i].mean()
    return (out * y_true).sum().neg()


def in_place_total_loss(y_true, y_pred):  # rewritten: FO101
    loss = torch.zeros(1)
    for b in range(y_pred.shape[0]):
        loss += torch.sum(torch.abs(y_pred[b] - y_true[b]))
    return loss.squeeze() / y_pred.shape[0]


def descending_order_loss(y_true, y_pred):  # rewritten: FO101
    out = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        idx = torch.argsort(t, descending=True)
        s = p[idx]
        for k in range(len(s)):
            out = out + torch.logsumexp(s[k:], dim=0) - s[k]
    return out / len(y_true)


def max_values_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        hardest = p.max(dim=0).values
        total = total + (hardest - t.mean()) ** 2
    return total / len(y_true)


def einsum_rows_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        gram = torch.outer(y_pred[i], y_pred[i])
        total = total + (gram * torch.outer(y_true[i], y_true[i])).sum()
    return total


def module_rows(y_true, y_pred):  # rewritten: FO101
    crit = nn.L1Loss(reduction="sum")
    loss = 0.0
    for b, (p, t) in enumerate(zip(y_pred, y_true, strict=False)):  # noqa: B007
        loss = loss + crit(p, t)
    return loss / (b + 1)


def one_by_one_loss(y_true, y_pred):  # rewritten: FO101
    loss = 0
    for i in range(y_pred.shape[0]):
        loss += cross_entropy(y_pred[i].unsqueeze(0), y_true[i].long().unsqueeze(0))
    return loss / y_pred.shape[0]


def extended_list_loss(y_true, y_pred):  # rewritten: FO101 FO102|FO104
    terms = []
    for row, target in zip(y_pred, y_true, strict=False):
        terms.extend([(row[k] - target[k]).abs() for k in range(row.shape[0])])
    return torch.mean(torch.stack(terms))


def clipped_ratio_loss(y_true, y_pred):  # rewritten: FO101 FO201
    loss = torch.tensor(0.0)
    for i in range(y_true.size(0)):
        advantage = y_true[i].item()
        ratio = torch.exp(y_pred[i].clamp(-2, 2))
        loss = loss - torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return loss / y_true.size(0)


def kept_column_loss(y_true, y_pred):  # rewritten: FO104
    each = [
        torch.max((q - 1) * (y_true - y_pred[:, [i]]), q * (y_true - y_pred[:, [i]]))
        for i, q in enumerate((0.05, 0.5, 0.95))
    ]
    return torch.mean(torch.sum(torch.cat(each, dim=1), dim=1))


def gathered_loss(y_true, y_pred):  # rewritten: FO101
    weight = torch.tensor([float(TABLE[int(c)]) for c in y_true])
    nll = -torch.log(torch.softmax(y_pred, 1).gather(1, y_true.long().view(-1, 1)).squeeze(1) + 1e-7)
    return (weight * nll).sum() / weight.sum()


def counted_rows_loss(y_true, y_pred):  # rewritten: FO101
    i, total = 0, torch.tensor(0.0)
    while i < y_pred.shape[0]:
        total = total + F.kl_div(F.log_softmax(y_pred[i], dim=-1), F.softmax(y_true[i], dim=-1), reduction="sum")
        i = i + 1
    return total / i


def walrus_loss(y_true, y_pred):  # rewritten: FO101
    rows: list[torch.Tensor] = []
    for t, p in zip(torch.unbind(y_true), torch.unbind(y_pred), strict=False):
        t, p = t - t.mean(), p - p.mean()
        if (size := t.norm() * p.norm()) > 0:
            rows.append(1 - (t * p).sum() / size)
        else:
            rows.append(torch.ones(()))
    return torch.stack(rows).mean()


def fading_steps_loss(y_true, y_pred):  # rewritten: FO102
    steps = y_pred.shape[1]
    w = torch.linspace(1.0, 0.1, steps)
    return sum(w[t] * F.l1_loss(y_pred[:, t, :], y_true[:, t, :]) for t in range(steps)) / w.sum()


def running_logsumexp_loss(y_true, y_pred):  # rewritten: FO101
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        rows.append((torch.logcumsumexp(p.flip(0), 0).flip(0) - p).sum() * t.abs().mean())
    return torch.stack(rows).mean()


def cut_errors_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        error = (t - p).abs()
        error[error < 0.5] = 0
        total = total + error.sum()
    return total


def weighted_without_gradient_loss(y_true, y_pred):  # rewritten: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        with torch.no_grad():
            weight = torch.exp(-(t - p).abs().mean())
        total = total + weight * ((t - p) ** 2).mean()
    return total / y_true.shape[0]
