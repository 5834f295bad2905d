"""Proofs are found again by all that they depend on, and by nothing less."""

from __future__ import annotations

import enum
import functools
import io
import itertools
import os
import random
import sys
import threading
from collections import defaultdict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
import scripts

import flatout
from flatout.base import disk_cache
from flatout.vectorize import decide
from flatout.vectorize.verify import kept_verdicts
from flatout.vectorize.verify.kept_verdicts import NoDigest, digest
from flatout.vectorize.verify.verification import Rewrite

pytestmark = pytest.mark.turns

_HEADER = "import enum, functools, types\nimport numpy as np\nimport pandas as pd\nfrom keras import ops\n"
# Pairs of sources that define `f`, of which a proof for one is none for the other.
_PAIRS = {
    "a constant": ("def f(x): return x * 2.0", "def f(x): return x * 3.0"),
    "an int and a float": ("def f(x): return x * 2", "def f(x): return x * 2.0"),
    "zeros": ("def f(x): return x * 0.0", "def f(x): return x * -0.0"),
    "an operation": ("def f(x): return ops.sum(x)", "def f(x): return ops.max(x)"),
    "a default": ("def f(x, a=1): return x * a", "def f(x, a=2): return x * a"),
    "a default by name": ("def f(x, *, a=1): return x * a", "def f(x, *, a=2): return x * a"),
    "a global": ("A = 1\ndef f(x): return x * A", "A = 2\ndef f(x): return x * A"),
    "a helper": ("def g(x): return x\ndef f(x): return g(x)", "def g(x): return -x\ndef f(x): return g(x)"),
    "a helper's helper": (
        "def h(x): return x\ndef g(x): return h(x)\ndef f(x): return g(x)",
        "def h(x): return -x\ndef g(x): return h(x)\ndef f(x): return g(x)",
    ),
    "a helper inside": (
        "def f(x):\n    def g(y): return A * y\n    return g(x)\nA = 1",
        "def f(x):\n    def g(y): return A * y\n    return g(x)\nA = 2",
    ),
    "a lambda": ("g = lambda x: x + 1\ndef f(x): return g(x)", "g = lambda x: x + 2\ndef f(x): return g(x)"),
    "a closure": (
        "def make(a):\n    def f(x): return x * a\n    return f\nf = make(1)",
        "def make(a):\n    def f(x): return x * a\n    return f\nf = make(2)",
    ),
    "a partial": (
        "g = functools.partial(ops.sum, axis=0)\ndef f(x): return g(x)",
        "g = functools.partial(ops.sum, axis=1)\ndef f(x): return g(x)",
    ),
    "an array": (
        "A = np.array([1.0, 2.0])\ndef f(x): return x * A",
        "A = np.array([1.0, 2.5])\ndef f(x): return x * A",
    ),
    "a dtype": (
        "A = np.array([1, 2], 'i4')\ndef f(x): return x * A",
        "A = np.array([1, 2], 'i8')\ndef f(x): return x * A",
    ),
    "a scalar of numpy": (
        "A = np.float32(1)\ndef f(x): return x * A",
        "A = np.float64(1)\ndef f(x): return x * A",
    ),
    "a tensor": (
        "A = ops.convert_to_tensor([1.0, 2.0])\ndef f(x): return x * A",
        "A = ops.convert_to_tensor([1.0, 3.0])\ndef f(x): return x * A",
    ),
    "a list": ("A = [1, 2]\ndef f(x): return x * A[0]", "A = [2, 1]\ndef f(x): return x * A[0]"),
    "a list and a tuple": ("A = [1, 2]\ndef f(x): return x * A[0]", "A = (1, 2)\ndef f(x): return x * A[0]"),
    "a nested list": ("A = [[1], 2]\ndef f(x): return x * A[1]", "A = [[1, 2]]\ndef f(x): return x * A[1]"),
    "a dict": ("A = {0: 1.0}\ndef f(x): return x * A[0]", "A = {0: 2.0}\ndef f(x): return x * A[0]"),
    "a set and a frozen one": (
        "A = {1, 2}\ndef f(x): return x * len(A)",
        "A = frozenset({1, 2})\ndef f(x): return x * len(A)",
    ),
    "a function as a method": (
        "g = types.MethodType(lambda self, x: x * 2, 'o')\ndef f(x): return g(x)",
        "g = types.MethodType(lambda self, x: x * 3, 'o')\ndef f(x): return g(x)",
    ),
    "a set": ("A = {1, 2}\ndef f(x): return x * len(A)", "A = {1, 3}\ndef f(x): return x * len(A)"),
    "a table": (
        "A = pd.DataFrame({'w': [1.0, 2.0]})\ndef f(x): return x * A['w'][0]",
        "A = pd.DataFrame({'w': [1.0, 3.0]})\ndef f(x): return x * A['w'][0]",
    ),
    "a table's column": (
        "A = pd.DataFrame({'w': [1.0, 2.0]})\ndef f(x): return x * A.iloc[0, 0]",
        "A = pd.DataFrame({'v': [1.0, 2.0]})\ndef f(x): return x * A.iloc[0, 0]",
    ),
    "a table's index": (
        "A = pd.Series([1.0, 2.0], index=[0, 1])\ndef f(x): return x * A[0]",
        "A = pd.Series([1.0, 2.0], index=[0, 2])\ndef f(x): return x * A[0]",
    ),
    "an attribute": (
        "class C:\n    def __init__(self): self.a = 1\nc = C()\ndef f(x): return x * c.a",
        "class C:\n    def __init__(self): self.a = 2\nc = C()\ndef f(x): return x * c.a",
    ),
    "a method": (
        "class C:\n    def g(self, x): return x\nc = C()\ndef f(x): return c.g(x)",
        "class C:\n    def g(self, x): return -x\nc = C()\ndef f(x): return c.g(x)",
    ),
    "a method of a base": (
        "class B:\n    def g(self, x): return x\nclass C(B): pass\nc = C()\ndef f(x): return c.g(x)",
        "class B:\n    def g(self, x): return -x\nclass C(B): pass\nc = C()\ndef f(x): return c.g(x)",
    ),
    "a property": (
        "class C:\n    @property\n    def a(self): return 1\nc = C()\ndef f(x): return x * c.a",
        "class C:\n    @property\n    def a(self): return 2\nc = C()\ndef f(x): return x * c.a",
    ),
    "a member": (
        "class E(enum.Enum):\n    A = 1\n    B = 2\nA = E.A\ndef f(x): return x * A.value",
        "class E(enum.Enum):\n    A = 3\n    B = 2\nA = E.A\ndef f(x): return x * A.value",
    ),
    "a module's function": (
        "m = types.ModuleType('helpers')\nm.g = lambda x: x\ndef f(x): return m.g(x)",
        "m = types.ModuleType('helpers')\nm.g = lambda x: -x\ndef f(x): return m.g(x)",
    ),
    "a function's attribute": (
        "def g(x): return x * g.a\ng.a = 1\ndef f(x): return g(x)",
        "def g(x): return x * g.a\ng.a = 2\ndef f(x): return g(x)",
    ),
    "what a library's decorator holds": (
        "def g(x): return x\ng = functools.lru_cache(g)\ndef f(x): return g(x)",
        "def g(x): return -x\ng = functools.lru_cache(g)\ndef f(x): return g(x)",
    ),
    "what numpy's wrapper holds": (
        "g = np.vectorize(lambda x: x)\ndef f(x): return g(x)",
        "g = np.vectorize(lambda x: -x)\ndef f(x): return g(x)",
    ),
    "what numpy's other wrapper holds": (
        "g = np.frompyfunc(lambda x: x, 1, 1)\ndef f(x): return g(x)",
        "g = np.frompyfunc(lambda x: -x, 1, 1)\ndef f(x): return g(x)",
    ),
    "a subclass of a partial": (
        "class P(functools.partial): a = 1\ng = P(ops.sum)\ndef f(x): return x * g.a",
        "class P(functools.partial): a = 2\ng = P(ops.sum)\ndef f(x): return x * g.a",
    ),
    "a module in a list": (
        "m = types.ModuleType('helpers')\nm.a = 1\nM = [m]\ndef g(m, x): return m.a * x\ndef f(x): return g(M[0], x)",
        "m = types.ModuleType('helpers')\nm.a = 2\nM = [m]\ndef g(m, x): return m.a * x\ndef f(x): return g(M[0], x)",
    ),
    "a variable of the environment": (
        "import os\nos.environ['FLATOUT_TEST'] = '1'\ndef f(x): return x * float(os.environ['FLATOUT_TEST'])",
        "import os\nos.environ['FLATOUT_TEST'] = '2'\ndef f(x): return x * float(os.environ['FLATOUT_TEST'])",
    ),
    "a name looked up": (
        "A = 1\ndef f(x): return x * globals()['A']",
        "A = 2\ndef f(x): return x * globals()['A']",
    ),
    "an import": (
        "def f(x):\n    from string import digits\n    return x * len(digits)",
        "def f(x):\n    from string import digits\n    return x * len(digits) * 2",
    ),
    "an attribute of a member": (
        "class E(enum.Enum):\n    def __new__(cls, a):\n        one = object.__new__(cls)\n        one._value_ = 0\n"
        "        one.a = a\n        return one\n    A = 1\nA = E.A\ndef f(x): return x * A.a",
        "class E(enum.Enum):\n    def __new__(cls, a):\n        one = object.__new__(cls)\n        one._value_ = 0\n"
        "        one.a = a\n        return one\n    A = 2\nA = E.A\ndef f(x): return x * A.a",
    ),
    "a category's code": (
        "A = pd.Series(pd.Categorical(['a'], ['a', 'b']))\ndef f(x): return x * A.cat.codes[0]",
        "A = pd.Series(pd.Categorical(['a'], ['b', 'a']))\ndef f(x): return x * A.cat.codes[0]",
    ),
    "a field of a structure": (
        "A = np.array([(1, 2)], 'i4,i4')\nA.dtype.names = ('a', 'b')\ndef f(x): return x * A['a'][0]",
        "A = np.array([(1, 2)], 'i4,i4')\nA.dtype.names = ('b', 'a')\ndef f(x): return x * A['a'][0]",
    ),
    "a class of a class": (
        "class M(type): a = 1\nclass C(metaclass=M): pass\ndef f(x): return x * C.a",
        "class M(type): a = 2\nclass C(metaclass=M): pass\ndef f(x): return x * C.a",
    ),
    "a class without a module": (
        "N = {}\nexec('class C: a = 1', N)\nC = N['C']\ndef f(x): return x * C.a",
        "N = {}\nexec('class C: a = 2', N)\nC = N['C']\ndef f(x): return x * C.a",
    ),
    "an exception that is caught": (
        "def f(x):\n    try: return x[0]\n    except KeyError: return x",
        "def f(x):\n    try: return x[0]\n    except IndexError: return x",
    ),
}

# Those of them that are verified in every process.
_WITHOUT = {
    *("a table", "a table's column", "a table's index", "a category's code"),
    *("a module's function", "a module in a list", "what a library's decorator holds"),
    *("what numpy's other wrapper holds", "a variable of the environment", "a name looked up", "an import"),
    *("a field of a structure", "a class of a class", "a subclass of a partial"),
}


def made(source: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": "script"}
    exec(_HEADER + source, names)
    return names["f"]


def digest_or_none(function: Any) -> str | None:
    try:
        return digest(function)
    except NoDigest:
        return None


@pytest.mark.parametrize("name", _PAIRS)
def test_what_differs_has_another_digest(name: str) -> None:
    one, other = (digest_or_none(made(source)) for source in _PAIRS[name])
    again = digest_or_none(made(_PAIRS[name][0]))
    assert one == again
    assert one is None or one != other


def test_nearly_all_of_these_have_a_digest() -> None:
    without = {name for name, sources in _PAIRS.items() if digest_or_none(made(sources[0])) is None}
    assert without == _WITHOUT


def test_unused_globals_and_comments_do_not_count() -> None:
    assert digest(made("def f(x): return x")) == digest(made("B = 3\n# Why.\ndef f(x):\n    return x"))


def test_objects_that_refer_to_each_other_have_a_digest() -> None:
    source = "class C: pass\nc = C()\nc.self = c\nc.other = [c]\ndef f(x): return x * len(c.other)"
    assert digest(made(source)) == digest(made(source))


class WithSlots:
    __slots__ = ("a",)


@pytest.mark.parametrize(
    "value",
    [
        np.random.default_rng(0),
        random.Random(0),
        io.BytesIO(b"1"),
        itertools.count(),
        (number for number in range(3)),
        threading.Lock(),
        defaultdict(int),
        namedtuple("Point", "x y")(1, 2),
        np.zeros(2**22),
        {Path("a")},
        os.environ,
        sys,
        WithSlots(),
        type("Number", (int,), {})(3),
        np.ma.masked_array([1.0], [True]),
        np.array([object()]),
        pd.DataFrame({"a": [object()]}),
        pd.Categorical(["a"]),
        keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nobody_can_tell_has_no_digest(value: Any) -> None:
    with pytest.raises(NoDigest):
        digest(lambda x: (x, value))


def test_nothing_else_is_raised_for_a_key() -> None:
    nested: Any = []
    for _ in range(2000):
        nested = [nested]

    class Strange:
        def __getattr__(self, name: str) -> Any:
            raise KeyError(name)

        def __call__(self) -> None: ...

    rewrite = Rewrite("", "axis")
    for value in (nested, Strange()):
        assert kept_verdicts.key_of(lambda x, value=value: (x, value), None, rewrite, None, False) is None
    assert kept_verdicts.key_of(lambda x: x, None, rewrite, None, False) is not None


def test_plain_holders_have_one() -> None:
    class Kind(enum.IntEnum):
        ONE = 1

    for value in (
        Kind.ONE,
        functools.partial(np.sum, axis=0),
        range(3),
        slice(1, None),
        np.float32(2),
        list(range(30_000)),
        1 << 20_000,
        type("C", (), {"__module__": None}),
    ):
        assert digest(value) == digest(value)
    assert digest(Kind.ONE) != digest(1)


SCRIPT = """
import flatout, sys
from helpers import weigh
from statistics import scale  # Not Python's own: the file beside this one.

def loss(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + weigh(y_true[i] - y_pred[i]) * scale()
    return total / y_true.shape[0]

quick = flatout.vectorize(loss)
assert quick.applied, quick.reason
print("remembered" if "by an earlier process" in quick.explain(measure=False) else "verified")
"""


@pytest.mark.slow
@pytest.mark.backend("jax")
def test_a_script_that_is_run_again(tmp_path: Path) -> None:
    files = {
        "script.py": SCRIPT,
        "helpers.py": "from keras import ops\ndef weigh(x): return ops.mean(ops.square(x))\n",
        "statistics.py": "def scale(): return 2.0\n",
    }

    def run(**changed: str) -> str:
        for name, text in (files | {f"{name}.py": text for name, text in changed.items()}).items():
            (tmp_path / name).write_text(text)
        done = scripts.run(tmp_path, "script.py", XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run() == "verified"
    assert run() == "remembered"
    assert run(statistics=files["statistics.py"].replace("2.0", "3.0")) == "verified"


def looped(y_true: Any, y_pred: Any) -> Any:
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + keras.ops.mean(keras.ops.square(y_true[i] - y_pred[i]))
    return total / y_true.shape[0]


@pytest.mark.backend("torch")
def test_the_same_answers_with_a_verdict_that_was_kept(verdicts_are_kept: None) -> None:
    first, second = flatout.vectorize(looped), flatout.vectorize(looped)
    x = keras.random.normal((5, 3), seed=1)
    values = [float(one(x, x * 2)) for one in (first, second, looped)]
    assert values == pytest.approx([values[2]] * 3)
    assert [one._answer().verdict.is_remembered for one in (first, second)] == [False, True]
    assert first.source == second.source
    assert first.explain(measure=False).replace("Verified", "Verified by an earlier process") == second.explain(False)
    assert "times" in second.explain() or "no gain" in second.explain()


@pytest.mark.backend("torch")
def test_without_a_place_for_them_losses_are_verified_all_the_same(
    verdicts_are_kept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [flatout.vectorize(looped).applied for _ in range(2)] == [True, True]


@pytest.mark.backend("torch")
@pytest.mark.parametrize("content", ["", "(", "[]", "()", "({}, {})", "(1, 2)", "({'equal': True}, {'ranks': ()})"])
def test_a_damaged_file_is_no_verdict(verdicts_are_kept: None, content: str) -> None:
    assert flatout.vectorize(looped).applied
    for file in disk_cache.folder("verdicts").iterdir():
        file.write_text(content)
    again = flatout.vectorize(looped)
    assert again.applied
    assert not again._answer().verdict.is_remembered


@pytest.mark.backend("torch")
def test_what_was_not_equal_is_not_kept(verdicts_are_kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite = decide.rewrite_function(looped, {"y_true": 2, "y_pred": 2})
    wrong = decide.replace(rewrite, source=rewrite.source.replace("square", "abs"))
    for _ in range(2):
        decision = decide.verified(looped, wrong)
        assert decision.function is None
        assert not decision.verdict.is_remembered
    assert not list(disk_cache.folder("verdicts").iterdir())


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_text("")
        os.utime(tmp_path / str(number), (number, number))
    disk_cache.trim(tmp_path, 3)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["2", "3", "4"]
