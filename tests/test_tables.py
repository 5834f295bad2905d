"""Tables in files, whichever way their rows go: the results of stock Keras with the frame, and a true report."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.data.columnar.table_rows import TableRows
from flatout.data.direct.load_report import DECODED
from flatout.data.resident.placing import folder_for_rows
from flatout.training.planning.plan import TABLES

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
pytestmark = [pytest.mark.usefixtures("forced"), pytest.mark.slow, pytest.mark.turns]

ROWS = 403


def frame() -> Any:
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "age": pd.array(np.where(rng.random(ROWS) < 0.1, None, rng.integers(0, 90, ROWS)), dtype="Int64"),
            "income": rng.random(ROWS),
            "city": pd.Categorical(rng.choice(["Ulm", "Bonn", "Jena"], ROWS)),
            "member": rng.random(ROWS) < 0.5,
            "weight": rng.random(ROWS).astype("float32"),
            "bought": rng.integers(0, 2, ROWS),
        }
    ).fillna({"age": 40})


def written(folder: Path, content: Any) -> Path:
    """Three files of several row groups in folders that are columns."""
    for number, part in enumerate(np.array_split(np.arange(ROWS), 3)):
        (folder / f"year={2020 + number}").mkdir(parents=True)
        content.iloc[part].to_parquet(folder / f"year={2020 + number}" / "part.parquet", row_group_size=37)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("tables") / "table", frame())


@pytest.fixture(scope="module")
def expected(table: Path) -> Any:
    """What stock Keras makes of the frame, shuffled or not."""
    return functools.cache(lambda shuffle: trained(read_whole(table), shuffle=shuffle, engine="stock"))


def read_whole(folder: Path) -> Any:
    return pd.read_parquet(folder).astype({"year": "int32"})


def build(width: int = 5) -> keras.Model:
    keras.utils.set_random_seed(11)
    model = keras.Sequential(
        [
            layers.Input((width,)),
            layers.Rescaling(0.01),
            layers.Dense(8, "relu"),
            layers.Dropout(0.2),
            layers.Dense(1, "sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


def trained(x: Any, **arguments: Any) -> tuple[Any, list[Any], Any]:
    model = build()
    settings = {"epochs": 2, "batch_size": 16, "verbose": 0, **arguments}
    history = flatout.fit(model, x, "bought", sample_weight="weight", **settings).history
    return history, model.get_weights(), flatout.explain()[-1]


WAYS = {
    # options, shuffle, placement, what becomes of the tables
    "resident": ({}, True, "resident", "resident"),
    "direct": ({"data": "direct"}, True, "direct", "direct"),
    "direct, in order": ({"data": "direct"}, False, "direct", "direct"),
    "in order": ({"data": "streamed"}, False, "streamed", "ahead"),
    "shuffled in memory": ({"data": "streamed"}, True, "streamed", "memory"),
    "shuffled on disk": ({"vram": "4kB"}, True, "streamed", "disk"),
}


@pytest.mark.parametrize("way", WAYS)
def test_training_is_that_of_stock_keras_with_the_frame(table: Path, expected: Any, way: str) -> None:
    wishes, shuffle, placement, tables = WAYS[way]
    with flatout.options(**wishes), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = flatout.plan(build(), table, "bought", sample_weight="weight", shuffle=shuffle, batch_size=16)
        history, weights, report = trained(table, shuffle=shuffle)
    stock_history, stock_weights, _ = expected(shuffle)
    for name, values in stock_history.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5, atol=1e-6)
    for got, wanted in zip(weights, stock_weights, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
    assert (plan.data, plan.tables, report.data, report.accelerated) == (placement, tables, placement, True)
    # x of 5 columns, the weights, the labels as pandas wrote them.
    once = ROWS * (5 * 4 + 4 + 8)
    decoded = sum(load.paths[DECODED] for load in report.loads)
    if tables == "resident":
        assert report.loads == ()
    elif tables == "ahead":
        # Two epochs, and what was looked at before the first: here a chunk of all rows, and some.
        assert 2 * once <= decoded < 4 * once
    else:
        assert decoded == once
    warned = [str(warning.message) for warning in caught if "decoded_to_disk" in str(warning.message)]
    assert len(warned) == (tables == "disk")
    assert any(why.code == "decoded_to_disk" for why in report.reasons) == (tables == "disk")
    assert f"tables      {TABLES[tables]}" in plan.explain()
    assert sorted(path.name for path in table.parent.iterdir()) == ["table"]


@pytest.mark.parametrize("wishes", [{"data": "streamed"}, {"data": "direct"}, {"engine": "stock"}])
def test_evaluate_and_predict_read_row_groups_in_order(table: Path, tmp_path: Path, wishes: dict[str, Any]) -> None:
    content, model = read_whole(table), build(6)
    settings = {"batch_size": 16, "verbose": 0}
    scores = flatout.evaluate(model, content, "bought", engine="stock", **settings)
    np.testing.assert_allclose(flatout.evaluate(model, table, "bought", **settings, **wishes), scores, rtol=1e-5)
    inputs = written(tmp_path / "inputs", frame().drop(columns="bought"))
    outputs = flatout.predict(model, content.drop(columns="bought"), engine="stock", **settings)
    got = flatout.predict(model, inputs, **settings, **wishes)
    np.testing.assert_allclose(got, outputs, rtol=1e-5, atol=1e-6)
    assert flatout.explain()[-1].data == wishes.get("data", "host")


@pytest.mark.parametrize("how", ["validation_data", "validation_split"])
def test_validation(table: Path, how: str) -> None:
    content = read_whole(table)

    def validation(x: Any) -> dict[str, Any]:
        return {"validation_data": (x, "bought", "weight")} if how == "validation_data" else {"validation_split": 0.3}

    wanted = trained(content, engine="stock", **validation(content))
    with flatout.options(data="streamed"):
        got = trained(table, **validation(table))
    for name, values in wanted[0].items():
        np.testing.assert_allclose(got[0][name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("suffix", "engine"), [(".parquet", "auto"), (".parquet", "stock"), (".feather", "auto")])
def test_predictions_to_a_file_go_on_after_an_interruption(tmp_path: Path, suffix: str, engine: str) -> None:
    content = frame().drop(columns="bought")
    path = tmp_path / f"x{suffix}"
    if suffix == ".parquet":
        content.to_parquet(path, row_group_size=50)
    else:
        plain = content.astype({"age": "float64"}).drop(columns=["city", "member"])
        feather.write_feather(pa.Table.from_pandas(plain), str(path), chunksize=50, compression="uncompressed")
    model = build(5 if suffix == ".parquet" else 3)
    settings = {"batch_size": 16, "verbose": 0, "engine": engine}
    flatout.predict(model, path, out=tmp_path / "whole.npy", **settings)

    class Interrupted(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 9:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flatout.predict(model, path, out=tmp_path / "out.npy", callbacks=[Interrupted()], **settings)
    flatout.predict(model, path, out=tmp_path / "out.npy", **settings)
    assert flatout.explain()[-1].steps == -(-ROWS // 16) - 9
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        flatout.predict(model, path, out=tmp_path / "out.npy", callbacks=[Interrupted()], **settings)
    path.touch()
    with pytest.warns(UserWarning, match="is started anew: .*input"):
        flatout.predict(model, path, out=tmp_path / "out.npy", **settings)


def test_a_disk_too_small_for_shuffled_rows_is_named(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10_000, 9_000, 1_000))
    message = r"takes 12\.9 kB, and '.*' has 1\.0 kB left\. Set TMPDIR to a folder with more, or pass shuffle=False"
    with (
        flatout.options(vram="4kB"),
        pytest.warns(UserWarning, match="decoded_to_disk"),
        pytest.raises(OSError, match=message),
    ):
        trained(table)


def test_what_cannot_be_placed_is_streamed(table: Path, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr("flatout.data.resident.placing.place_files", full)
    with pytest.warns(UserWarning, match="memory: The data take"):
        history, _, report = trained(table, data="direct")
    np.testing.assert_allclose(history["loss"], expected(True)[0]["loss"], rtol=1e-5)
    assert report.data == "streamed"
    assert [load.paths[DECODED] for load in report.loads]


@pytest.mark.backend("jax")
def test_temporary_files_lie_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert folder_for_rows() == tmp_path
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    assert folder_for_rows() == Path("/var/tmp")


@pytest.mark.backend("jax")
def test_rows_of_a_table_are_not_read_to_plan(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("read")

    monkeypatch.setattr(TableRows, "read_into", never)
    monkeypatch.setattr(TableRows, "__getitem__", never)
    plan = flatout.plan(build(), table, "bought", sample_weight="weight")
    assert plan.facts.table_bytes == ROWS * (5 * 4 + 4 + 8)
