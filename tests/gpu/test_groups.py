"""On a GPU: a fit by worker processes comes out as one by this process."""

from __future__ import annotations

from typing import Any

import group_cases as cases
import keras
import numpy as np
import pytest

import flatout

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("full_precision", "forced")]

BACKEND = keras.config.backend()


def trained(workers: int, launcher: str | None, **arguments: Any) -> Any:
    model = cases.network()
    with flatout.options(launcher=launcher):
        flatout.fit(model, epochs=3, verbose=0, workers=workers, **arguments)
    return model


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("data", ["arrays", "pydataset"])
def test_processes_share_the_gpu(workers: int, data: str) -> None:
    if BACKEND == "jax" and workers > 1:
        pytest.skip("jax needs a GPU for each process")
    arguments: Any = {"x": cases.X, "y": cases.Y, "batch_size": cases.BATCH, "validation_split": 0.2}
    if data == "pydataset":
        arguments = {"x": cases.Batches()}
    one, other = trained(1, None, **arguments), trained(workers, "local", **arguments)
    assert [why.code for why in flatout.explain()[-1].reasons][-1] == "group"
    # A process of jax has its own default precision, which is TF32.
    tolerance = 1e-5 if BACKEND == "torch" else 2e-3
    for name, values in one.history.history.items():
        np.testing.assert_allclose(other.history.history[name], values, rtol=tolerance, atol=tolerance, err_msg=name)
    for ours, theirs in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=tolerance)


@pytest.mark.backend("jax")
def test_more_processes_than_gpus_are_refused() -> None:
    with pytest.raises(flatout.InvalidOption, match="needs one each"):
        trained(64, "local", x=cases.X, y=cases.Y)
