"""Cases drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from .cases import CURVES, LOSSES, Block, Case
from .fused_cases import case_of

blocks = st.builds(
    Block,
    width=st.integers(2, 40),
    curve=st.sampled_from(CURVES),
    way=st.sampled_from(["inside", "inside", "after", "norm"]),
    l1=st.sampled_from([0.0, 0.0, 1e-3]),
    l2=st.sampled_from([0.0, 0.0, 1e-2]),
)
clips = st.one_of(
    st.none(),
    st.none(),
    st.tuples(st.just("clipnorm"), st.sampled_from([0.05, 1.0])),
    st.tuples(st.just("global_clipnorm"), st.sampled_from([0.1, 2.0])),
    st.tuples(st.just("clipvalue"), st.sampled_from([0.01, 0.5])),
)


@st.composite
def cases(draw: Any) -> Case:
    """A model that the native engine takes."""
    loss = draw(st.sampled_from(LOSSES))
    classes = loss.startswith(("sparse", "categorical"))
    batch_size = draw(st.integers(4, 19))
    return Case(
        shape=draw(st.sampled_from([(7,), (4, 3), (110,), (2, 3, 2)])),
        first=draw(st.sampled_from(["flatten", "rescaling", "normalization", "reshape", "dense"])),
        blocks=tuple(draw(st.lists(blocks, max_size=3))),
        loss=loss,
        outputs=draw(st.integers(2, 12)) if classes else draw(st.integers(1, 3)),
        optimizer=draw(
            st.sampled_from(
                ["sgd", "momentum", "nesterov", "adam", "adam", "amsgrad", "adamw", "rmsprop", "rmsprop_centered"]
            )
        ),
        clip=draw(clips),
        schedule=draw(st.sampled_from([None, None, "exponential", "cosine", "piecewise"])),
        # 20 steps, the last of which has fewer rows.
        rows=19 * batch_size + draw(st.integers(2, batch_size)),
        batch_size=batch_size,
        seed=draw(st.integers(0, 2**16)),
        smoothing=draw(st.sampled_from([0.0, 0.1])),
        weighted=draw(st.booleans()),
    )


@st.composite
def fused_cases(draw: Any) -> Case:
    """A model that one kernel may train: it refuses where a block has too few registers for its units."""
    batch = draw(st.sampled_from([16, 16, 32, 64]))
    curves = st.sampled_from(["relu", "tanh", "sigmoid", "silu", "gelu", "elu", "leaky_relu", "linear"])
    ways = st.sampled_from(["inside", "after"])
    first = Block(draw(st.sampled_from([16, 32, 64, 96, 100, 128, 192])), draw(curves), draw(ways), 0.0, 0.0)
    above = st.builds(Block, st.integers(2, 48), curves, ways, st.just(0.0), st.just(0.0))
    return case_of(
        shape=(draw(st.integers(1, 200)),),
        first=draw(st.sampled_from(["flatten", "flatten", "normalization"])),
        blocks=(first, *draw(st.lists(above, max_size=3))),
        loss=draw(st.sampled_from(["sparse", "sparse_logits"])),
        outputs=draw(st.integers(2, 16)),
        optimizer=draw(st.sampled_from(["adam", "adam", "sgd", "momentum"])),
        schedule=draw(st.sampled_from([None, "exponential", "cosine"])),
        batch_size=batch,
        # The last batch may be a short one, which the stages take.
        rows=4 * batch + draw(st.sampled_from([0, 0, 5])),
        seed=draw(st.integers(0, 99)),
    )
