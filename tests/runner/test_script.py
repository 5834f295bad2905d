"""A program under flatout does what it does under plain Python: output, errors and exit code."""

from __future__ import annotations

import py_compile
import signal
import subprocess
import zipfile

import pytest

from .conftest import Folder

pytestmark = pytest.mark.backend("jax")  # The runner is the same for all of them.

_SHOW = "import sys; print(__name__, sys.argv, sys.path[:2], sorted(globals()), __loader__ is not None, __spec__)"
_PROGRAMS = {
    "names": _SHOW + "; print(__file__, __cached__, __builtins__, __package__, __doc__, __annotations__)",
    "docstring": '"""Mine."""\nprint(__doc__)',
    "sibling": "import sibling; print(sibling.value)",
    "exits": "import sys; print('out'); sys.exit(7)",
    "exits_with_text": "import sys; sys.exit('gone wrong')",
    "error": "def f(x):\n    return 1 / x\nprint('out')\nf(0)",
    "chained": "try:\n    int('x')\nexcept ValueError as e:\n    raise KeyError('y') from e",
    "in_context": "try:\n    int('x')\nexcept ValueError:\n    {}['y']",
    "syntax_error": "x = (1,\ny = 2",
    "import_error": "import no_such_module",
    "error_in_import": "import failing",
    "interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)",
    "own_hook": "import sys\nsys.excepthook = lambda k, v, t: print(k, v, t.tb_frame.f_code.co_name, t.tb_next)\n1/0",
    "at_exit": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\n1/0",
    "pickled": "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))), C.__module__)",
    "source": "import inspect\nclass C:\n    pass\ndef f(): pass\nprint(inspect.getsource(C), inspect.getsource(f))",
    "main_module": "import sys, __main__ as m\nx = 3\nprint(m.x, sys.modules['__main__'] is m, vars(m) is globals())",
    "thread": "from threading import Timer\nTimer(0.1, print, ['late']).start()\nprint('early')",
    "killed": "import os\nos.kill(os.getpid(), 15)",
}


def _same(plain: subprocess.CompletedProcess[str], ours: subprocess.CompletedProcess[str]) -> None:
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


@pytest.fixture
def program(folder: Folder) -> Folder:
    folder.write("sub/sibling.py", "value = 42")
    folder.write("sub/failing.py", "raise OSError('in the module')")
    return folder


@pytest.mark.parametrize("name", _PROGRAMS)
def test_script_behaves_as_under_plain_python(program: Folder, name: str) -> None:
    program.write("sub/program.py", _PROGRAMS[name])
    arguments = ["./sub/program.py", "--epochs", "3", "-m", "x"]
    _same(program.python(*arguments), program.flatout(*arguments))


@pytest.mark.parametrize("name", ["names", "error", "exits", "interrupted", "syntax_error"])
def test_code_behaves_as_under_plain_python(program: Folder, name: str) -> None:
    code = _PROGRAMS[name].partition("; print(__file__")[0]
    _same(program.python("-c", code, "a", "--b"), program.flatout("-c", code, "a", "--b"))
    _same(program.python("-", "a", stdin=code), program.flatout("-", "a", stdin=code))


@pytest.mark.parametrize("name", ["error", "exits", "pickled", "interrupted", "main_module"])
def test_module_behaves_as_under_plain_python(program: Folder, name: str) -> None:
    program.write("package/__init__.py", "")
    program.write("package/part.py", _PROGRAMS[name])
    _same(program.python("-m", "package.part", "a"), program.flatout("-m", "package.part", "a"))


def test_module_knows_its_package_and_arguments(program: Folder) -> None:
    program.write("package/__init__.py", "")
    program.write(
        "package/__main__.py",
        "import sys\nfrom . import part\nprint(__spec__.name, __package__, sys.argv, sys.path[0])",
    )
    program.write("package/part.py", "")
    _same(program.python("-m", "package", "a"), program.flatout("-m", "package", "a"))


def test_folder_zip_file_and_compiled_script_run(program: Folder) -> None:
    source = program.write("application/__main__.py", "import sys; print(__name__, sys.argv, sys.path[0]); 1/0")
    with zipfile.ZipFile(program.path / "application.zip", "w") as archive:
        archive.write(source, "__main__.py")
    py_compile.compile(str(source), str(program.path / "compiled.pyc"))
    for what in ("application", "application.zip", "compiled.pyc"):
        _same(program.python(what, "a"), program.flatout(what, "a"))


def test_linked_script_imports_from_the_folder_of_its_file(program: Folder) -> None:
    (program.path / "link.py").symlink_to(program.write("sub/program.py", _PROGRAMS["sibling"]))
    _same(program.python("link.py"), program.flatout("link.py"))


@pytest.mark.parametrize("arguments", [["nope.py"], ["sub"], ["-m", "nope"], ["-m", "no.pe"]])
def test_missing_program_gives_pythons_message_and_exit_code(program: Folder, arguments: list[str]) -> None:
    _same(program.python(*arguments), program.flatout(*arguments))


def test_safe_path_is_kept(program: Folder) -> None:
    program.write("sub/program.py", _PROGRAMS["sibling"])
    plain, ours = program.python("-P", "sub/program.py"), program.python("-P", "-m", "flatout", "sub/program.py")
    _same(plain, ours)
    assert "No module named 'sibling'" in ours.stderr


def test_interrupt_ends_the_process_by_signal(program: Folder) -> None:
    program.write("program.py", _PROGRAMS["interrupted"])
    assert program.flatout("program.py").returncode == -signal.SIGINT


def test_runs_under_another_runner(program: Folder) -> None:
    program.write("program.py", "import sys; print('ran', sys.argv)")
    done = program.python("-m", "cProfile", "-m", "flatout", "program.py", "a")
    assert "ran ['program.py', 'a']" in done.stdout
    assert done.returncode == 0, done.stderr


def test_script_that_changes_the_folder_still_has_its_source(program: Folder) -> None:
    program.write(
        "elsewhere/program.py",
        "import inspect, os, sys\nos.chdir('/')\n"
        "print(__file__, sys.path[0], inspect.getsource(sys.modules['__main__']))",
    )
    _same(program.python("elsewhere/program.py"), program.flatout("elsewhere/program.py"))


def test_run_is_the_default_command(folder: Folder) -> None:
    folder.write("program.py", "import sys; print(sys.argv)")
    assert folder.flatout("run", "program.py", "a").stdout == folder.flatout("program.py", "a").stdout
