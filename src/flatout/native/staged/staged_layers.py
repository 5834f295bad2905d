"""The layers in staged form: the kernels of each, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.native.model.c_expressions import LINEAR, Curve, c_bool, c_float
from flatout.native.model.network import Activation, Affine, BatchNorm, Dense, Dropout, Layer, Softmax, Weight
from flatout.native.program.builder import THREADS, Builder, lanes_for, per_block, per_row, per_value, rows_of
from flatout.native.program.kernel_program import Grid, GridExtent

# Blocks that a product should have, so that a GPU has something to do on most of its processors.
_ENOUGH_BLOCKS = 96
_LEAST_TERMS_OF_A_PART = 96


@dataclass(frozen=True)
class LayerOutput:
    """What a layer gave: its output, and what its activation was given where that is kept."""

    name: str
    z: str | None = None
    # Applied to give `name`; a kernel that computes the gradient by `name` may go on to the one by `z`.
    curve: Curve = LINEAR
    curve_type: str = "Linear"


@dataclass(frozen=True)
class Gradient:
    """The gradient by a layer's output, or already by what the layer's own activation was given."""

    name: str
    is_by_z: bool = False


def _activation(builder: Builder, name: str, size: int) -> str:
    return builder.buffer(name, (builder.batch_size, size), "activation")


def _name(weight: Weight | None) -> str | None:
    return None if weight is None else weight.name


def _gradient(weight: Weight | None) -> str | None:
    return None if weight is None else f"{weight.name}/gradient"


def _tile(rows: int, columns: int) -> int:
    """Results a side of a thread: 4 where there are enough blocks even so, else 2."""
    return 4 if -(-rows // 64) * -(-columns // 64) >= _ENOUGH_BLOCKS else 2


def _parts(rows: int, columns: int, tile: int, terms: int) -> int:
    """Parts that the terms of a product are shared out in, so that there are enough blocks."""
    blocks = -(-rows // (16 * tile)) * -(-columns // (16 * tile))
    return max(1, min(_ENOUGH_BLOCKS // max(1, blocks), terms // _LEAST_TERMS_OF_A_PART))


def _product_grid(rows: GridExtent, columns: int, tile: int, parts: int = 1) -> Grid:
    side = 16 * tile
    return GridExtent(fixed=columns, tile=side), GridExtent(rows.per_row, rows.fixed, side), GridExtent(fixed=parts)


def forward(builder: Builder, layer: Layer, x: LayerOutput, training: bool) -> tuple[list[str], LayerOutput]:
    """The kernels of a layer's forward pass, and what they give."""
    if isinstance(layer, Dense):
        return _dense_forward(builder, layer, x)
    if isinstance(layer, BatchNorm):
        return _batch_norm_forward(builder, layer, x, training)
    if isinstance(layer, Dropout) and not (training and layer.rate > 0):
        return [], x
    y = _activation(builder, f"{layer.name}/y", layer.size)
    if isinstance(layer, Dropout):
        return [_dropout_kernel(builder, layer, "forward", x.name, y)], LayerOutput(y)
    values, grid = builder.batch_size * layer.size, per_value(layer.size)
    if isinstance(layer, Affine):
        draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: every feature by its own scale and offset")
        arguments = [*draft.reads(x=x.name, scale=layer.scale.name, offset=layer.offset.name), draft.write("y", y)]
        function = f"affine_forward<{layer.size}, {layer.kind.upper()}>"
        return [draft.call(function, [*arguments, "rows"], grid, 2 * values)], LayerOutput(y)
    if isinstance(layer, Softmax):
        lanes = lanes_for(layer.width)
        draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: softmax over {layer.width} values")
        arguments = [draft.read("z", x.name), draft.write("y", y), rows_of(layer.lines)]
        function = f"softmax_forward<{layer.width}, {lanes}>"
        return [draft.call(function, arguments, per_row(layer.lines, lanes), 5 * values)], LayerOutput(y, x.name)
    kind = builder.curve(layer.name, layer.curve)
    draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: {layer.curve.name}")
    arguments = [draft.read("z", x.name), draft.write("y", y), "rows"]
    name = draft.call(f"activation_forward<{layer.size}, {kind}>", arguments, grid, values)
    return [name], LayerOutput(y, x.name, layer.curve, kind)


def _dense_forward(builder: Builder, layer: Dense, x: LayerOutput) -> tuple[list[str], LayerOutput]:
    inputs, outputs, bias = layer.inputs, layer.outputs, _name(layer.bias)
    rows, count = builder.batch_size * layer.lines, rows_of(layer.lines)
    kind = builder.curve(layer.name, layer.curve)
    y = _activation(builder, f"{layer.name}/y", layer.size)
    z = _activation(builder, f"{layer.name}/z", layer.size) if layer.curve.needs_z else None
    value = LayerOutput(y, z, layer.curve, kind)
    tile = _tile(rows, outputs)
    parts = _parts(rows, outputs, tile, inputs)
    grid, flops = _product_grid(GridExtent(per_row=layer.lines), outputs, tile, parts), 2 * rows * inputs * outputs
    formula = f"x @ kernel{'' if bias is None else ' + bias'}"
    formula = formula if layer.curve.is_linear else f"{layer.curve.name}({formula})"
    title = f"{layer.name}: [{rows}, {outputs}] = {formula}, with {inputs} inputs"
    if parts == 1:
        draft = builder.kernel(f"{layer.name}_forward", title)
        arguments = [*draft.reads(x=x.name, kernel=layer.kernel.name, bias=bias), *draft.writes(z=z, y=y), count]
        function = f"dense_forward<{tile}, {inputs}, {outputs}, {kind}>"
        return [draft.call(function, arguments, grid, flops)], value
    # Few rows and many inputs: blocks share the inputs, and a second kernel adds up what they found.
    scratch, moved = builder.scratch("parts", parts * rows * outputs), 4 * parts * rows * outputs
    draft = builder.kernel(f"{layer.name}_forward_parts", f"{title}, in {parts} parts")
    arguments = [*draft.reads(x=x.name, kernel=layer.kernel.name), draft.write("parts", scratch, moved=moved), count]
    function = f"dense_forward_parts<{tile}, {inputs}, {outputs}, {parts}>"
    first = draft.call(function, arguments, grid, flops)
    draft = builder.kernel(f"{layer.name}_forward_sum", f"{layer.name}: {parts} parts added, bias, {layer.curve.name}")
    arguments = [draft.read("parts", scratch, moved), draft.read("bias", bias), *draft.writes(z=z, y=y), count]
    function = f"dense_forward_sum<{outputs}, {parts}, {kind}>"
    return [first, draft.call(function, arguments, per_value(layer.size), (parts + 2) * rows * outputs)], value


def _dropout_kernel(builder: Builder, layer: Dropout, way: str, source: str, target: str) -> str:
    draft = builder.kernel(f"{layer.name}_{way}", f"{layer.name}: {layer.rate:g} of the values are dropped")
    x, seeds, clock = draft.reads(x=source, seeds="seeds", clock="clock")
    arguments = [x, f"{seeds} + {2 * layer.number}", clock, c_float(layer.rate), draft.write("y", target), "rows"]
    return draft.call(f"dropout<{layer.size}>", arguments, per_value(layer.size), builder.batch_size * layer.size)


def _batch_norm_forward(
    builder: Builder, layer: BatchNorm, x: LayerOutput, training: bool
) -> tuple[list[str], LayerOutput]:
    y = _activation(builder, f"{layer.name}/y", layer.size)
    moving = {"moving_mean": layer.moving_mean.name, "moving_variance": layer.moving_variance.name}
    flops, count = 8 * builder.batch_size * layer.size, rows_of(layer.lines)
    if training and not layer.frozen:
        kept = builder.buffer(f"{layer.name}/kept", (2, layer.width), "activation")
        draft = builder.kernel(f"{layer.name}_train_forward", f"{layer.name}: by mean and variance of the batch")
        arguments = [
            *draft.reads(x=x.name, gamma=_name(layer.gamma), beta=_name(layer.beta)),
            *(draft.write(parameter, buffer, also_read=True) for parameter, buffer in moving.items()),
            *draft.writes(kept=kept, y=y),
            *map(c_float, (layer.epsilon, layer.momentum, 1.0 - layer.momentum)),
            count,
        ]
        function = f"batch_norm_forward<{layer.width}>"
        return [draft.call(function, arguments, per_block(layer.width, 32), flops)], LayerOutput(y)
    draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: by the moving mean and variance")
    arguments = [
        *draft.reads(x=x.name, gamma=_name(layer.gamma), beta=_name(layer.beta), **moving),
        draft.write("y", y),
        c_float(layer.epsilon),
        count,
    ]
    function = f"batch_norm_inference<{layer.width}>"
    return [draft.call(function, arguments, per_value(layer.size), flops)], LayerOutput(y)


def backward(
    builder: Builder, layer: Layer, x: LayerOutput, y: LayerOutput, dy: Gradient, wants_dx: bool
) -> tuple[list[str], Gradient | None]:
    """The kernels of a layer's backward pass, and the gradient by its input if that is wanted."""
    if isinstance(layer, Dense):
        return _dense_backward(builder, layer, x, y, dy, wants_dx)
    if isinstance(layer, BatchNorm):
        return _batch_norm_backward(builder, layer, x, dy, wants_dx)
    if not wants_dx or (isinstance(layer, Dropout) and layer.rate == 0):
        return [], dy if wants_dx else None
    if isinstance(layer, Activation | Softmax) and dy.is_by_z:
        return [], Gradient(dy.name)
    dx = _activation(builder, f"{layer.name}/dx", layer.size)
    if isinstance(layer, Dropout):
        return [_dropout_kernel(builder, layer, "backward", dy.name, dx)], Gradient(dx)
    draft = builder.kernel(f"{layer.name}_backward", f"{layer.name}: the gradient by its input")
    grid, flops, count = per_value(layer.size), 2 * builder.batch_size * layer.size, "rows"
    if isinstance(layer, Affine):
        function = f"affine_backward<{layer.size}, {layer.kind.upper()}>"
        arguments = draft.reads(dy=dy.name, scale=layer.scale.name)
    elif isinstance(layer, Softmax):
        lanes, count = lanes_for(layer.width), rows_of(layer.lines)
        grid, flops = per_row(layer.lines, lanes), 2 * flops
        function = f"softmax_backward<{layer.width}, {lanes}>"
        arguments = draft.reads(dy=dy.name, y=y.name)
    else:
        function = f"activation_backward<{layer.size}, {builder.curve(layer.name, layer.curve)}>"
        arguments = draft.reads(dy=dy.name, z=x.name if layer.curve.needs_z else None, y=y.name)
    return [draft.call(function, [*arguments, draft.write("dx", dx), count], grid, flops)], Gradient(dx)


def _dense_backward(
    builder: Builder, layer: Dense, x: LayerOutput, y: LayerOutput, dy: Gradient, wants_dx: bool
) -> tuple[list[str], Gradient | None]:
    names: list[str] = []
    inputs, outputs = layer.inputs, layer.outputs
    rows = builder.batch_size * layer.lines
    dz = dy.name
    if not dy.is_by_z and not layer.curve.is_linear:
        dz = _activation(builder, f"{layer.name}/dz", layer.size)
        draft = builder.kernel(f"{layer.name}_backward_curve", f"{layer.name}: the slope of {layer.curve.name}")
        arguments = [*draft.reads(dy=dy.name, z=y.z, y=y.name), draft.write("dz", dz), "rows"]
        function = f"activation_backward<{layer.size}, {y.curve_type}>"
        names.append(draft.call(function, arguments, per_value(layer.size), 2 * rows * outputs))
    if layer.kernel.trainable or (layer.bias is not None and layer.bias.trainable):
        names += _dense_backward_weights(builder, layer, x.name, dz)
    if not wants_dx:
        return names, None
    dx = _activation(builder, f"{layer.name}/dx", layer.lines * inputs)
    tile = _tile(rows, inputs)
    goes_on = not x.curve.is_linear
    title = f"{layer.name}: the gradient by its input, dz @ kernel^T"
    draft = builder.kernel(
        f"{layer.name}_backward_input", f"{title}, times the slope of {x.curve.name}" if goes_on else title
    )
    arguments = [
        *draft.reads(dz=dz, kernel=layer.kernel.name, z=x.z if goes_on else None, x=x.name if goes_on else None),
        draft.write("dx", dx),
        rows_of(layer.lines),
    ]
    function = f"dense_backward_input<{tile}, {inputs}, {outputs}, {x.curve_type}>"
    grid = _product_grid(GridExtent(per_row=layer.lines), inputs, tile)
    names.append(draft.call(function, arguments, grid, 2 * rows * inputs * outputs))
    return names, Gradient(dx, is_by_z=goes_on)


def _dense_backward_weights(builder: Builder, layer: Dense, x: str, dz: str) -> list[str]:
    inputs, outputs, kernel, bias = layer.inputs, layer.outputs, layer.kernel, layer.bias
    rows, count = builder.batch_size * layer.lines, rows_of(layer.lines)
    numbers = (kernel.l1, kernel.l2, *((bias.l1, bias.l2) if bias is not None else (0.0, 0.0)))
    penalties = f"Penalties{{{', '.join(map(c_float, numbers))}}}"
    height = inputs + (bias is not None)
    tile = _tile(height, outputs)
    parts = _parts(height, outputs, tile, rows)
    grid, flops = _product_grid(GridExtent(fixed=height), outputs, tile, parts), 2 * rows * height * outputs
    title = f"{layer.name}: the gradient by its weights, x^T @ dz"
    # The weights are read for their penalties alone.
    penalized = {
        "kernel": kernel.name if kernel.is_penalized else None,
        "bias": bias.name if bias is not None and bias.is_penalized else None,
    }
    results = {"dkernel": _gradient(kernel), "dbias": _gradient(bias)}
    if parts == 1:
        draft = builder.kernel(f"{layer.name}_backward_weights", title)
        arguments = [*draft.reads(x=x, dz=dz, **penalized), *draft.writes(**results), penalties, count]
        return [draft.call(f"dense_backward_weights<{tile}, {inputs}, {outputs}>", arguments, grid, flops)]
    scratch, moved = builder.scratch("parts", parts * height * outputs), 4 * parts * height * outputs
    draft = builder.kernel(f"{layer.name}_backward_weights_parts", f"{title}, in {parts} parts")
    arguments = [*draft.reads(x=x, dz=dz), draft.write("parts", scratch, moved=moved), c_bool(bias is not None), count]
    function = f"dense_backward_weights_parts<{tile}, {inputs}, {outputs}, {parts}>"
    first = draft.call(function, arguments, grid, flops)
    draft = builder.kernel(f"{layer.name}_backward_weights_sum", f"{layer.name}: {parts} parts added")
    arguments = [draft.read("parts", scratch, moved), *draft.reads(**penalized), *draft.writes(**results), penalties]
    function = f"dense_backward_weights_sum<{inputs}, {outputs}, {parts}>"
    whole = per_block(height * outputs, THREADS)
    return [first, draft.call(function, arguments, whole, parts * height * outputs, takes_rows=False)]


def _batch_norm_backward(
    builder: Builder, layer: BatchNorm, x: LayerOutput, dy: Gradient, wants_dx: bool
) -> tuple[list[str], Gradient | None]:
    dx = _activation(builder, f"{layer.name}/dx", layer.size) if wants_dx else None
    if layer.frozen and dx is None:
        return [], None
    draft = builder.kernel(f"{layer.name}_backward", f"{layer.name}: gradients by its input and weights")
    gamma, count, flops = _name(layer.gamma), rows_of(layer.lines), 10 * builder.batch_size * layer.size
    if layer.frozen:
        taken = draft.reads(dy=dy.name, gamma=gamma, moving_variance=layer.moving_variance.name)
        arguments = [*taken, draft.write("dx", dx), c_float(layer.epsilon), count]
        grid, function = per_value(layer.size), f"batch_norm_inference_backward<{layer.width}>"
    else:
        taken = draft.reads(dy=dy.name, x=x.name, kept=f"{layer.name}/kept", gamma=gamma)
        given = draft.writes(dgamma=_gradient(layer.gamma), dbeta=_gradient(layer.beta), dx=dx)
        arguments = [*taken, *given, count]
        grid, function = per_block(layer.width, 32), f"batch_norm_backward<{layer.width}>"
    return [draft.call(function, arguments, grid, flops)], None if dx is None else Gradient(dx)
