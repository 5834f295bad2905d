"""Where predictions go: what the user passes as `out`, checked before step 0."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from flatout.base.sizes import as_size
from flatout.base.when_used import tree
from flatout.data.files.file_rows import files_of

_EXPECTED = (
    "Expected the path of a file that ends in .npy, or for a model with several outputs a folder, or a structure of "
    "such paths like that of the outputs."
)


class OutputPaths:
    """The files of a prediction.

    A path that ends in .npy is the file of a single output. Any other path is a folder, which gets a file for each of
    several outputs, named after its key or position: `{"a": ..., "b": ...}` gives `a.npy` and `b.npy`. A dict, list or
    tuple of paths names the file of each output. None of them may be a file of `inputs`, which are read.
    """

    def __init__(self, out: Any, inputs: Any = None):
        self._paths = tree.map_structure(_as_path, out)
        self._named: list[Path] = tree.flatten(self._paths)
        is_folder = not tree.is_nested(out) and self._paths.suffix.lower() != ".npy"
        self._folder: Path | None = self._paths if is_folder else None
        self._check(out, inputs)

    def __str__(self) -> str:
        return ", ".join(repr(str(path)) for path in self._named)

    @property
    def manifest(self) -> Path:
        """The record of how far an unfinished prediction has come; it lies beside the first file."""
        if self._folder is not None:
            return self._folder / "predictions.partial.json"
        first = self._named[0]
        return first.with_name(f"{first.name}.partial.json")

    def of(self, outputs: Any) -> list[Path]:
        """The file of each output, in the order in which Keras flattens them; `ValueError` if `out` does not fit."""
        if self._folder is not None:
            if not tree.is_nested(outputs):
                raise ValueError(
                    f"`out` is {str(self._folder)!r}, and the model has a single output. Expected the path of a file "
                    f"that ends in .npy, such as {str(self._folder.with_suffix('.npy'))!r}."
                )
            places = [place for place, _ in tree.flatten_with_path(outputs)]
            return [self._folder / f"{'-'.join(map(str, place))}.npy" for place in places]
        try:
            tree.assert_same_structure(self._paths, outputs)
        except (ValueError, TypeError) as error:
            shape = tree.map_structure(lambda _: "...", outputs)
            raise ValueError(f"`out` is {self}, and the outputs of the model are {shape}. {_EXPECTED}") from error
        return self._named

    def seen_from_manifest(self, path: Path) -> str:
        """A file's path as the manifest has it."""
        return os.path.relpath(path, self.manifest.parent)

    def make_folder(self) -> None:
        """Make the folder of several outputs, if that is what `out` is."""
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)

    def check_space(self, sizes: dict[Path, int]) -> None:
        """Look whether files of so many bytes still fit on their disks; `OSError` if not."""
        wanted: dict[int, int] = defaultdict(int)
        folders: dict[int, Path] = {}
        for path, size in sizes.items():
            folder = path.parent if path.parent.exists() else path.parent.parent
            disk = folder.stat().st_dev
            wanted[disk] += size
            folders[disk] = folder
        for disk, size in wanted.items():
            free = shutil.disk_usage(folders[disk]).free
            if size > free:
                raise OSError(
                    f"The predictions take {as_size(size)}, and the disk of {str(folders[disk])!r} has {as_size(free)} "
                    "left. Free some space, or choose an `out` on another disk."
                )

    def _check(self, out: Any, inputs: Any) -> None:
        if not self._named or len(set(self._named)) < len(self._named):
            raise ValueError(f"`out` must name different files. Received: out={out!r}. {_EXPECTED}")
        read = [file for leaf in tree.flatten(inputs) for file in files_of(leaf) if file.exists()]
        for path in self._named:
            if self._folder is None and path.suffix.lower() != ".npy":
                raise ValueError(f"`out` names {str(path)!r}, which does not end in .npy. {_EXPECTED}")
            if self._folder is not None and path.suffix and not path.is_dir():
                raise ValueError(f"`out` is {str(path)!r}, which does not end in .npy. {_EXPECTED}")
            if (self._folder is None) == path.is_dir() and path.exists():
                kind = "a folder" if path.is_dir() else "a file"
                raise ValueError(f"`out` names {str(path)!r}, which is {kind}. {_EXPECTED}")
            if not path.parent.is_dir():
                raise FileNotFoundError(
                    f"`out` names {str(path)!r}, and there is no folder {str(path.parent)!r}. Make it first."
                )
            _check_writable(path if path.is_dir() else path.parent)
            if path.exists() and any(map(path.samefile, read)):
                raise ValueError(f"`out` names {str(path)!r}, which is read as `x`. Expected another file.")


def _as_path(out: Any) -> Path:
    if not isinstance(out, (str, os.PathLike)):
        raise ValueError(f"Invalid value for argument `out`. Received: {out!r}. {_EXPECTED}")
    return Path(out).expanduser().absolute()


def _check_writable(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(
            error.errno, f"Nothing can be written to {str(folder)!r}, where `out` shall go ({error.strerror})"
        ) from error
