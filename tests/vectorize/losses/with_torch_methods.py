"""Losses as people post them, in torch: methods, preallocated results, `torch.nn.functional`."""

import torch
import torch.nn.functional as F
from torch import nn

criterion = nn.MSELoss()


def preallocated_loss(y_true, y_pred):  # codes: FO101
    out = torch.zeros(y_pred.shape[0])
    for i in range(y_pred.shape[0]):
        out[i] = ((y_pred[i] - y_true[i]) ** 2).sum()
    return out.mean()


def cosine_each_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for a, b in zip(torch.unbind(y_true), torch.unbind(y_pred), strict=False):
        total = total + (1 - F.cosine_similarity(a, b, dim=0))
    return total / y_true.shape[0]


def module_loss(y_true, y_pred):  # codes: FO101
    total = 0.0
    for i in range(len(y_true)):
        total += criterion(y_pred[i], y_true[i])
    return total / len(y_true)


def cross_entropy_each_loss(y_true, y_pred):  # codes: FO101
    losses = [F.cross_entropy(y_pred[i : i + 1], y_true[i : i + 1].long()) for i in range(y_pred.shape[0])]
    return torch.stack(losses).mean()


def steps_loss(y_true, y_pred):  # codes: FO102
    loss = torch.tensor(0.0)
    for t in range(1, y_pred.shape[1]):
        loss = loss + (y_pred[:, t] - y_pred[:, t - 1]).abs().mean()
    return loss + F.mse_loss(y_pred, y_true)


def host_numbers_metric(y_true, y_pred):  # codes: FO101 FO201
    right = 0
    for truth, guess in zip(y_true.tolist(), y_pred.tolist(), strict=False):
        if abs(truth - guess) < 0.5:
            right += 1
    return right / len(y_true)


def nested_where_loss(y_true, y_pred):  # codes: FO101
    rows = []
    for i in range(y_true.shape[0]):
        e = y_true[i] - y_pred[i]
        rows.append(torch.where(e.abs() < 1, 0.5 * e.pow(2), e.abs() - 0.5).mean())
    return torch.stack(rows).sum()


def pairwise_norm_loss(y_true, y_pred):  # codes: FO103
    n = y_pred.shape[0]
    loss = y_pred.new_zeros(())
    for i in range(n):
        for j in range(n):
            loss = loss + torch.exp(-torch.sum((y_pred[i] - y_pred[j]) ** 2))
    return loss / n**2 + (y_true - y_pred).abs().mean()


def class_means_loss(y_true, y_pred):  # codes: FO104|FO107
    total = 0.0
    for c in range(3):
        mask = y_true == c
        if mask.any():
            total = total + y_pred[mask].mean() ** 2
    return total


class WeightedLoss(nn.Module):  # codes: FO101
    def forward(self, y_true, y_pred):
        loss = 0.0
        for k in range(y_true.shape[0]):
            loss = loss + torch.abs(y_true[k] - y_pred[k]).max()
        return loss
