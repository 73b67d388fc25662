"""Snapshots of source directories and the copies that jobs run in: what is packed, what is linked, what is left behind."""

from __future__ import annotations

import datetime
import os
import subprocess
from pathlib import Path

import pytest

from rowlock.cli.grammar import CommandError
from rowlock.cli.source import snapshot as snapshots
from rowlock.cli.source.snapshot import SourceStore
from rowlock.cli.source.working_copy import WorkingCopy, tidy_up


def git(directory: Path, *argv: str) -> str:
    words = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(directory), *argv]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "data").mkdir(parents=True)
    (directory / "outputs").mkdir()
    (directory / ".gitignore").write_text("data/\n*.log\nkept.log\n")
    (directory / "data" / "x").write_text("7")
    (directory / "run.sh").write_text("true\r\n")
    (directory / "run.sh").chmod(0o755)
    (directory / "kept.log").write_text("tracked, though ignored")
    (directory / ".gitattributes").write_text("* text=auto eol=lf\n*.bin filter=lfs\n")
    (directory / "é b.bin").write_bytes(bytes(range(256)))
    (directory / "link").symlink_to("run.sh")
    git(directory, "init", "-q")
    git(directory, "add", "-A")
    git(directory, "add", "-f", "kept.log")
    git(directory, "commit", "-qm", "first")
    (directory / "new.py").write_text("x = 1\n")
    return directory


@pytest.fixture
def store(tmp_path: Path) -> SourceStore:
    return SourceStore(str(tmp_path / "cluster"))


def test_a_copy_has_the_same_bytes_modes_and_links(project: Path, store: SourceStore) -> None:
    copy = WorkingCopy.make(store, store.take(str(project)), "job")
    for name in ("run.sh", "kept.log", ".gitattributes", "é b.bin", "new.py"):
        assert (Path(copy.path) / name).read_bytes() == (project / name).read_bytes()
        assert not (Path(copy.path) / name).is_symlink()
    assert os.access(Path(copy.path) / "run.sh", os.X_OK) and not os.access(Path(copy.path) / "new.py", os.X_OK)
    assert os.readlink(Path(copy.path) / "link") == "run.sh"
    assert (Path(copy.path) / "outputs").is_dir() and not (Path(copy.path) / "outputs").is_symlink()


def test_what_git_ignores_is_the_real_thing(project: Path, store: SourceStore) -> None:
    copy = WorkingCopy.make(store, store.take(str(project)), "job")
    assert os.readlink(Path(copy.path) / "data") == str(project / "data")
    (Path(copy.path) / "data" / "checkpoint").write_text("kept")
    assert (project / "data" / "checkpoint").read_text() == "kept"
    assert copy.changed_files() == []


def test_an_edit_reaches_the_next_snapshot_and_no_copy(project: Path, store: SourceStore) -> None:
    first = store.take(str(project))
    copy = WorkingCopy.make(store, first, "job")
    (project / "new.py").write_text("x = 2\n")  # of the same size, in the same second
    (project / "run.sh").unlink()
    second = store.take(str(project))
    assert (Path(copy.path) / "new.py").read_text() == "x = 1\n"
    assert second.tree != first.tree and second.files == first.files - 1
    again = Path(WorkingCopy.make(store, second, "job").path)
    assert (again / "new.py").read_text() == "x = 2\n" and not (again / "run.sh").exists()
    (project / "new.py").write_text("x = 1\n")
    git(project, "checkout", "-q", "--", "run.sh")
    (project / "run.sh").write_bytes(b"true\r\n")
    assert store.take(str(project)).tree == first.tree  # an id is of contents
    differs = git(Path(store.git_dir), "diff", "--name-only", first.tree, second.tree)
    assert differs.split() == ["new.py", "run.sh"]


def test_the_commit_and_how_many_files_are_not_as_in_it(project: Path, store: SourceStore) -> None:
    assert store.take(str(project)).changed == 1  # new.py
    (project / "new.py").unlink()
    git(project, "checkout", "-q", "--", ".")
    clean = store.take(str(project))
    assert (clean.changed, clean.commit) == (0, git(project, "rev-parse", "HEAD"))


def test_old_snapshots_are_let_go_and_later_ones_are_whole(project: Path, store: SourceStore) -> None:
    today = datetime.date(2030, 6, 1)
    old = store.keep(store.take(str(project)).tree, today - datetime.timedelta(days=snapshots.KEPT_DAYS + 1))
    (project / "new.py").write_text("x = 2\n")
    kept = store.keep(store.take(str(project)).tree, today)
    store.prune(today)
    refs = git(Path(store.git_dir), "for-each-ref", "--format=%(refname)").split()
    assert refs == [f"refs/snapshots/2030-06-01/{kept}"]
    git(Path(store.git_dir), "gc", "--quiet", "--prune=now")  # as if an hour had passed
    assert (store.has(old), store.has(kept)) == (False, True)
    (project / "new.py").write_text("x = 1\n")
    again = store.take(str(project)).tree
    assert again == old and "new.py" in store.diff(again, kept, patch=False)


def test_contents_that_were_let_go_are_packed_again(project: Path, store: SourceStore) -> None:
    first = store.take(str(project)).tree
    git(Path(store.git_dir), "gc", "--quiet", "--prune=now")
    assert not store.has(first)
    assert store.take(str(project)).tree == first and store.has(first)
    assert not store.has("../../etc") and not store.has("")


def test_packing_changes_nothing_in_the_users_repository(project: Path, store: SourceStore) -> None:
    def everything() -> dict[str, tuple[int, bytes]]:
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in (project / ".git").rglob("*") if p.is_file()}

    before = everything()
    store.take(str(project))
    assert everything() == before


def test_a_directory_without_git(tmp_path: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    directory = tmp_path / "plain"
    (directory / "sub").mkdir(parents=True)
    (directory / ".gitignore").write_text("big\n")
    (directory / "sub" / "a.py").write_text("1")
    (directory / "big").write_text("0")
    taken = store.take(str(directory))
    assert (taken.files, taken.left_out, taken.commit) == (2, ("big",), "")
    (directory / "sub" / "a.py").unlink()
    assert store.take(str(directory)).files == 1


def test_what_is_too_large_is_named(project: Path, store: SourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SIZE_LIMIT", 1 << 20)
    (project / "weights.pt").write_bytes(b"0" * (2 << 20))
    with pytest.raises(
        CommandError, match=r"has 2 MiB, and the limit is 1 MiB; .* weights\.pt \(2 MiB\): .* \.gitignore"
    ):
        store.take(str(project))
    with (project / ".gitignore").open("a") as file:
        file.write("weights.pt\n")
    copy = WorkingCopy.make(store, store.take(str(project)), "job")
    assert (Path(copy.path) / "weights.pt").stat().st_size == 2 << 20


def test_the_clusters_own_data_are_no_source(project: Path) -> None:
    store = SourceStore(str(project / "cluster"))
    first = store.take(str(project))
    WorkingCopy.make(store, first, "job")
    assert store.take(str(project)).tree == first.tree


def test_a_repository_within_is_linked(project: Path, store: SourceStore) -> None:
    (project / "library").mkdir()
    git(project / "library", "init", "-q")
    (project / "library" / "a.py").write_text("1")
    copy = WorkingCopy.make(store, store.take(str(project)), "job")
    assert os.readlink(Path(copy.path) / "library") == str(project / "library")
    assert copy.snapshot.nested_repositories() == ["library"]


def test_absolute_paths_of_source_files_lead_into_the_copy(project: Path, store: SourceStore) -> None:
    copy = WorkingCopy.make(store, store.take(str(project)), "job")
    real = [str(project / "data" / "x"), "/bin/sh", str(project / "none")]
    assert copy.redirect([str(project / "new.py"), *real]) == [f"{copy.path}/new.py", *real]


def test_what_is_installed_in_place_is_imported_from_the_copy(
    project: Path, store: SourceStore, tmp_path: Path
) -> None:
    (project / "src").mkdir()
    (project / "src" / "model.py").write_text("1")
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "venv" / "bin").mkdir()
    (tmp_path / "venv" / "bin" / "python").symlink_to("/bin/true")
    (site / "_model.pth").write_text(f"{project}/src\n")
    copy = WorkingCopy.make(store, store.take(str(project)), "job")
    environ = {"PATH": str(tmp_path / "venv" / "bin"), "PYTHONPATH": f"/opt/other:{project}"}
    assert copy.python_path(environ) == f"{copy.path}/src:/opt/other:{copy.path}"
    assert copy.python_path({"PATH": "/nope", "PYTHONPATH": "/opt/other"}) == ""


def test_copies_of_jobs_that_are_gone_go_unless_something_was_written(project: Path, store: SourceStore) -> None:
    snapshot = store.take(str(project))
    copies = {name: WorkingCopy.make(store, snapshot, name) for name in ("runs", "gone", "wrote")}
    for name, copy in copies.items():
        copy.belongs_to(name)
    (Path(copies["wrote"].path) / "outputs" / "result").write_text("dear")
    tidy_up(store, lambda workload: workload != "runs")
    assert os.path.isdir(copies["runs"].path) and not os.path.exists(copies["gone"].path)
    assert (Path(copies["wrote"].path) / "outputs" / "result").read_text() == "dear"
