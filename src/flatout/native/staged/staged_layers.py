"""The layers in staged form: the kernels of each, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.native.model.activations import LINEAR, Curve, c_float
from flatout.native.model.network import Activation, Affine, BatchNorm, Dense, Dropout, Layer, Softmax
from flatout.native.program.program import ONE, Extent

from .builder import THREADS, Builder, lanes_for, per_row, per_value, rows_of

# Blocks that a product should have, so that a GPU has something to do on most of its processors.
_ENOUGH_BLOCKS = 96
_LEAST_TERMS_OF_A_PART = 96


@dataclass(frozen=True)
class Value:
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


def _tile(builder: Builder, rows: int, columns: int) -> int:
    """Results a side of a thread: 4 where there are enough blocks even so, else 2."""
    return 4 if -(-rows // 64) * -(-columns // 64) >= _ENOUGH_BLOCKS else 2


def _parts(blocks: int, terms: int) -> int:
    return max(1, min(_ENOUGH_BLOCKS // max(1, blocks), terms // _LEAST_TERMS_OF_A_PART))


def _product_grid(rows: Extent, columns: int, tile: int, parts: int = 1) -> tuple[Extent, Extent, Extent]:
    side = 16 * tile
    return Extent(fixed=columns, tile=side), Extent(rows.per_row, rows.fixed, side), Extent(fixed=parts)


def forward(builder: Builder, layer: Layer, x: Value, training: bool) -> tuple[list[str], Value]:
    """The kernels of a layer's forward pass, and what they give."""
    if isinstance(layer, Dense):
        return _dense_forward(builder, layer, x)
    if isinstance(layer, BatchNorm):
        return _batch_norm_forward(builder, layer, x, training)
    if isinstance(layer, Dropout):
        return _dropout_forward(builder, layer, x) if training and layer.rate > 0 else ([], x)
    y = _activation(builder, f"{layer.name}/y", layer.size)
    if isinstance(layer, Affine):
        draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: every feature by its own scale and offset")
        names = draft.read("x", x.name), draft.read("scale", layer.scale.name), draft.read("offset", layer.offset.name)
        body = f"affine_forward<{layer.size}, {layer.kind.upper()}>({', '.join(names)}, {draft.write('y', y)}, rows);"
        flops = 2 * builder.batch_size * layer.size
        return [draft.done(body, per_value(layer.size), flops)], Value(y)
    if isinstance(layer, Softmax):
        return [softmax_kernel(builder, layer, x.name, y)], Value(y, x.name)
    kind = builder.curve(layer.name, layer.curve)
    draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: {layer.curve.name}")
    body = f"activation_forward<{layer.size}, {kind}>({draft.read('z', x.name)}, {draft.write('y', y)}, rows);"
    return [draft.done(body, per_value(layer.size), builder.batch_size * layer.size)], Value(
        y, x.name, layer.curve, kind
    )


def softmax_kernel(builder: Builder, layer: Softmax, z: str, y: str) -> str:
    """Softmax over rows."""
    lanes = lanes_for(layer.width)
    draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: softmax over {layer.width} values")
    body = (
        f"softmax_forward<{layer.width}, {lanes}>({draft.read('z', z)}, {draft.write('y', y)}, {rows_of(layer.lines)});"
    )
    return draft.done(body, per_row(layer.lines, lanes), 5 * builder.batch_size * layer.size)


def _dense_forward(builder: Builder, layer: Dense, x: Value) -> tuple[list[str], Value]:
    inputs, outputs, lines = layer.inputs, layer.outputs, layer.lines
    rows = builder.batch_size * lines
    kind = builder.curve(layer.name, layer.curve)
    y = _activation(builder, f"{layer.name}/y", layer.size)
    z = _activation(builder, f"{layer.name}/z", layer.size) if layer.curve.needs_z else None
    bias = None if layer.bias is None else layer.bias.name
    value = Value(y, z, layer.curve, kind)
    tile = _tile(builder, rows, outputs)
    flops = 2 * rows * inputs * outputs
    formula = f"x @ kernel{'' if bias is None else ' + bias'}"
    formula = formula if layer.curve.is_linear else f"{layer.curve.name}({formula})"
    title = f"{layer.name}: [{rows}, {outputs}] = {formula}, with {inputs} inputs"
    blocks = -(-rows // (16 * tile)) * -(-outputs // (16 * tile))
    parts = _parts(blocks, inputs)
    if parts == 1:
        draft = builder.kernel(f"{layer.name}_forward", title)
        body = (
            f"dense_forward<{tile}, {inputs}, {outputs}, {kind}>({draft.read('x', x.name)}, "
            f"{draft.read('kernel', layer.kernel.name)}, {draft.read('bias', bias)}, {draft.write('z', z)}, "
            f"{draft.write('y', y)}, {rows_of(lines)});"
        )
        return [draft.done(body, _product_grid(Extent(per_row=lines), outputs, tile), flops)], value
    # Few rows and many inputs: blocks share the inputs, and a second kernel adds up what they found.
    scratch = builder.scratch("parts", parts * rows * outputs)
    moved = 4 * parts * rows * outputs
    draft = builder.kernel(f"{layer.name}_forward_parts", f"{title}, in {parts} parts")
    body = (
        f"dense_forward_parts<{tile}, {inputs}, {outputs}, {parts}>({draft.read('x', x.name)}, "
        f"{draft.read('kernel', layer.kernel.name)}, {draft.write('parts', scratch, moved=moved)}, {rows_of(lines)});"
    )
    first = draft.done(body, _product_grid(Extent(per_row=lines), outputs, tile, parts), flops)
    draft = builder.kernel(f"{layer.name}_forward_sum", f"{layer.name}: {parts} parts added, bias, {layer.curve.name}")
    body = (
        f"dense_forward_sum<{outputs}, {parts}, {kind}>({draft.read('parts', scratch, moved=moved)}, "
        f"{draft.read('bias', bias)}, {draft.write('z', z)}, {draft.write('y', y)}, {rows_of(lines)});"
    )
    return [first, draft.done(body, per_value(layer.size), (parts + 2) * rows * outputs)], value


def _dropout_forward(builder: Builder, layer: Dropout, x: Value) -> tuple[list[str], Value]:
    y = _activation(builder, f"{layer.name}/y", layer.size)
    return [_dropout_kernel(builder, layer, "forward", x.name, y)], Value(y)


def _dropout_kernel(builder: Builder, layer: Dropout, way: str, source: str, target: str) -> str:
    draft = builder.kernel(f"{layer.name}_{way}", f"{layer.name}: {layer.rate:g} of the values are dropped")
    body = (
        f"dropout<{layer.size}>({draft.read('x', source)}, {draft.read('seeds', 'seeds')} + {2 * layer.number}, "
        f"{draft.read('clock', 'clock')}, {c_float(layer.rate)}, {draft.write('y', target)}, rows);"
    )
    return draft.done(body, per_value(layer.size), builder.batch_size * layer.size)


def _batch_norm_forward(builder: Builder, layer: BatchNorm, x: Value, training: bool) -> tuple[list[str], Value]:
    y = _activation(builder, f"{layer.name}/y", layer.size)
    gamma, beta = (None if weight is None else weight.name for weight in (layer.gamma, layer.beta))
    flops = 8 * builder.batch_size * layer.size
    epsilon, momentum = c_float(layer.epsilon), c_float(layer.momentum)
    if training and not layer.frozen:
        kept = builder.buffer(f"{layer.name}/kept", (2, layer.width), "activation")
        draft = builder.kernel(f"{layer.name}_train_forward", f"{layer.name}: by mean and variance of the batch")
        body = (
            f"batch_norm_forward<{layer.width}>({draft.read('x', x.name)}, {draft.read('gamma', gamma)}, "
            f"{draft.read('beta', beta)}, {draft.write('moving_mean', layer.moving_mean.name, also_read=True)}, "
            f"{draft.write('moving_variance', layer.moving_variance.name, also_read=True)}, "
            f"{draft.write('kept', kept)}, {draft.write('y', y)}, {epsilon}, {momentum}, "
            f"{c_float(1.0 - layer.momentum)}, {rows_of(layer.lines)});"
        )
        return [draft.done(body, (Extent(fixed=layer.width, tile=32), ONE, ONE), flops)], Value(y)
    draft = builder.kernel(f"{layer.name}_forward", f"{layer.name}: by the moving mean and variance")
    body = (
        f"batch_norm_inference<{layer.width}>({draft.read('x', x.name)}, {draft.read('gamma', gamma)}, "
        f"{draft.read('beta', beta)}, {draft.read('moving_mean', layer.moving_mean.name)}, "
        f"{draft.read('moving_variance', layer.moving_variance.name)}, {draft.write('y', y)}, {epsilon}, "
        f"{rows_of(layer.lines)});"
    )
    return [draft.done(body, per_value(layer.size), flops)], Value(y)


def backward(
    builder: Builder, layer: Layer, x: Value, y: Value, dy: Gradient, wants_dx: bool
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
    flops = 2 * builder.batch_size * layer.size
    if isinstance(layer, Dropout):
        return [_dropout_kernel(builder, layer, "backward", dy.name, dx)], Gradient(dx)
    draft = builder.kernel(f"{layer.name}_backward", f"{layer.name}: the gradient by its input")
    gradient = draft.read("dy", dy.name)
    if isinstance(layer, Affine):
        scale = draft.read("scale", layer.scale.name)
        body = (
            f"affine_backward<{layer.size}, {layer.kind.upper()}>({gradient}, {scale}, {draft.write('dx', dx)}, rows);"
        )
        return [draft.done(body, per_value(layer.size), flops)], Gradient(dx)
    if isinstance(layer, Softmax):
        lanes = lanes_for(layer.width)
        body = (
            f"softmax_backward<{layer.width}, {lanes}>({gradient}, {draft.read('y', y.name)}, {draft.write('dx', dx)}, "
            f"{rows_of(layer.lines)});"
        )
        return [draft.done(body, per_row(layer.lines, lanes), 2 * flops)], Gradient(dx)
    assert isinstance(layer, Activation)
    kind = builder.curve(layer.name, layer.curve)
    z = x.name if layer.curve.needs_z else None
    body = (
        f"activation_backward<{layer.size}, {kind}>({gradient}, {draft.read('z', z)}, {draft.read('y', y.name)}, "
        f"{draft.write('dx', dx)}, rows);"
    )
    return [draft.done(body, per_value(layer.size), flops)], Gradient(dx)


def _dense_backward(
    builder: Builder, layer: Dense, x: Value, y: Value, dy: Gradient, wants_dx: bool
) -> tuple[list[str], Gradient | None]:
    names: list[str] = []
    inputs, outputs, lines = layer.inputs, layer.outputs, layer.lines
    rows = builder.batch_size * lines
    dz = dy.name
    if not dy.is_by_z and not layer.curve.is_linear:
        dz = _activation(builder, f"{layer.name}/dz", layer.size)
        draft = builder.kernel(f"{layer.name}_backward_curve", f"{layer.name}: the slope of {layer.curve.name}")
        body = (
            f"activation_backward<{layer.size}, {y.curve_type}>({draft.read('dy', dy.name)}, {draft.read('z', y.z)}, "
            f"{draft.read('y', y.name)}, {draft.write('dz', dz)}, rows);"
        )
        names.append(draft.done(body, per_value(layer.size), 2 * rows * outputs))
    if layer.kernel.trainable or (layer.bias is not None and layer.bias.trainable):
        names += _dense_backward_weights(builder, layer, x.name, dz)
    if not wants_dx:
        return names, None
    dx = _activation(builder, f"{layer.name}/dx", lines * inputs)
    tile = _tile(builder, rows, inputs)
    goes_on = not x.curve.is_linear
    title = f"{layer.name}: the gradient by its input, dz @ kernel^T"
    draft = builder.kernel(
        f"{layer.name}_backward_input", f"{title}, times the slope of {x.curve.name}" if goes_on else title
    )
    body = (
        f"dense_backward_input<{tile}, {inputs}, {outputs}, {x.curve_type}>({draft.read('dz', dz)}, "
        f"{draft.read('kernel', layer.kernel.name)}, {draft.read('z', x.z if goes_on else None)}, "
        f"{draft.read('x', x.name if goes_on else None)}, {draft.write('dx', dx)}, {rows_of(lines)});"
    )
    grid = _product_grid(Extent(per_row=lines), inputs, tile)
    names.append(draft.done(body, grid, 2 * rows * inputs * outputs))
    return names, Gradient(dx, is_by_z=goes_on)


def _dense_backward_weights(builder: Builder, layer: Dense, x: str, dz: str) -> list[str]:
    inputs, outputs, lines, kernel, bias = layer.inputs, layer.outputs, layer.lines, layer.kernel, layer.bias
    rows = builder.batch_size * lines
    numbers = (kernel.l1, kernel.l2, *((bias.l1, bias.l2) if bias is not None else (0.0, 0.0)))
    penalties = f"Penalties{{{', '.join(map(c_float, numbers))}}}"
    height = inputs + (bias is not None)
    tile = _tile(builder, height, outputs)
    side = 16 * tile
    parts = _parts(-(-height // side) * -(-outputs // side), rows)
    flops = 2 * rows * height * outputs
    title = f"{layer.name}: the gradient by its weights, x^T @ dz"
    dbias = None if bias is None else f"{bias.name}/gradient"
    grid = _product_grid(Extent(fixed=height), outputs, tile, parts)
    # The weights are read for their penalties alone.
    kernel_read = kernel.name if kernel.is_penalized else None
    bias_read = bias.name if bias is not None and bias.is_penalized else None
    if parts == 1:
        draft = builder.kernel(f"{layer.name}_backward_weights", title)
        body = (
            f"dense_backward_weights<{tile}, {inputs}, {outputs}>({draft.read('x', x)}, {draft.read('dz', dz)}, "
            f"{draft.read('kernel', kernel_read)}, {draft.read('bias', bias_read)}, "
            f"{draft.write('dkernel', f'{kernel.name}/gradient')}, {draft.write('dbias', dbias)}, {penalties}, "
            f"{rows_of(lines)});"
        )
        return [draft.done(body, grid, flops)]
    scratch = builder.scratch("parts", parts * height * outputs)
    moved = 4 * parts * height * outputs
    draft = builder.kernel(f"{layer.name}_backward_weights_parts", f"{title}, in {parts} parts")
    has_bias = "true" if bias is not None else "false"
    body = (
        f"dense_backward_weights_parts<{tile}, {inputs}, {outputs}, {parts}>({draft.read('x', x)}, "
        f"{draft.read('dz', dz)}, {draft.write('parts', scratch, moved=moved)}, {has_bias}, {rows_of(lines)});"
    )
    first = draft.done(body, grid, flops)
    draft = builder.kernel(f"{layer.name}_backward_weights_sum", f"{layer.name}: {parts} parts added")
    body = (
        f"dense_backward_weights_sum<{inputs}, {outputs}, {parts}>({draft.read('parts', scratch, moved=moved)}, "
        f"{draft.read('kernel', kernel_read)}, {draft.read('bias', bias_read)}, "
        f"{draft.write('dkernel', f'{kernel.name}/gradient')}, {draft.write('dbias', dbias)}, {penalties});"
    )
    whole = Extent(fixed=height * outputs, tile=THREADS), ONE, ONE
    return [first, draft.done(body, whole, parts * height * outputs, takes_rows=False)]


def _batch_norm_backward(
    builder: Builder, layer: BatchNorm, x: Value, dy: Gradient, wants_dx: bool
) -> tuple[list[str], Gradient | None]:
    dx = _activation(builder, f"{layer.name}/dx", layer.size) if wants_dx else None
    gamma = None if layer.gamma is None else layer.gamma.name
    flops = 10 * builder.batch_size * layer.size
    draft = builder.kernel(f"{layer.name}_backward", f"{layer.name}: gradients by its input and weights")
    gradient = draft.read("dy", dy.name)
    if layer.frozen:
        if dx is None:
            return [], None
        body = (
            f"batch_norm_inference_backward<{layer.width}>({gradient}, {draft.read('gamma', gamma)}, "
            f"{draft.read('moving_variance', layer.moving_variance.name)}, {draft.write('dx', dx)}, "
            f"{c_float(layer.epsilon)}, {rows_of(layer.lines)});"
        )
        return [draft.done(body, per_value(layer.size), flops)], Gradient(dx)
    dgamma, dbeta = (f"{weight.name}/gradient" if weight is not None else None for weight in (layer.gamma, layer.beta))
    body = (
        f"batch_norm_backward<{layer.width}>({gradient}, {draft.read('x', x.name)}, "
        f"{draft.read('kept', f'{layer.name}/kept')}, {draft.read('gamma', gamma)}, {draft.write('dgamma', dgamma)}, "
        f"{draft.write('dbeta', dbeta)}, {draft.write('dx', dx)}, {rows_of(layer.lines)});"
    )
    names = [draft.done(body, (Extent(fixed=layer.width, tile=32), ONE, ONE), flops)]
    return names, None if dx is None else Gradient(dx)
