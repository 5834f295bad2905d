"""Loops over the samples of a batch, in the spellings that people use."""

from keras import ops


def batch_zip(y_true, y_pred):  # rewritten: FO101
    losses = []
    for target, guess in zip(y_true, y_pred):  # noqa: B905
        losses.append(ops.mean(ops.abs(target - guess)))
    return sum(losses) / len(losses)


def batch_comprehension(y_true, y_pred):  # rewritten on torch: FO101
    rows = [ops.sum(ops.square(y_true[k] - y_pred[k])) for k in range(len(y_true))]
    return ops.mean(ops.stack(rows))


def batch_while(y_true, y_pred):  # rewritten on torch: FO101
    at, total, count = 0, 0.0, ops.shape(y_true)[0]
    while at < count:
        total += ops.mean(ops.square(y_true[at, :] - y_pred[at, :]))
        at += 1
    return total / count


batch_lambda = lambda y_true, y_pred: sum(  # noqa: E731  # rewritten: FO101
    ops.max(ops.abs(y_true[i] - y_pred[i])) for i in range(y_pred.shape[0])
)


def batch_enumerate(y_true, y_pred):  # rewritten on torch: FO101
    rows = []
    for i, row in enumerate(y_pred):
        error = ops.abs(row - y_true[i])
        rows += [ops.max(error) - ops.min(error)]
    return ops.sum(ops.stack(rows))


def neighbour(y_true, y_pred):  # rewritten: FO101
    rows = [ops.sum(ops.square(y_pred[i] - y_pred[i - 1] - y_true[i])) for i in range(y_pred.shape[0])]
    return ops.mean(ops.stack(rows))


def centred(y_true, y_pred):  # rewritten: FO101
    rows = []
    for i in range(y_pred.shape[0]):
        rows.append(ops.square(y_pred[i] - ops.mean(y_pred) - y_true[i]))
    return ops.mean(ops.stack(rows))


def cosine_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    sims = []
    for idx in range(len(y_pred)):
        a, b = y_true[idx], y_pred[idx]
        num = ops.sum(a * b)
        den = ops.sqrt(ops.sum(a**2)) * ops.sqrt(ops.sum(b**2)) + 1e-7
        sims.append(1 - num / den)
    return sum(sims) / len(sims)


def taken_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for i in range(ops.shape(y_true)[0]):
        row, guess = ops.take(y_true, i, axis=0), ops.take(y_pred, i, axis=0)
        total = total + ops.max(ops.abs(row - guess))
    return total / ops.shape(y_true)[0]


def kept_dimension_loss(y_true, y_pred):  # rewritten: FO101
    parts = []
    for i in range(y_pred.shape[0]):
        parts.append(ops.mean(ops.square(y_true[i : i + 1] - y_pred[i : i + 1])))
    return ops.mean(ops.stack(parts))


def mapped_list_loss(y_true, y_pred):  # rewritten on torch: FO101
    each = list(map(lambda t, p: ops.sqrt(ops.sum(ops.square(t - p)) + 1e-6), y_true, y_pred))
    return sum(each) / len(each)


def annotated_loss(y_true, y_pred, *, power: float = 2.0):  # rewritten on torch: FO101
    total: float = 0.0
    batch, *_ = y_pred.shape
    for i in range(batch):
        total += ops.mean(ops.abs(y_true[i] - y_pred[i]) ** power)
    return total / batch


def per_image_norm_loss(y_true, y_pred):  # rewritten on torch: FO101
    out = []
    for img, ref in zip(y_pred, y_true, strict=False):
        img = (img - ops.mean(img)) / (ops.std(img) + 1e-5)
        ref = (ref - ops.mean(ref)) / (ops.std(ref) + 1e-5)
        out.append(ops.mean(img * ref))
    return 1.0 - ops.mean(ops.stack(out))


def rows_backwards_loss(y_true, y_pred):  # rewritten on torch: FO101
    out = []
    for _, (t, p) in reversed(list(enumerate(zip(y_true, y_pred, strict=False)))):
        out.append(ops.mean(ops.square(t - p)))
    return sum(out) / len(out)


def tensor_total_loss(y_true, y_pred):  # rewritten on torch: FO101
    acc = ops.zeros((y_pred.shape[1],))
    for i in range(y_pred.shape[0]):
        acc = acc + ops.square(y_true[i] - y_pred[i])
    return ops.max(acc / y_pred.shape[0])


def joined_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    rows = []
    for i in range(len(y_pred)):
        p = y_pred[i] / (ops.sum(ops.abs(y_pred[i])) + 1e-6)
        rows.append(ops.expand_dims(p, 0))
    normed = ops.concatenate(rows, axis=0)
    return ops.mean(ops.square(normed - y_true))


def text_argument_loss(y_true, y_pred, smooth=1e-3, reduce="mean"):  # rewritten on torch: FO101
    values = []
    for t, p in zip(y_true, y_pred, strict=False):
        values.append(ops.log(smooth + ops.sum(ops.square(t - p))))
    return ops.mean(ops.stack(values)) if reduce == "mean" else ops.sum(ops.stack(values))


def counting_down_loss(y_true, y_pred):  # rewritten on torch: FO101
    i = y_true.shape[0]
    total = 0.0
    while i > 0:
        i -= 1
        total = total + ops.mean(ops.abs(y_true[i] - y_pred[i]))
    return total


def every_other_row_loss(y_true, y_pred):  # rewritten on torch: FO101
    total, count = 0.0, 0
    for i in range(0, y_pred.shape[0], 2):
        total += ops.sum(ops.square(y_pred[i] - y_true[i]))
        count += 1
    return total / count


def next_round_loss(y_true, y_pred):  # rewritten on torch: FO101
    n = y_pred.shape[0]
    total = 0.0
    for i in range(n):
        total += ops.sum(ops.square(y_pred[i] - y_pred[(i + 1) % n] - y_true[i]))
    return total / n


def two_totals_loss(y_true, y_pred):  # rewritten on torch: FO101
    num, den = 0.0, 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        num, den = num + ops.sum(t * p), den + ops.sum(t) + ops.sum(p)
    return 1.0 - 2.0 * num / (den + 10.0)


def covariance_loss(y_true, y_pred):  # rewritten on torch: FO101
    mean = ops.mean(y_pred, axis=0)
    cov = ops.zeros((y_pred.shape[1], y_pred.shape[1]))
    for row in y_pred:
        d = row - mean
        cov = cov + ops.outer(d, d)
    return ops.sum(ops.square(cov / len(y_pred))) + ops.mean(y_true)


def discounted_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for rank, (t, p) in enumerate(zip(y_true, y_pred, strict=True), start=1):
        total += ops.mean(ops.abs(t - p)) / rank
    return total


def boxes_and_classes_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for i in range(y_pred.shape[0]):
        box = ops.sum(ops.square(y_true[i, 0:4] - y_pred[i, 0:4]))
        cls = -ops.sum(y_true[i, 8:] * ops.log_softmax(y_pred[i, 8:]))
        total = total + 5.0 * box + ops.square(y_true[i, 7] - y_pred[i, 7]) + cls
    return total / y_pred.shape[0]


def turned_list_loss(y_true, y_pred):  # rewritten on torch: FO101
    out = []
    for k in range(y_pred.shape[0] - 1, -1, -1):
        out.append(ops.max(y_pred[k] - y_true[k]))
    return ops.max(ops.cumsum(ops.stack(out[::-1])))


def flattened_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    x, y = ops.reshape(y_pred, (y_pred.shape[0], -1)), ops.reshape(y_true, (y_true.shape[0], -1))
    return sum([ops.mean(ops.abs(x[i] - y[i])) for i in range(x.shape[0])]) / x.shape[0]


def folded_rows_loss(y_true, y_pred):  # rewritten on torch: FO101
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        a, b = ops.reshape(t, (2, -1)), ops.reshape(p, (2, -1))
        total = total + ops.sum(ops.square(ops.matmul(a, ops.transpose(a)) - ops.matmul(b, ops.transpose(b))))
    return total / len(y_true)


def while_walrus(y_true, y_pred):  # rewritten on torch: FO101
    i, rows = 0, []
    while True:
        if i >= y_true.shape[0]:
            break
        rows.append(ops.logsumexp(y_pred[i]) - ops.sum(y_true[i] * y_pred[i]))
        i = i + 1
    return ops.mean(ops.stack(rows))


def manual_counter(y_true, y_pred):  # rewritten on torch: FO101
    k = 0
    total = 0.0
    for row in y_true:
        total = total + ops.mean(ops.square(row - y_pred[k]))
        k += 1
    return total / k


def loop_variable_after(y_true, y_pred):  # rewritten on torch: FO101|FO102|FO201
    total = 0.0
    for i in range(len(y_true)):
        e = ops.square(y_true[i] - y_pred[i])
        total = total + e
    return total + 10.0 * e + y_pred[i]
