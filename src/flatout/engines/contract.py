"""What the conductor asks of an engine: place data, prepare a program, run steps of it.

There is one engine for each Keras backend, and the native one, which stands upon them. Above this file nobody asks
which one it is. What is written out here serves the engines that have nothing else to do there.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from flatout.base.errors import Reason
from flatout.data.device.sinks import MakeSink
from flatout.data.files.page_cache import available_memory
from flatout.data.stream.sender import Landing
from flatout.seam.processes.divided_calls import own_rows

Task = Literal["train", "test", "predict"]
# A nested structure (tuple, list, dict) of arrays, as Keras passes it to `train_step`.
Structure = Any
# For a caller who keeps all outputs of predict anyway.
OUTPUT_BYTES_PER_CHUNK = 256 * 2**20


@dataclass(frozen=True)
class Company:
    """Models that are about to train beside each other on the device.

    Attributes:
        models: How many; one, but for `fit_many`.
        kept: What their programs make of the rows that all of them take, by whatever tells it from others.
    """

    models: int = 1
    kept: dict[Any, Any] = field(default_factory=dict)


_company: contextvars.ContextVar[Company | None] = contextvars.ContextVar("flatout_company", default=None)


def company() -> Company:
    """In which company a program is prepared."""
    return _company.get() or Company()


@contextlib.contextmanager
def in_company(models: int) -> Iterator[None]:
    """Prepare and run programs of so many models, over the same rows."""
    token = _company.set(Company(models))
    try:
        yield
    finally:
        _company.reset(token)


class OwnStream:
    """Entered while the host works for one of several models that a device trains; this one has nothing to enter."""

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return

    def join(self) -> None:
        """Have everybody see what was done in it."""


class StepProgram(Protocol):
    """`K` times the model's own step per dispatch, over rows that live on the device.

    A program belongs to one model and one task. Steps are numbered from 0 within the rows that it holds; step `i` takes
    the rows `order[i * batch_size : (i + 1) * batch_size]`, the last one possibly fewer.

    Attributes:
        engine: The name of the engine whose program it is.
        unit: A chunk whose length is a multiple of this runs best; any other length is right too.
        pays: False if nothing is to be gained: the step takes so long that Keras' own overhead is lost in it.
        longest: The most steps that `run` may be asked for at once, whole groups of `steps_per_execution`; or None.
        reasons: Why a slower form than the usual one was taken; often empty.
        runs_beside_others: Whether a device of its own takes the steps, beside those of other models' programs.
    """

    engine: str
    unit: int = 1
    pays: bool = True

    @property
    def runs_no_python(self) -> bool:
        """Whether its passes run none of the user's Python, which could see what callbacks heard."""
        return False

    @property
    def runs_beside_others(self) -> bool:
        return False

    @property
    def longest(self) -> int | None: ...
    @property
    def reasons(self) -> tuple[Reason, ...]: ...
    def renew(self) -> None:
        """Look again at the Python of the model where stock Keras would; callbacks of the user may have changed it.

        Backends that trace do so at the first step, and never again.
        """
        return

    def look(self) -> None:
        """The same where an epoch begins inside a pass, unless it was just done."""
        return

    def expect(self, steps: int) -> None:
        """So many steps are to come in all, as far as is known: what takes long to make ready may be worth it."""
        return

    def compile_ahead(self, every_step: bool) -> None:
        """Begin to compile all that a pass over the rows held needs; asked of an engine that `compiles_ahead`.

        Nothing of the user's may run between this and the pass: the model's Python is read here.
        """
        return

    def replace(self, data: Structure, rows: int, batch_size: int, filled: int | None = None) -> None:
        """Take other rows in the place of those held, in the order in which they are; only the first may be `filled`.

        Their number, shapes and batch size may be new; what they need is then compiled. Rows of the same shapes take
        the place of the last ones at once.
        """
        ...

    def begin_pass(self, order: np.ndarray | None) -> None:
        """Take the row numbers of a new pass over the data; None means 0, 1, 2, ..."""
        return

    def run(self, start: int, stop: int, every_step: bool) -> Any:
        """Run the steps `start` to `stop - 1`.

        May return before the device is done; whoever reads the logs then waits. With `every_step` the model's variables
        have the new state, or Keras' own way to ask for it works; else they need not have it before `end_pass`.

        Returns:
            For "train" and "test": the logs of each step, a list of `stop - start` dicts, if `every_step`,
            else a list with the last step's logs alone. For "predict": a list with each step's outputs,
            as NumPy arrays.
        """
        ...

    def end_pass(self) -> None:
        """Put all state back into the model's variables."""
        return

    def keep_state(self) -> None:
        """As `end_pass`, where nobody looks at the variables before the next pass, but resets those of the metrics."""
        self.end_pass()

    def follows(self, trained: StepProgram) -> bool:
        """Whether the next pass can be launched behind the steps of a program whose pass has not ended.

        If so it takes the weights where that program has them, and the logs of both are to be had afterwards.
        """
        return False

    @property
    def runs_ahead(self) -> bool:
        """Whether another pass over the rows can be launched before anything is known of the last one.

        It must be launched at once, as the last one was: all rows by one `run`. The logs of both are to be had
        afterwards.
        """
        return False

    def settle(self, logs: Any) -> bool:
        """Wait for the steps whose logs these are, if they may have failed.

        Returns:
            False if they were taken again, whoever asks first: a validation that was launched behind them must be, too.
        """
        return True


class Engine(Protocol):
    """Runs programs on one backend.

    Attributes:
        name: As the user names it.
        finalizes_after_errors: Whether stock Keras writes averaged weights back even after an error.
        chunk_stretch: Each length of a chunk is that many times the next shorter one: less where compiling for one more
            is cheap and a single step is dear.
        compiles_ahead: Whether programs are compiled beside each other and beside Python, and preparing a validation
            draws no random number.
        peeks_to_build: Whether stock Keras takes a batch from the data to build a model before training, and so draws
            random numbers.
        program: Makes a program of the arguments of `prepare`.
        make_sink: A `MakeSink` that casts to the dtype `cast_to`.
    """

    name: str
    program: Callable[..., StepProgram]
    make_sink: Callable[..., Any]
    finalizes_after_errors: bool = False
    chunk_stretch: int = 8
    compiles_ahead: bool = False
    peeks_to_build: bool = True

    @property
    def compiler(self) -> str:
        """What compiles, and its version."""
        return self.name

    @property
    def devices(self) -> int:
        """How many devices of this process a step can be divided among."""
        return 1

    @property
    def processes(self) -> int:
        """How many processes of this machine could have a device of their own."""
        return 1

    @property
    def shares_devices(self) -> bool:
        """Whether several processes of a group may use one device."""
        return True

    def own_rows(self, model: Any) -> Callable[[int], slice] | None:
        """Which rows of x this process needs of a batch of so many; None for all."""
        return own_rows(model)

    def follows(self, distribution: Any) -> bool:
        """Whether steps are divided among devices as a `keras.distribution` of the user's says."""
        return False

    @property
    def keeps_programs(self) -> bool:
        """Whether what stock Keras and the engine compile is found again on disk by another process."""
        return False

    @property
    def reuses_memory(self) -> bool:
        """Whether the memory of arrays that were sent may be written again: not on a CPU, where nothing is copied."""
        ...

    def begin_epoch(self, model: Any, task: Task) -> None:
        """What the backend's own loop does to the model before the first step of an epoch."""
        return

    def end_epoch(self, model: Any, task: Task) -> None:
        """What it does after the last step."""
        return

    def end_run(self, model: Any) -> None:
        """What the backend's own loop does to the model when all is over."""
        return

    def reset_metrics(self, model: Any) -> None:
        model.reset_metrics()

    def epoch_logs(self, model: Any, logs: Any) -> dict[str, Any]:
        """The metrics' results, or the last step's logs where those have other names, as Keras chooses."""
        return dict(model._get_metrics_result_or_logs(logs))

    def generator_state(self) -> tuple[bytes, ...]:
        """The states of random generators outside the model's variables."""
        return ()

    def set_generator_state(self, state: tuple[bytes, ...]) -> None:
        return

    def place(self, inputs: Structure) -> Structure:
        """Put whole arrays on the device, converted as Keras converts each batch of them."""
        ...

    def sink(self, dtype: str) -> MakeSink:
        """Makes an array of this dtype on the device, to be filled piece by piece from files."""
        return functools.partial(self.make_sink, cast_to=dtype)

    def send(self, arrays: Structure) -> Structure:
        """Put NumPy arrays on the device, from any thread, beside what runs there.

        When it returns, the arrays are on the device, and their memory may be written again if `reuses_memory`.
        """
        ...

    @property
    def landing(self) -> Landing | None:
        """Arrays on the device for rows that come there past the backend; None where none can."""
        return None

    def mark(self, values: list[Any]) -> Callable[[], object]:
        """What waits until these values are computed, whatever is dispatched after them."""
        ...

    def stream_of_its_own(self) -> OwnStream:
        """For one of several models whose programs run beside others."""
        return OwnStream()

    def free_memory(self) -> int | None:
        """Bytes free on the device, or None if nobody can say."""
        return available_memory()

    def prepare(
        self,
        model: Any,
        task: Task,
        data: Structure,
        rows: int,
        batch_size: int,
        any_length: bool = False,
        output_bytes: int = OUTPUT_BYTES_PER_CHUNK,
    ) -> StepProgram:
        """Compile the model's step; changes no state of the model and draws no random number.

        Args:
            model: Built and compiled.
            task: Which of its steps.
            data: Placed rows, as `place` or `send` returned them.
            rows: How many there are.
            batch_size: Rows of a step.
            any_length: Stock Keras knows no fixed length of a batch here, which is a matter of results to TensorFlow.
            output_bytes: Outputs of predict leave the device in pieces of about this size.

        Raises:
            Refusal: The step cannot be compiled; stock Keras must run. Nothing has been changed.
        """
        return self.program(model, task, data, rows, batch_size, any_length, output_bytes)


def is_on_gpu(leaf: Any) -> bool:
    """Whether an array of any library lives in the memory of a CUDA device."""
    kinds_of_cuda_memory = (2, 13)
    return hasattr(leaf, "__dlpack_device__") and int(leaf.__dlpack_device__()[0]) in kinds_of_cuda_memory


def in_short(error: Exception) -> str:
    """An error in a line: its type, and the first of its own lines, not that which Keras puts before an error."""
    text = re.sub(r"\x1b\[\d*m|^Exception encountered when calling .*$", "", str(error), flags=re.MULTILINE)
    first = (text.strip() or str(error).strip()).partition("\n")[0]
    return f"{type(error).__name__}: {first[:300]}"


def steps_per_piece(nbytes: int, output_bytes: int, group: int, unit: int = 1) -> int:
    """Steps of predict, of `nbytes` each, whose outputs leave the device together, about `output_bytes` of them.

    A piece holds whole ones of `group`, the model's `steps_per_execution`, and of `unit` too, if `group` lets it.
    """
    steps = max(unit, output_bytes // max(1, nbytes) // unit * unit)
    return max(group, steps // group * group)
