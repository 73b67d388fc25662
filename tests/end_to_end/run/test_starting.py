"""How a newcomer starts rowlock: again, with `python -m`, out of a virtual environment, in a directory that is gone."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from tests.end_to_end.cluster import REPO, Cluster


def test_up_without_flags_has_the_nodes_and_gpus_of_last_time(cluster: Cluster) -> None:
    cluster.up("--nodes", "2", "--simulated-gpus", "3", "--network", "rewrite")
    cluster.run("rowlock", "down", "--yes")
    said = cluster.run("rowlock", "up", "-d")
    assert "Nodes and GPUs are those of the last start: --nodes 2 --simulated-gpus 3" in said
    assert "this one is without --network rewrite" in said
    status = cluster.json("rowlock", "status", "--json")
    assert [node["allocatable"]["nvidia.com/gpu"] for node in status["nodes"]] == ["3", "3"]
    assert "last start" not in cluster.run("rowlock", "up", "-d"), "it runs already"
    cluster.run("rowlock", "down", "--yes")
    said = cluster.run("rowlock", "run", "-g", "3", "-n", "2", "--", "true")
    assert "is completed" in said and "--nodes 2 --simulated-gpus 3" in said, "a server that `run` starts, too"
    cluster.run("rowlock", "down", "--yes")
    assert "without --simulated-gpus 3" in cluster.run("rowlock", "up", "-d", "--nodes", "1")


@pytest.fixture(scope="module")
def own_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel of this tree, the packages that it needs, and one that only this one has."""
    place = tmp_path_factory.mktemp("own")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(command, cwd=REPO, check=True, capture_output=True, timeout=200)
    venv.create(place / "venv", with_pip=False)
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    (packages / "only_here.py").write_text("WHERE = __file__\n")
    return place / "venv"


def test_python_m_rowlock_runs_programs_with_the_packages_of_its_virtual_environment(
    cluster: Cluster, own_venv: Path, tmp_path: Path
) -> None:
    python = str(own_venv / "bin" / "python")
    (tmp_path / "train.py").write_text("import only_here, rowlock\nprint(only_here.WHERE, rowlock.__file__)\n")
    (tmp_path / "bin").mkdir()  # a shell that knows no Python
    for name in ("sh", "env"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    for path in (f"{own_venv}/bin{os.pathsep}{cluster.env['PATH']}", str(tmp_path / "bin")):
        cluster.env["PATH"] = path
        said = cluster.run(python, "-m", "rowlock", "run", "-n", "2", "--", "python", "train.py", cwd=tmp_path)
        assert said.count(f"{own_venv}/lib/") == 4, f"two ranks, with both packages of it:\n{said}"
        assert "is completed" in said
    assert "PyTorch" in cluster.run(python, "-m", "rowlock", "list", cwd=tmp_path)
    assert "no command `lst`" in cluster.run(python, "-m", "rowlock", "lst", code=2, cwd=tmp_path)
    cluster.run(python, "-m", "rowlock", "down", "--yes", cwd=tmp_path)


@pytest.mark.parametrize(
    "line", ["rowlock run -- true", "rowlock run --source . -- true", "rowlock up --kubeconfig config", "rowlock run --working-dir x -- true"]
)  # fmt: skip
def test_a_working_directory_that_was_deleted_is_named(cluster: Cluster, tmp_path: Path, line: str) -> None:
    if "run" in line:
        cluster.up()
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec {line}'
    done = subprocess.run(["sh", "-c", script], env=cluster.env, capture_output=True, text=True, timeout=200)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    if "--working-dir" in line:
        assert 'the working directory "x" does not exist on this machine' in done.stderr
    else:
        assert f"the working directory {gone} was deleted: go to another one" in done.stderr


def test_a_working_directory_that_is_gone_when_the_job_begins_is_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up("--simulated-gpus", "1")
    gone = tmp_path / "gone"
    gone.mkdir()
    cluster.run("rowlock", "run", "-d", "--name", "first", "-g", "1", "--", "sleep", "600")
    cluster.run("rowlock", "run", "-d", "--name", "second", "-g", "1", "--working-dir", str(gone), "--", "true")
    gone.rmdir()
    cluster.run("rowlock", "delete", "first")
    sentence = f'could not start: the working directory "{gone}" does not exist on this machine'
    cluster.until(lambda: sentence in cluster.run("rowlock", "why", "second"), "the verdict names it", every=0.5)
    assert f'Error: the working directory "{gone}" does not exist' in cluster.run("rowlock", "describe", "second")
