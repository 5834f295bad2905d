"""What a call must pass on a version of Keras that nobody has tested: a short run of it, compared with stock Keras.

It runs on copies of the model and on the first rows, twice: by Keras' own method and by flatout. Results, variables
and random numbers must be the same. All that Keras and the generators keep is put back afterwards.
"""

from __future__ import annotations

import contextlib
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.base.errors import FlatoutError, Refusal, reason
from flatout.base.options import Options, options
from flatout.base.report import recorded_apart
from flatout.base.warning import warn
from flatout.base.when_used import keras
from flatout.data.sources.description import ArraySource
from flatout.engines.rewind import generators_kept
from flatout.engines.select import engine_for
from flatout.seam import stock_methods as stock
from flatout.seam.compiled_parts import given_loss
from flatout.seam.layers import all_layers
from flatout.seam.model_copies import copied, keras_kept, seed_generators, tensorflow_seed_kept
from flatout.seam.versions import is_tested, tested_versions

from .planning.call_facts import Source, plan_call
from .planning.plan import CallFacts, Plan

# What a run leaves: each value with what is to be said if it differs.
Outcome = list[tuple[str, Any]]
_SEED = 20
# A wrong order, a lost update or another draw changes far more within a few steps; a GPU may round in another order.
_RELATIVE, _ABSOLUTE = 1e-3, 1e-5
# What was found, for each kind of model and method: a difference in words, or "".
_found: dict[Any, str] = {}
_lock = threading.RLock()


def plan_checked(
    method: str, model: Any, call: dict[str, Any], wishes: Options, conduct: stock.Conduct, source: Source | None = None
) -> tuple[Plan, Source | None]:
    """As `plan_call`; on a Keras that nobody has tested, what shall be accelerated is compared with stock Keras first.

    Stock Keras runs what differs from it, or what cannot be tried.
    """
    if is_tested(keras.__version__) or wishes.force:
        return plan_call(method, model, call, wishes, source)
    plan = Plan(CallFacts(method, keras.config.backend(), keras.__version__), "stock", "host")
    try:
        plan, source = plan_call(method, model, call, wishes, source)
        difference = _difference(method, model, call, source, conduct) if plan.accelerated else ""
    except (FlatoutError, Refusal):
        raise
    except Exception as error:  # Whatever we touch of Keras may be gone or have changed; stock Keras knows.
        difference = f"{type(error).__name__}: {error}"
    if difference:
        why = reason("keras_version", keras.__version__, difference)
        plan = replace(plan, engine="stock", data="host", reasons=(why,))
    return plan, source


def _difference(method: str, model: Any, call: dict[str, Any], source: Source | None, conduct: stock.Conduct) -> str:
    """What a short run by flatout does otherwise than stock Keras, in words; found once for each kind of model."""
    kind = _kind(method, model)
    with _lock:
        if kind in _found:
            return _found[kind]
        if not isinstance(source, ArraySource):
            return "nothing can be tried on data that are read batch by batch"
        short = _short_call(method, call, source)
        with _undone(), recorded_apart(), options(force=True, strict=False):
            theirs = _outcome(method, model, lambda copy: stock.original(method)(copy, **short))
            ours = _outcome(method, model, lambda copy: conduct(method, copy, (), short))
        difference = _found[kind] = _first_unlike(ours, theirs)
    verdict = f"differs ({difference}), so Keras runs it." if difference else "agrees, so it is accelerated."
    warn(
        f"Nobody has tested flatout with Keras {keras.__version__} yet (tested: {tested_versions()}). A short "
        f"`{method}` of a copy of {model.name} was compared with stock Keras': it {verdict}"
    )
    return difference


def _first_unlike(ours: Outcome, theirs: Outcome) -> str:
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return "the history has other keys, or the model other variables"
    return next((name for (name, one), (_, other) in zip(ours, theirs, strict=True) if not _is_close(one, other)), "")


def _kind(method: str, model: Any) -> tuple[Any, ...]:
    layers = tuple(map(type, all_layers(model)))
    return method, type(model), layers, type(getattr(model, "optimizer", None)), repr(given_loss(model))


def _short_call(method: str, call: dict[str, Any], source: ArraySource) -> dict[str, Any]:
    """The call on two batches and a part of a third."""
    batch_size = min(source.batch_size, source.rows)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(source.head(2 * batch_size + (batch_size + 1) // 2))
    short: dict[str, Any] = {"x": x, "batch_size": batch_size, "verbose": 0}
    if method != "predict":
        short.update(y=y, sample_weight=sample_weight)
    if method == "fit":
        short.update(epochs=2, shuffle=call["shuffle"])
        if call.get("validation_data") is not None:
            short["validation_data"] = (x, y) if sample_weight is None else (x, y, sample_weight)
    return short


def _outcome(method: str, model: Any, run: Callable[[Any], Any]) -> Outcome:
    """Run a new copy: its result, its variables if they are trained, and what comes next of every generator."""
    with keras_kept():  # So that the names of both copies are the same.
        seed_generators(_SEED)
        copy = copied(model)
        result = run(copy)
        of_backend = np.frombuffer(b"".join(engine_for(keras.config.backend()).generator_state()), np.uint8)
        of_keras = keras.ops.convert_to_numpy(keras.random.uniform((2,)))
        drawn = [random.random(), np.random.random_sample(), of_keras, of_backend]
        found: Outcome = [("random numbers are drawn otherwise", number) for number in drawn]
    if method != "fit":
        # What is built beside the result, such as slots of an optimizer, is no matter of results.
        return [*found, *((f"the result of `{method}` differs", part) for part in keras.tree.flatten(result))]
    found.extend((f"`{name}` of the history differs", values) for name, values in sorted(result.history.items()))
    for variable in (*copy.variables, *copy.optimizer.variables):
        found.append((f"the variable {variable.path} differs", keras.ops.convert_to_numpy(variable.value)))
    return found


def _is_close(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype.kind not in "fV":
        return bool(np.array_equal(one, other))
    return np.allclose(one.astype("float64"), other.astype("float64"), rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)


@contextlib.contextmanager
def _undone() -> Iterator[None]:
    """Have all generators afterwards as they are now; nothing is said."""
    backend = keras.config.backend()
    of_tensorflow = tensorflow_seed_kept() if backend == "tensorflow" else contextlib.nullcontext()
    with generators_kept(engine_for(backend)), of_tensorflow, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
