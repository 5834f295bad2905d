"""What can go wrong, and why a run is not accelerated.

A refusal to accelerate is no error: it is a `Reason`, kept in the plan and shown by `flatout.explain()`.
Inside the library it travels as `Refusal`, which never reaches the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class FlatoutError(Exception):
    """Base class of every error that flatout raises itself."""


class InvalidOption(FlatoutError, ValueError):
    """An option or an environment variable has a value that flatout does not know."""


class FallbackRefused(FlatoutError):
    """Strict mode forbids stock Keras, and flatout cannot run this call exactly."""


class MissingExtra(FlatoutError, ImportError):
    """A package that only some features need is not installed."""


class TableError(FlatoutError, ValueError):
    """Keys or columns of a `flatout.Table` are unfit, or keys were looked up that it does not have."""


class UnreadableFile(FlatoutError, ValueError):
    """A file of rows cannot be read: another format, damaged, truncated, of an unfit dtype or unlike its shards."""


class Unparsable(FlatoutError, ValueError):
    """A file that `flatout check` was given is no Python."""


class CannotRun(FlatoutError):
    """A file cannot be imported for `flatout check --run`, or the process has another backend."""


class CannotVectorize(FlatoutError):
    """`vectorize(strict=True)` found no array form of a loss that could be verified."""


class CannotLower(FlatoutError, ValueError):
    """`flatout.lower` was given a model for which there are no kernels.

    Attributes:
        reason: Why, with a code and a sentence.
    """

    def __init__(self, why: Reason):
        super().__init__(f"{why} The engine of the backend trains it: flatout.fit(model, ...).")
        self.reason = why


class WorkerDied(FlatoutError, RuntimeError):
    """A worker process ended without being asked to, such as one that the kernel killed for its memory."""


class DiagnosisFailed(FlatoutError):
    """A fit could not be measured; `x` is its data, with what was read of a generator put back."""

    def __init__(self, message: str, x: Any = None):
        super().__init__(message)
        self.x = x


class GroupFailed(FlatoutError, RuntimeError):
    """A worker process of a fit with `workers=` failed, was killed or hangs; all of them have ended.

    Attributes:
        rank: Its number, from 0 on.
    """

    def __init__(self, rank: int, size: int, how: str):
        super().__init__(f"Worker {rank} of {size} (0 to {size - 1}) failed, and the others were ended. {how}")
        self.rank = rank


@dataclass(frozen=True)
class Reason:
    """Why a call went to stock Keras, or took a slower way.

    Attributes:
        code: A stable name, to test against: `"generator"`, `"run_eagerly"`, ...
        message: One sentence for the user.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


# Every code that flatout can give, with its sentence; `{}` takes a detail.
REASONS = {
    "disabled": "flatout is switched off (FLATOUT=0).",
    "asked_for_stock": "engine='stock' was asked for.",
    "backend": "The Keras backend is {}; flatout accelerates jax, tensorflow and torch.",
    "keras_version": "Keras {} is not tested, and a trial of this call fell through: {} (FLATOUT_FORCE=1 overrides).",
    "self_checked": "Keras {} is outside the tested {}: a short run of a copy is compared with stock Keras first.",
    "run_eagerly": "The model was compiled with run_eagerly=True, which asks for plain Python steps.",
    "jit_compile_off": "The model cannot be compiled on jax: {}.",
    "distribution": "A {} is active; its steps are left to Keras.",
    "indivisible": "Batches of {} rows, or the last one, cannot be divided among the {} devices of keras.distribution.",
    "tf_distribute": "A tf.distribute strategy is active; its replicated steps are left to Keras.",
    "nnx": "Keras runs with Flax NNX variables, which have their own state handling.",
    "custom_step_function": "{} was replaced by the user, so its own step function must run.",
    "torch_compile": "The model was compiled with jit_compile=True, which asks for torch.compile.",
    "source": "x is {}, which flatout cannot read.",
    "batches": "{} is read batch by batch, in the background.",
    "read_anew": "A generator is read by stock Keras, which begins with its first two batches every time.",
    "placement": "data='{}' was asked for, which is not to be had for {}.",
    "sparse": "{} holds sparse, ragged or string values, which are converted batch by batch.",
    "unbuilt": "The model has no weights yet; stock Keras builds it on the first batch.",
    "no_epochs": "There is no epoch to train: epochs={}, initial_epoch={}.",
    "no_rows": "There are no rows; what stock Keras makes of that is left to stock Keras.",
    "steps": "steps={} is no number of steps; what stock Keras makes of it is left to stock Keras.",
    "shuffle_batch": "shuffle='batch' draws random numbers at every step, between those of {}.",
    "memory": "The data take {} and only {} of memory may be used for them: they are sent in chunks.",
    "decoded_to_disk": (
        "The tables take {} and only {} of host memory may be used for them: they are decoded once into a temporary "
        "file (TMPDIR), from where shuffled rows are read, and which is gone when they are no longer used."
    ),
    "small": "The work is small: {} steps would not repay compiling them ({}; FLATOUT_FORCE=1 overrides).",
    "divided": "Each batch is divided among {} devices.",
    "group": "Each batch is divided among {} process(es), started by the {} launcher.",
    "in_group": "A step that several processes share is run as it is.",
    "native_workers": "Native kernels train on one device, and several were asked for.",
    "nothing_to_save": (
        "The step of stock Keras reads {} itself: there is nothing to save in it (FLATOUT_FORCE=1 overrides)."
    ),
    "untraceable": "{} could not be compiled: {}",
    "data_dependent": "{} reads tensor values in Python, so its graph differs from step to step: {}",
    "side_effects": "{} does more than compute: {}; it runs as Python at every step.",
    "vectorized": "{} runs as array code, verified against its loops in value and gradient.",
    "not_vectorized": "{} runs as it is written: {}",
    "loss_loop": "{} loops in Python over its data ({}), which is slow to compile or to run; see flatout.vectorize.",
    "loss_error": "{} cannot be compiled here: {} See flatout check.",
    "native_device": "The native engine cannot run here: {}.",
    "native_model": "The native engine cannot run this model: {}.",
    "native_layer": "The native engine cannot run the layer {}: {}.",
    "native_loss": "The native engine cannot run the loss of {}: {}.",
    "native_metric": "The native engine cannot run the metric {}: {}.",
    "native_optimizer": "The native engine cannot run the optimizer {}: {}.",
    "native_form": "The native engine trains by {}.",
    "native_data": "The native engine cannot take these data: {}.",
    "recurrent_kernels": "All time steps in one kernel: {}.",
    "kernels_left": "Keras' own code runs: kernels of flatout's could not be compiled for this device ({}).",
    "recurrent_layer": "Keras' own code runs the layer {}: {}.",
    "not_mapped": "Models of this architecture run beside each other, not mapped: {}",
    "compiled_behind": "The step was compiled behind the run and exchanged after {} steps: {}.",
    "not_compiled": "The recorded step runs as it is, not compiled behind the run: {}.",
    "no_gain": "A step of this model takes so long that nothing else counts (FLATOUT_FORCE=1 overrides).",
}


def reason(code: str, *details: object) -> Reason:
    """Build the `Reason` for a code of `REASONS`."""
    return Reason(code, REASONS[code].format(*details))


class Refusal(Exception):
    """Carries a `Reason` from where it is found to the planner; stock Keras runs.

    Attributes:
        reason: Why.
        x: What stock Keras shall take in the place of `x`, of which something has been read; or None.
    """

    def __init__(self, why: Reason, x: Any = None):
        super().__init__(str(why))
        self.reason = why
        self.x = x
