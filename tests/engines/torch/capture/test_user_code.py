"""Whose code is in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.backend("torch")


def test_what_was_installed_beside_a_script_is_not_the_users_and_the_script_is(tmp_path: Path) -> None:
    from flatout.engines.torch.capture.user_code import Kind, kind_of

    metadata = tmp_path / "helper-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("helper/__init__.py,,\nhelper-1.0.dist-info/RECORD,,\n")
    files = (tmp_path / "helper" / "__init__.py", tmp_path / "train.py", tmp_path / "mine" / "losses.py")
    assert [kind_of(str(file), frozenset()) for file in files] == [Kind.OTHER, Kind.USER, Kind.USER]
