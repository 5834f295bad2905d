"""Our parity tests and Keras' own tests of trainers, on the newest patch of each minor version of Keras.

    make keras-versions                                     what pip has of the tested range, on three backends
    python tests/keras_versions.py 3.12 --backends torch    one of them
    python tests/keras_versions.py ~/keras                  a checkout of Keras: its main branch, or 3.13 and 3.14, of
                                                            which pip has no tests
    python tests/keras_versions.py 3.15 --backends jax --with jax==0.8.3 jaxlib==0.8.3    another backend, too

Each version lies in a folder of its own, `.venv/keras==VERSION`, before the installed one on the path. Prints a table,
and fails if a test failed that passes with stock Keras.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from importlib.metadata import version as installed
from pathlib import Path

from flatout.seam.versions import TESTED_KERAS

ROOT = Path(__file__).parent.parent
BACKENDS = ("jax", "tensorflow", "torch")
# Keras' tolerances are far above what optimizations change. Models that ask for torch.compile are stock Keras' anyway.
CHEAP = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "TORCHDYNAMO_DISABLE": "1"}
# Options of pytest, what to run, and its environment.
SUITES = {
    "parity": ([], ["tests/numerics/test_parity.py"], {}),
    "Keras' trainers": (
        ["-p", "fewer_collections", "-p", "flatout.runner.pytest_plugin"],
        ["--pyargs", "keras.src.trainers.trainer_test"],
        {"FLATOUT_FORCE": "1", **CHEAP},
    ),
}


def tested_minors() -> list[str]:
    (major, low), (_, beyond) = TESTED_KERAS
    return [f"{major}.{minor}" for minor in range(low, beyond)]


def folder_of(package: str) -> Path | None:
    """Where a version of a package lies: what pip installs of it without the rest; None if pip has none."""
    folder = ROOT / ".venv" / package.removesuffix(".*")
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), package]
        if subprocess.run(pip, capture_output=True).returncode:
            return None
    return folder


def keras_folder(version: str) -> Path | None:
    is_checkout = (Path(version) / "keras").is_dir()
    return Path(version).resolve() if is_checkout else folder_of(f"keras=={version}.*")


def exact_version(folder: Path) -> str:
    text = (folder / "keras" / "src" / "version.py").read_text()
    found = re.search(r'__version__ = "(.*)"', text)
    return found[1] if found else "unknown"


def outcome(folders: list[Path], backend: str, suite: str, workers: int) -> tuple[str, bool]:
    """How many tests passed, in words, and whether none failed that passes with stock Keras."""
    options, targets, environment = SUITES[suite]
    if "--pyargs" in targets and not (folders[0] / f"{targets[-1].replace('.', '/')}.py").exists():
        return "not in its wheel", True
    environment = {**environment, "KERAS_BACKEND": backend}
    parallel = ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else ["-p", "no:xdist"]
    done = run_pytest([*parallel, *options, *targets], folders, environment)
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout[-300:])}
    words = f"{counts.get('passed', 0)} passed"
    if not done.returncode:
        return words, True
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    if failed and not counts.get("error") and suite != "parity":
        # An old Keras and a new library that it reads from may not go together.
        stock = run_pytest(["-p", "no:xdist", *options, *failed], folders, {**environment, "FLATOUT": "0"})
        if set(re.findall(r"^FAILED (\S+)", stock.stdout, re.MULTILINE)) == set(failed):
            return f"{words}, {len(failed)} fail on stock Keras too", True
    print(done.stdout[-4000:], flush=True)
    return f"{words}, {len(failed) or '?'} failed", False


def run_pytest(
    arguments: list[str], folders: list[Path], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, [*folders, ROOT / "src", ROOT / "tests"]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment, "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=tested_minors(), help="minor versions, or folders with keras/")
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--suites", nargs="+", default=list(SUITES), choices=list(SUITES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--with", nargs="+", default=[], dest="others", metavar="PACKAGE==VERSION")
    given = parser.parse_args()
    others = [folder_of(package) for package in given.others]
    if None in others:
        parser.error(f"pip cannot install all of {', '.join(given.others)}")
    named = dict(package.split("==") for package in given.others)
    rows, good = [], True
    for version in given.versions:
        folder = keras_folder(version)
        if folder is None:
            rows.append(f"| {version} | | " + " | ".join("pip has none" for _ in given.suites) + " | |")
            continue
        for backend in given.backends:
            started = time.perf_counter()
            outcomes = [
                outcome([folder, *filter(None, others)], backend, suite, given.workers) for suite in given.suites
            ]
            good = good and all(passed for _, passed in outcomes)
            cells = " | ".join(words for words, _ in outcomes)
            rows.append(
                f"| {exact_version(folder)} | {backend} {named.get(backend) or installed(backend)} | {cells} "
                f"| {time.perf_counter() - started:.0f} s |"
            )
            print(rows[-1], flush=True)
    print(f"\nPython {sys.version.split()[0]}\n\n| Keras | backend | {' | '.join(given.suites)} | time |")
    print("| --- |" * 2 + " ---: |" * (len(given.suites) + 1))
    print("\n".join(rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
