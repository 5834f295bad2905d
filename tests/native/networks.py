"""Cases drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from .cases import CURVES, LOSSES, Block, Case

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
