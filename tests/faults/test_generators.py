"""Scripts whose generators fail, block, end early or are given up end in time, and leave no thread behind.

What ends a script is the last thing that can happen in it; all else shares one, since to start one takes seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
import scripts

_HEAD = """
import gc, itertools, threading, time
import keras
import numpy as np
from flatout.data.batches.feed import feed

model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
made = []
steps = []
count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(step))

def batch(index):
    made.append(index)
    return np.full((8, 4), index, "float32"), np.zeros((8, 1), "float32")
"""


def start(body: str) -> subprocess.Popen[str]:
    return scripts.start(_HEAD + body)


_ENDS = """
source = feed(batch(index) for index in range(6))
history = model.fit(source, epochs=3, verbose=0, callbacks=[count, source.stop_when_exhausted()])
print(steps, len(history.history["loss"]), made)
steps.clear()


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, step, logs=None):
        self.model.stop_training = step == 2

def threads():
    # Keras' epoch iterator is part of a reference cycle.
    gc.collect()
    for _ in range(500):
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("flatout")]
        if not names:
            break
        time.sleep(0.01)
    return names

stopper = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
for callback, epochs in ((Stop(), 1), (stopper, 2)):
    arguments = {"steps_per_epoch": 5, "epochs": 9, "verbose": 0, "callbacks": [callback]}
    source = feed(batch(index) for index in itertools.count())
    history = model.fit(source, **arguments)
    assert len(history.epoch) == epochs, history.epoch
    source.close()
    print(threads())
    model.fit(feed(batch(index) for index in itertools.count()), **arguments)
    print(threads())


def batches():
    for index in itertools.count():
        if index == 5:
            raise KeyError("no such sample")
        yield batch(index)

source = feed(batches())
try:
    model.fit(source, steps_per_epoch=10, verbose=0, callbacks=[count])
except Exception:
    print("steps", len(steps))
    # TensorFlow reports errors of the source as its own.
    raise source.error from None
"""


@pytest.mark.backend("tensorflow")  # Which reports errors of the source as its own.
@pytest.mark.slow
def test_finite_stopped_and_failing_generators_end_with_what_the_user_should_know() -> None:
    process = start(_ENDS)
    output, errors = process.communicate(timeout=150)
    lines = output.strip().splitlines()
    # A finite generator is used once, and training stops with Keras' own warning.
    assert lines[0] == "[0, 1, 2, 3, 4, 5] 1 [0, 1, 2, 3, 4, 5]", errors
    assert errors.count("Your input ran out of data; interrupting training") == 1
    # Early stops end the thread, whether the feed is closed or only forgotten.
    assert lines[1:5] == ["[]"] * 4, errors
    # The traceback of an error shows the user's line, and training came as far as the batches went.
    assert process.returncode == 1
    assert errors.strip().splitlines()[-1] == "KeyError: 'no such sample'"
    assert ", in batches\n" in errors
    assert lines[5] == "steps 5"


# The threads are the same on all backends, and stock `fit` on tensorflow waits where it does not look at signals.
@pytest.mark.slow
@pytest.mark.backend("jax")
def test_ctrl_c_ends_a_script_whose_generator_is_blocked() -> None:
    process = start("""
def batches():
    for index in itertools.count():
        if index == 5:
            print("blocked", flush=True)
            time.sleep(600)
        yield batch(index)

with feed(batches()) as source:
    model.fit(source, steps_per_epoch=10, verbose=0)
""")
    assert process.stdout is not None
    while "blocked" not in process.stdout.readline():
        assert process.poll() is None
    time.sleep(0.5)
    start_of_end = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - start_of_end < 20
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
