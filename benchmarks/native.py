"""Stock Keras, flatout's engine of the backend and native kernels on the seed model, in one run.

    KERAS_BACKEND=jax python benchmarks/native.py --epochs 5 --json native.json

The same as `flatout bench native`, whose arguments it takes.
"""

from __future__ import annotations

import sys

from flatout.bench.bench_command import main

if __name__ == "__main__":
    raise SystemExit(main(["native", *sys.argv[1:]]))
