"""Refused: it writes into its arguments or into tensors outside, in the words of torch."""

import torch

BUFFER = torch.zeros(3)


def moved_targets_loss(y_true, y_pred):  # refused: FO303
    total = 0.0
    for i in range(len(y_true)):
        row = y_true[i]
        row -= 1.0
        total = total + ((row - y_pred[i]) ** 2).sum()
    return total


def first_row_collects_loss(y_true, y_pred):  # refused: FO303
    collected = y_true[0]
    for i in range(1, len(y_true)):
        collected += y_true[i]
    return (collected * y_pred[0]).sum()


def clipped_where_it_is_loss(y_true, y_pred):  # refused: FO303
    return sum((torch.clamp(t, 0.0, 1.0, out=t) - p).abs().sum() for t, p in zip(y_true, y_pred, strict=False))


def mapped_in_place_loss(y_true, y_pred):  # refused: FO303
    total = 0.0
    for i in range(len(y_true)):
        row = y_true[i]
        row *= 2
        total = total + ((row - y_pred[i]) ** 2).sum()
    return total + y_true.sum()


def counted_in_buffer_loss(y_true, y_pred):  # refused: FO303
    buffer = BUFFER
    buffer += 1.0
    return sum(((t - p) ** 2).mean() for t, p in zip(y_true, y_pred, strict=False))


def seeded_loss(y_true, y_pred):  # refused: FO303
    torch.manual_seed(0)
    return sum(((t - p) ** 2).mean() for t, p in zip(y_true, y_pred, strict=False))


def differentiates_itself_loss(y_true, y_pred):  # refused: FO202
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        error = ((t - p) ** 2).mean()
        if error.requires_grad:
            error.backward(retain_graph=True)
        total = total + error
    return total


def cut_through_a_view_loss(y_true, y_pred):  # refused: FO106
    total = 0.0
    errors = (y_true - y_pred).abs()
    for i in range(len(errors)):
        row = errors[i]
        row[row < 0.5] = 0
        total = total + row.sum()
    return total + errors.sum()


def listed_without_gradient_loss(y_true, y_pred):  # refused: FO101
    terms = []
    for t, p in zip(y_true, y_pred, strict=False):
        with torch.no_grad():
            terms.append(((t - p) ** 2).mean())
    return torch.stack(terms).mean() + y_pred.mean()
