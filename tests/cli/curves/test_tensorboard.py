"""The directory of links that TensorBoard is given."""

from __future__ import annotations

import os
from pathlib import Path

from rowlock.cli.curves.tensorboard import _make_links


def test_links_are_those_of_now(tmp_path: Path) -> None:
    top, (one, two) = tmp_path / "links", (tmp_path / "one", tmp_path / "two")
    for file in (one, two):
        file.touch()
    _make_links(str(top), {str(top / "a b" / "f"): str(one), str(top / "c" / "f"): str(two)})
    _make_links(str(top), {str(top / "a b" / "f"): str(two)})
    assert os.readlink(top / "a b" / "f") == str(two) and not os.path.lexists(top / "c" / "f")
