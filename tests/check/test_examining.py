"""The codes that stand beside a loss are reported; where there is nothing to say, nothing is said."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from loss_marks import losses_in

from flatout.check.examining.examine import check_file, check_paths
from flatout.check.rules.rule import BACKENDS, Backend
from flatout.pysource.source_file import Project

pytestmark = pytest.mark.backend("jax")  # The source is read, not run.
_CLEAN = Path(__file__).parent / "cases" / "clean.py"
_CHECKED, _REWRITTEN = Path(__file__).parent / "losses", Path(__file__).parents[1] / "vectorize" / "losses"
# Values that are read on the way, and selections, go with a habit.
_ON_THE_WAY = {"FO101", "FO102", "FO108", "FO201", "FO202", "FO205", "FO401"}


@pytest.mark.slow
@pytest.mark.parametrize("path", [*_CHECKED.glob("[!c]*.py"), *_REWRITTEN.glob("*.py")], ids=lambda path: path.stem)
def test_the_codes_beside_a_loss_are_reported(path: Path) -> None:
    found = check_paths([path], "torch")
    for loss in losses_in(path.parent):
        if loss.file != path.stem or loss.expected == "refused":
            continue
        mine = [one for one in found if one.function.split(".")[0] == loss.name]
        for wanted in loss.codes:
            told = {one.code for one in mine}
            assert told & set(wanted.split("|")), f"{loss.name}: {wanted} is missing among {sorted(told)}"
        loud = {one.code for one in mine if one.severity != "info"}
        assert {code for code in loud if not any(code in wanted for wanted in loss.codes)} <= _ON_THE_WAY, loss.name


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(_CHECKED.glob("clean_*.py")), ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", BACKENDS)
def test_clean_losses_raise_no_alarm(path: Path, backend: Backend) -> None:
    assert [one for one in check_paths([path], backend) if one.severity != "info"] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_clean_losses_are_silent(backend: Backend) -> None:
    assert check_paths([_CLEAN], backend) == []


def test_more_than_thirty_of_them_were_examined() -> None:
    roots = check_file(Project(), _CLEAN, "jax", {})
    assert len([root for root in roots if root.kind in ("loss", "metric")]) >= 30
    assert {root.kind for root in roots} == {"loss", "metric", "step", "callback", "loop"}
    assert not {"plot_predictions", "host_rmse", "get_loss"} & {root.name for root in roots}


@pytest.mark.parametrize("folder", ["losses", "metrics"])
def test_keras_own_losses_and_metrics_are_silent(folder: str) -> None:
    spec = importlib.util.find_spec("keras")
    assert spec is not None
    assert spec.origin is not None
    files = [path for path in (Path(spec.origin).parent / "src" / folder).glob("*.py") if "_test" not in path.name]
    findings: dict[tuple[str, str, int, int], object] = {}
    project = Project()
    roots = [root for path in files for root in check_file(project, path, "torch", findings)]  # type: ignore[arg-type]
    assert len(roots) > 20
    assert list(findings.values()) == []


@pytest.mark.slow
@pytest.mark.backend("torch")
def test_flatouts_own_source_is_silent() -> None:
    import flatout

    assert check_paths([Path(flatout.__file__).parent], "jax") == []


_BRANCHES = {
    "if": "if backend() == 'jax':\n{}\nelse:\n{}",
    "elif": "if backend() == 'torch':\n    pass\nelif backend() == 'jax':\n{}\nelse:\n{}",
    "try": "try:\n    import numba\n{}\nexcept ImportError:\n{}",
    "match": "match backend():\n  case 'jax':\n{}\n  case _:\n{}",
}
_FUNCTION = "    def {name}(y_true, y_pred):\n        return {value}"
_CLASS = "    class {name}(keras.losses.Loss):\n        def call(self, y_true, y_pred):\n            return {value}"
_LAMBDA = "    {name} = lambda y_true, y_pred: {value}"
_SLOW, _QUICK = "sum(ops.sum(y_true[i] - y_pred[i]) for i in range(len(y_true)))", "ops.mean(y_true - y_pred)"


@pytest.mark.parametrize("order", [(_SLOW, _QUICK), (_QUICK, _SLOW)], ids=["first", "last"])
@pytest.mark.parametrize("defined", [_FUNCTION, _CLASS, _LAMBDA], ids=["function", "class", "lambda"])
@pytest.mark.parametrize("branches", _BRANCHES)
def test_every_definition_of_a_name_is_read(
    tmp_path: Path, branches: str, defined: str, order: tuple[str, str]
) -> None:
    bodies = [defined.format(name="my_loss", value=value) for value in order]
    text = "import keras\nfrom keras import ops\nfrom keras.config import backend\n" + _BRANCHES[branches].format(
        *bodies
    )
    path = tmp_path / "losses.py"
    path.write_text(text)
    assert [one.code for one in check_paths([path])] == ["FO101"]


def test_so_is_every_definition_of_what_a_loss_calls_and_of_a_method(tmp_path: Path) -> None:
    helper = "if flag:\n    def helper(a):\n        return {}\nelse:\n    def helper(a):\n        return {}\n"
    method = "    if flag:\n        def call(self, y_true, y_pred):\n            return {}\n    else:\n"
    other = "        def call(self, y_true, y_pred):\n            return {}\n"
    path = tmp_path / "losses.py"
    path.write_text(
        "import keras\nfrom keras import ops\nflag = keras.config.backend() == 'jax'\n"
        + helper.format("[ops.sum(a[i]) for i in range(a.shape[0])]", "float(ops.sum(a))")
        + "def my_loss(y_true, y_pred):\n    return helper(y_true - y_pred)\n"
        + "class MyLoss(keras.losses.Loss):\n"
        + method.format(_SLOW)
        + other.format("ops.mean(y_pred) if y_true[0] > 0 else 0.0")
    )
    assert sorted({one.code for one in check_paths([path])}) == ["FO101", "FO201", "FO202"]


_LOOP = """
import keras, tensorflow as tf
def train(model, data, optimizer, loss_fn):
    for epoch in range(3):
        for step, (x, y) in enumerate(data):
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
            {}
        print(float(loss))
"""


@pytest.mark.parametrize(
    ("last", "codes"),
    [
        ("total += float(loss)", ["FO201"]),
        ("losses.append(loss.numpy())", ["FO201"]),
        ("total += loss.item()", ["FO201"]),
        ("total += loss", []),
        ("if step % 100 == 0: print(loss.item())", []),
    ],
)
def test_a_training_loop_of_the_users_waits_for_nothing_after_every_batch(
    tmp_path: Path, last: str, codes: list[str]
) -> None:
    path = tmp_path / "loop.py"
    path.write_text(_LOOP.format(last))
    found = check_paths([path])
    assert [one.code for one in found] == codes
    assert all(one.severity == "slow" for one in found)


@pytest.mark.parametrize(
    ("made", "codes"),
    [
        ("lambda y_true, y_pred: ops.mean(y_true[:, k] - y_pred[:, k])", ["FO303"]),
        ("lambda y_true, y_pred, k=k: ops.mean(y_true[:, k] - y_pred[:, k])", []),
    ],
)
def test_functions_that_a_loop_makes_share_its_variable(tmp_path: Path, made: str, codes: list[str]) -> None:
    path = tmp_path / "losses.py"
    loops = ("for k in range(3):\n", "for k in range(3):\n  for other in range(2):\n")
    for loop in loops:
        path.write_text(
            f"import keras\nfrom keras import ops\nlosses = []\n{loop}    losses.append({made})\n"
            "keras.Sequential([]).compile('adam', loss=losses)\n"
        )
        assert sorted({one.code for one in check_paths([path])}) == codes


def test_a_partial_says_how_its_function_is_called(tmp_path: Path) -> None:
    path = tmp_path / "losses.py"
    path.write_text(
        "import functools, keras\nfrom keras import ops\n"
        "def scaled_loss(w, y_true, y_pred):\n    return ops.mean(w * ops.abs(y_true - y_pred))\n"
        "half = functools.partial(scaled_loss, 0.5)\nkeras.Sequential([]).compile('adam', loss=half)\n"
    )
    (root,) = check_file(Project(), path, "jax", {})
    assert (root.name, root.true_name, root.pred_name) == ("half", "y_true", "y_pred")
