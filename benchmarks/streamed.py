"""Streamed data against resident data, and against what the bus can carry.

    KERAS_BACKEND=jax python benchmarks/streamed.py [NAME...] [--epochs 6] [--times 1]

Trains each model of `flatout bench` with its rows on the device and with its rows in host memory, sent in chunks ahead
of their use, in one process from the same seed. A third way trains a bare linear layer on wide rows, which does hardly
anything but wait for them: its rate is to be compared with that of copies from pinned memory, measured beside it.
Beginning an epoch costs some milliseconds, which count where it takes no more than fifty; `--times` takes the rows
several times over, as those of a data set that has to be streamed.
"""

from __future__ import annotations

import argparse
import statistics
import time

import keras
import numpy as np

import flatout
from flatout.bench.bench_device import device
from flatout.bench.comparison import train
from flatout.bench.workloads import WORKLOADS, Workload
from flatout.data.device.cuda_driver import cuda_driver
from flatout.data.device.pinned_memory import borrowed
from flatout.data.stream.chunks import CHUNK_BYTES

# Bytes of a row: one that a kernel fetches, and a picture of 224 by 224 pixels, which gets a copy of its own.
WIDTHS = (32_768, 150_528)
# Of a small data set an epoch is over before the bus is busy.
WIDE_BYTES = 24 * 2**30
# The rows of a step take the bus longer than the step takes the device: those of 8 MB do not on torch.
BYTES_PER_STEP = 16 * 2**20


def main() -> None:
    """Measure and print a line for each model, and one for the bus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: seed, convnet)")
    parser.add_argument("--epochs", type=int, default=6, help="the first is not counted (default: 6)")
    parser.add_argument("--times", type=int, default=1, help="how often each row is there (default: 1)")
    parser.add_argument("--bytes", type=int, default=WIDE_BYTES, help="of wide rows, for the bus (default: 24 GB)")
    parser.add_argument("--bus", action="store_true", help="only the bus")
    arguments = parser.parse_args()
    print(f"{keras.backend.backend()} on {device().name}")
    if not arguments.bus:
        print(f"{'model':<12}{'resident':>12}{'streamed':>12}{'share':>8}{'GB/s':>8}   same losses")
        for name in arguments.names or ("seed", "convnet"):
            _compare(WORKLOADS[name], arguments.epochs, arguments.times)
    if device().is_gpu:
        for width in WIDTHS:
            _bus(width, arguments.bytes // width, arguments.epochs)


def _compare(workload: Workload, epochs: int, times: int) -> None:
    steps = workload.gpu_steps if device().is_gpu else workload.cpu_steps
    x, y = keras.tree.map_structure(lambda rows: np.concatenate([rows] * times), workload.data(steps))
    steps *= times
    nbytes = sum(leaf.nbytes for leaf in [*keras.tree.flatten(x), y])
    # One engine for both: left to itself flatout trains the seed model natively where its rows are resident.
    engine = keras.backend.backend()
    runs = {data: train(engine, workload, x, y, epochs, epochs * 10, data=data) for data in ("resident", "streamed")}
    seconds = {data: statistics.median(run.epoch_seconds[1:]) for data, run in runs.items()}
    resident, streamed = (seconds[data] / steps * 1e6 for data in ("resident", "streamed"))
    same = runs["resident"].history == runs["streamed"].history
    print(
        f"{workload.name:<12}{resident:>9.1f} us{streamed:>9.1f} us{resident / streamed:>8.0%}"
        f"{nbytes / seconds['streamed'] / 1e9:>8.2f}   {same}",
        flush=True,
    )


def _bus(width: int, rows: int, epochs: int) -> None:
    x = np.empty((rows, width), np.uint8)
    x[:] = np.random.default_rng(0).integers(0, 256, width, np.uint8)
    y = np.zeros((rows, 1), np.float32)
    inputs = keras.Input((width,), dtype="uint8")
    outputs = keras.layers.Dense(1)(keras.ops.mean(keras.ops.cast(inputs, "float32"), axis=-1, keepdims=True))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    marks: list[float] = []
    timer = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: marks.append(time.perf_counter()))
    copied = _pinned_rate()
    with flatout.options(force=True, data="streamed"):
        flatout.fit(model, x, y, batch_size=BYTES_PER_STEP // width, epochs=epochs, verbose=0, callbacks=[timer])
    # The faster of both times: what else the machine does varies.
    copied = max(copied, _pinned_rate())
    # After the first epoch rows are fetched another way; after the second they were once.
    seconds = statistics.median(np.diff(marks)[1:])
    moved = x.nbytes / seconds / 1e9
    print(
        f"rows of {width:,} bytes: {moved:.1f} GB/s shuffled; copies from pinned memory {copied:.1f} GB/s; "
        f"{moved / copied:.0%}",
        flush=True,
    )


def _pinned_rate() -> float:
    """GB/s of bare copies of a long chunk's size from pinned memory, by the CUDA driver itself."""
    driver, nbytes = cuda_driver(), 2 * CHUNK_BYTES
    rates: list[float] = []
    with borrowed(nbytes, pin=True) as slab:
        slab.memory[:] = 1
        target, stream = driver.allocate(nbytes), driver.stream()
        for _ in range(30):
            began = time.perf_counter()
            driver.copy_to_device(target, slab.memory.ctypes.data, nbytes, stream)
            driver.synchronize(stream)
            rates.append(nbytes / (time.perf_counter() - began) / 1e9)
        driver.free(target)
        driver.destroy_stream(stream)
    return statistics.median(rates[5:])


if __name__ == "__main__":
    main()
