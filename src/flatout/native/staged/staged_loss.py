"""Loss, metrics and the sums of a step in staged form."""

from __future__ import annotations

from flatout.native.model.c_expressions import c_bool, c_float
from flatout.native.model.network import Loss, Metric, Network, Softmax
from flatout.native.program.builder import Builder, lanes_for, per_row, per_value
from flatout.native.program.kernel_program import ONE_BLOCK

from .staged_layers import Gradient, LayerOutput

_FORMS = {"logits": "FROM_LOGITS", "z": "FROM_Z", "probabilities": "FROM_PROBABILITIES", "clipped": "FROM_CLIPPED"}


def loss_kernel(
    builder: Builder, network: Network, output: LayerOutput, weighted: bool, training: bool, softmax: Softmax | None
) -> tuple[str, Gradient | None]:
    """The kernel of the rows' losses, and in training of the gradient by what the last activation was given.

    `softmax` is the last layer, if it is one that this kernel shall compute too; then `output` is what that is given.
    """
    loss, width = network.loss, network.outputs
    assert loss is not None
    rows = builder.batch_size
    row_loss = builder.buffer("row_loss", (rows,), "activation")
    gradient = builder.buffer("loss/gradient", (rows, width), "activation") if training else None
    lanes = lanes_for(width)
    title = f"{_title(loss)}{' and its gradient' if training else ''}"
    draft = builder.kernel("loss_train" if training else "loss_test", title)
    lines = [
        "SHARED(BlockScratch, scratch);",
        f"const int row = blockIdx.x * (THREADS / {lanes}) + threadIdx.x / {lanes};",
    ]
    if softmax is not None:
        z = draft.read("z", output.name)
        p = draft.write("p", builder.buffer(f"{softmax.name}/y", (rows, width), "activation"))
    else:
        needs_z = loss.form == "z" or output.curve.needs_z
        z, p = draft.reads(z=output.z if needs_z else None, p=output.name)
    target = draft.read("target", "target")
    results = draft.writes(row_loss=row_loss, dz=gradient)
    tail = ", ".join([*results, draft.read("weight", "sample_weight" if weighted else None)])
    scale = f"{c_float(loss.scale)}{' / rows' if loss.is_mean else ''}"
    curve = "Linear" if softmax is not None else output.curve_type
    if loss.kind in ("sparse", "categorical"):
        p = f"(float*){p}" if softmax is None else p
        if loss.kind == "sparse":
            kind, made = "SparseTarget", f"SparseTarget{{row < rows ? {target}[row] : -1}}"
        else:
            keep, add = c_float(1.0 - loss.smoothing), c_float(loss.smoothing / width)
            kind, made = "DenseTarget", f"DenseTarget{{{target} + (long long)row * {width}, {keep}, {add}}}"
        flags = f"{c_bool(softmax is not None)}, {c_bool(loss.targets_sum_to_1)}"
        lines.append(
            f"cross_entropy<{width}, {lanes}, {_FORMS[loss.form]}, {flags}, {curve}, {kind}>({z}, {p}, {made}, {tail}, "
            f"{c_float(loss.epsilon)}, {scale}, row, rows, scratch);"
        )
    else:
        builder.declarations["Pointwise"] = _pointwise(loss)
        lines.append(
            f"pointwise_loss<{width}, {lanes}, Pointwise, {curve}>({z}, {p}, {target}, {tail}, {scale}, row, rows, "
            "scratch);"
        )
    name = draft.done(lines, per_row(1, lanes), 12 * rows * width)
    is_by_z = softmax is None and (loss.form == "z" or not output.curve.is_linear)
    return name, None if gradient is None else Gradient(gradient, is_by_z)


def _title(loss: Loss) -> str:
    if loss.kind in ("sparse", "categorical", "binary"):
        source = {"logits": "logits", "z": "the last activation's input"}.get(loss.form, "probabilities")
        return f"{loss.kind} cross-entropy of {source}"
    return {"mse": "squared error", "mae": "absolute error", "huber": "Huber loss"}[loss.kind]


def _pointwise(loss: Loss) -> str:
    keep, add = c_float(1.0 - loss.smoothing), c_float(0.5 * loss.smoothing)
    smooth = f"t = t * {keep} + {add}; " if loss.smoothing else ""
    low, high = c_float(loss.epsilon), f"(1.0f - {c_float(loss.epsilon)})"
    delta = c_float(loss.delta)
    if loss.kind == "binary" and loss.form in ("logits", "z"):
        value = "fmaxf(p, 0.0f) - p * t + log1pf(expf(-fabsf(p)))"
        slope = "1.0f / (1.0f + expf(-p)) - t"
    elif loss.kind == "binary":
        clipped = f"const float q = clipped(p, {low}, {high}); "
        value = "-(t * logf(q) + (1.0f - t) * logf(1.0f - q))"
        slope = f"p >= {low} && p <= {high} ? (1.0f - t) / (1.0f - q) - t / q : 0.0f"
        smooth += clipped
    else:
        value, slope = {
            "mse": ("(t - p) * (t - p)", "2.0f * (p - t)"),
            "mae": ("fabsf(t - p)", "p > t ? 1.0f : p < t ? -1.0f : 0.0f"),
            "huber": (
                f"fabsf(p - t) <= {delta} ? 0.5f * (p - t) * (p - t) "
                f": {delta} * fabsf(p - t) - 0.5f * {delta} * {delta}",
                f"fabsf(p - t) <= {delta} ? p - t : p > t ? {delta} : -{delta}",
            ),
        }[loss.kind]
    return (
        "struct Pointwise {\n"
        f"    static constexpr bool FROM_Z = {c_bool(loss.form == 'z')};\n"
        f"    DEVICE float value(float p, float t) {{ {smooth}return {value}; }}\n"
        f"    DEVICE float slope(float p, float t) {{ {smooth}return {slope}; }}\n"
        "};\n"
    )


def score_kernel(builder: Builder, network: Network, output: str) -> list[str]:
    """The kernel of the rows' metrics, if there are any."""
    if not network.metrics:
        return []
    rows, width = builder.batch_size, network.outputs
    scores = builder.buffer("scores", (len(network.metrics), rows), "activation")
    draft = builder.kernel("score", "each row's value of each metric")
    p, target, out = draft.read("p", output), draft.read("target", "target"), draft.write("scores", scores)
    lines = ["const int row = blockIdx.x * THREADS + threadIdx.x;", "if (row >= rows) return;"]
    for number, metric in enumerate(network.metrics):
        lines.append(f"{out}[{number} * rows + row] = {_score(metric, width, p, target)};")
    return [draft.done(lines, per_row(1, 1), 2 * rows * width * len(network.metrics))]


def _score(metric: Metric, width: int, p: str, target: str) -> str:
    prediction = f"{p} + (long long)row * {width}"
    if metric.kind == "sparse_accuracy":
        return f"sparse_accuracy<{width}>({prediction}, {target}[row])"
    extra = f", {c_float(metric.threshold)}" if metric.kind == "binary_accuracy" else ""
    return f"{metric.kind}<{width}>({prediction}, {target} + (long long)row * {width}{extra})"


def accumulate_kernel(builder: Builder, network: Network, weighted: bool, steps: int) -> str:
    """The kernel that ends a step: sums over its rows into the metrics and the log, and puts the clock forward."""
    loss, metrics = network.loss, network.metrics
    assert loss is not None
    penalized = sum(weight.is_penalized for weight in network.weights)
    width = 2 * (len(metrics) + 1)
    totals = builder.buffer("metrics", (len(metrics) + 1, 2), "state")
    log = builder.buffer("log", (steps, len(metrics) + 1, 2), "state")
    by_weight = sum(1 << number for number, metric in enumerate(metrics) if metric.weighted) if weighted else 0
    draft = builder.kernel("accumulate", "sums over the rows: loss and metrics; the clock goes on")
    arguments = [
        *draft.reads(
            row_loss="row_loss",
            scores="scores" if metrics else None,
            weight="sample_weight" if by_weight else None,
            penalties="penalties" if penalized else None,
        ),
        c_float(loss.scale),
        c_bool(loss.is_mean),
        draft.write("totals", totals, also_read=True),
        draft.write("log", log, moved=4 * width),
        draft.write("clock", "clock", also_read=True),
        "rows",
    ]
    function = f"accumulate<{len(metrics)}, {penalized}, {by_weight}u>"
    return draft.call(function, arguments, ONE_BLOCK, builder.batch_size * (len(metrics) + 1))


def emit_kernels(builder: Builder, network: Network, output: str, steps: int) -> list[str]:
    """The kernels that end a prediction step: its outputs beside those of the other steps, and the clock."""
    rows, width = builder.batch_size, network.outputs
    outputs = builder.buffer("outputs", (steps, rows, width), "data")
    draft = builder.kernel("emit", "the step's outputs, kept")
    lines = [
        "const int i = blockIdx.x * THREADS + threadIdx.x;",
        f"if (i < rows * {width}) {draft.write('outputs', outputs, moved=4 * rows * width)}"
        f"[(long long){draft.read('clock', 'clock')}[1] * {rows * width} + i] = {draft.read('p', output)}[i];",
    ]
    emit = draft.done(lines, per_value(width))
    draft = builder.kernel("advance", "the clock goes on")
    clock = draft.write("clock", "clock", also_read=True)
    advance = draft.done(["if (threadIdx.x != 0) return;", f"{clock}[0] += rows;", f"{clock}[1] += 1;"], ONE_BLOCK)
    return [emit, advance]
