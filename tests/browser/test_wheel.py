"""What users install has the pages: they need no Node."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from rowlock.browser.static_files import STATIC

REPO = Path(__file__).resolve().parents[2]


def test_the_built_files_come_in_the_wheel(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPO, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    built = {
        f"rowlock/browser/static/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*") if path.is_file()
    }
    assert built and built <= packed


def test_the_lockfile_names_no_registry() -> None:
    text = (REPO / "ui" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in text and "integrity" in text
