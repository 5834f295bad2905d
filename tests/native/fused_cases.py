"""Models that the fused form serves, and how they are trained with it; without hypothesis, as `cases.py`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from flatout.native.fused.fused_plan import Precision
from flatout.native.run.fused_runner import candidates
from flatout.native.run.session import Session, logs_of
from flatout.native.staged.staged_program import staged_program

from .cases import Block, Case
from .parity import variables

SMALL = Case(
    shape=(32,),
    first="flatten",
    blocks=(Block(32, "relu", "inside", 0.0, 0.0),),
    loss="sparse",
    outputs=10,
    optimizer="adam",
    clip=None,
    schedule=None,
    rows=20 * 16,
    batch_size=16,
    seed=3,
    smoothing=0.0,
    weighted=False,
)


def case_of(**changes: Any) -> Case:
    return Case(**{**vars(SMALL), **changes})


def fused_session(
    case: Case, launcher: Any, precision: Precision = "exact", cluster: int | None = None, model: Any = None
) -> Session:
    model = case.build() if model is None else model
    x, y = case.data()
    model._symbolic_build(data_batch=(x[: case.batch_size], y[: case.batch_size]))
    session = Session(staged_program(model, "train", case.batch_size, x.dtype.name, y.dtype.name, False), launcher)
    plan = (
        None
        if cluster is None
        else next(one for one in candidates(session.launcher, session.program, precision) if one.cluster == cluster)
    )
    session.fuse(precision, plan)
    session.bind(x, y)
    return session


def by_fused(case: Case, launcher: Any, **how: Any) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, float]]:
    session = fused_session(case, launcher, **how)
    model = session.program.model
    session.run("train", 0, 1, case.rows)
    seen = {1: variables(model)}
    totals = session.run("train", 1, -(-case.rows // case.batch_size), case.rows)
    assert session.fused is not None, session.form
    logs = {name: float(value) for name, value in logs_of(session.program.binding, totals[-1]).items()}
    return {**seen, 20: variables(model)}, logs


OTHERS = {
    "rescaling": case_of(first="rescaling", shape=(5, 9), outputs=16, blocks=(Block(16, "tanh", "inside", 0.0, 0.0),)),
    "normalization": case_of(first="normalization", loss="sparse_logits", outputs=3, schedule="cosine"),
    "sgd": case_of(optimizer="sgd", shape=(70,), blocks=(Block(16, "gelu", "inside", 0.0, 0.0),), outputs=5),
    "momentum": case_of(optimizer="momentum", batch_size=32, rows=20 * 32, outputs=13),
    "wide batch": case_of(batch_size=64, rows=20 * 64, blocks=(Block(64, "elu", "inside", 0.0, 0.0),), outputs=8),
    "48 units a block": case_of(blocks=(Block(96, "relu", "inside", 0.0, 0.0),), optimizer="sgd", outputs=11),
    "32 units a block": case_of(blocks=(Block(64, "silu", "inside", 0.0, 0.0),), shape=(50,), first="normalization"),
    "five tiles": case_of(shape=(80,), blocks=(Block(64, "sigmoid", "inside", 0.0, 0.0),), outputs=2),
}


def hidden(*widths: int, curves: tuple[str, ...] = ("relu",)) -> tuple[Block, ...]:
    """Hidden layers with these widths, and activations in turns."""
    return tuple(Block(width, curves[n % len(curves)], "inside", 0.0, 0.0) for n, width in enumerate(widths))


# With several hidden layers: the size of the cluster, and the case.
STACKS = {
    "two layers": (4, case_of(shape=(20,), blocks=hidden(32, 16, curves=("relu", "tanh")), outputs=3)),
    "widths that fill no tiles": (
        4,
        case_of(
            shape=(30,), blocks=hidden(27, 12, 20, curves=("gelu", "relu", "silu")), outputs=5, first="normalization"
        ),
    ),
    "16 and 32 units a block": (
        2,
        case_of(shape=(20,), blocks=hidden(32, 64, curves=("elu", "sigmoid")), outputs=13, optimizer="momentum"),
    ),
    "six layers": (
        2,
        case_of(shape=(10,), blocks=hidden(16, 8, 16, 16, 8, 16, curves=("tanh",)), outputs=2, loss="sparse_logits"),
    ),
}


class Pixels(Case):
    """uint8 rows and one factor: the halves are the pixels themselves."""

    def data(self) -> tuple[np.ndarray, ...]:
        random = np.random.default_rng(self.seed)
        x = random.integers(0, 256, (self.rows, *self.shape)).astype("uint8")
        return x, random.integers(0, self.outputs, self.rows).astype("uint8")

    def build(self) -> Any:
        keras.utils.set_random_seed(self.seed)
        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input(self.shape),
                layers.Rescaling(1 / 255),
                layers.Flatten(),
                *(layers.Dense(block.width, activation="relu") for block in self.blocks),
                layers.Dense(self.outputs, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model
