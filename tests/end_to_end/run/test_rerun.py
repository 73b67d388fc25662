"""`rowlock rerun` and `rowlock diff`: a run once more, as it was or as its files are now, and what is different."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

TRAIN = """import os
print("{word}", os.environ.get("RATE"), os.environ.get("RATE_KEY"))
for step in (1, 2):
    print("step=%d loss=%g" % (step, float(os.environ["RATE"]) / step))
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("rerun")) as made:
        made.up()
        made.env["RATE_KEY"] = "k3y-of-the-shell"
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "train.py").write_text(TRAIN.format(word="first"))
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    return directory


def run(cluster: Cluster, project: Path, *words: str, code: int = 0) -> str:
    return cluster.run("rowlock", *words, code=code, cwd=project)


def test_a_run_again_and_what_differs(running: Cluster, project: Path) -> None:
    first = run(
        running, project, "run", "--name", "again", "-e", "RATE=1", "-e", "RATE_KEY", "--", "python", "train.py"
    )
    assert "[rank 0] first 1 k3y-of-the-shell" in first
    run(running, project, "rerun", "again", code=1)  # it is still there
    run(running, project, "delete", "--yes", "again")
    for command in ("describe", "why"):
        assert "It was deleted: `rowlock show again`" in run(running, project, command, "again", code=1)
    (project / "train.py").write_text(TRAIN.format(word="second"))
    assert "[rank 0] second 1 k3y-of-the-shell" in run(running, project, "rerun", "again")
    assert "[rank 0] first 2 k3y-of-the-shell" in run(
        running, project, "rerun", "again~1", "--exact", "--replace", "-e", "RATE=2"
    )
    newest = running.json("rowlock", "show", "again", "--json")
    assert newest["ran"]["code"]["source"] == str(project) and newest["projectName"] == "default"

    said = run(running, project, "diff", "again~2", "again~1", "--code")
    assert "The requests are the same." in said and "Packages: the same." in said
    assert '-print("first"' in said and '+print("second"' in said
    told = running.json("rowlock", "diff", "again~2", "again", "--json")
    assert told["request"] == {"env.RATE": ["1", "2"]} and told["metrics"] == {"loss": [0.5, 1.0]}
    assert told["code"] == {"commits": [None, None], "diff": "", "note": ""}


def test_as_it_was_in_a_repository_that_went_on_and_one_that_is_gone(running: Cluster, project: Path) -> None:
    def git(*words: str) -> str:
        words = ("-c", "user.name=a", "-c", "user.email=a@b", *words)
        return subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, text=True).stdout.strip()

    (project / ".gitignore").write_text("data\n")
    (project / "data").write_text("ignored")
    git("add", ".")
    git("commit", "-qm", "one")
    then = git("rev-parse", "HEAD")
    (project / "helper.py").write_text("word = 'uncommitted'")
    (project / "train.py").write_text("import helper, os; print(helper.word, os.path.exists('data'))")
    run(running, project, "run", "--name", "went", "--", "python", "train.py")
    (project / "helper.py").unlink()
    git("commit", "-qam", "two")

    def again(name: str, directory: Path) -> str:
        said = run(running, directory, "rerun", "went", "--exact", "--name", name)
        assert f"(3 files, commit {then[:10]} with changes)" in said
        ran = running.json("rowlock", "show", name, "--json")["ran"]
        assert ran["code"]["commit"] == then and ran["commandLine"] == f"rowlock rerun went --exact --name {name}"
        return said

    assert "[rank 0] uncommitted True" in again("went-on", project)
    project.rename(project.parent / "elsewhere")
    refused = run(running, project.parent, "rerun", "went", "--name", "went-to", code=1)
    assert "is not there any more: make it again, rerun with --exact" in refused
    said = again("went-away", project.parent)
    assert "[rank 0] uncommitted False" in said
    assert f"warning: {project} is not there any more: the copy has no data sets" in said


def test_a_pythonpath_of_the_users_own_leads_into_the_copy_and_comes_again(running: Cluster, project: Path) -> None:
    module = project / "src" / "lab.py"
    module.parent.mkdir()
    module.write_text("word = 'then'")
    program = "import lab, time; print(lab.word, lab.__file__)"
    for name, value in (("relative", "src"), ("absolute", str(project / "src"))):
        line = ("run", "--name", name, "--source", ".", "-e", f"PYTHONPATH={value}", "--", "python", "-c", program)
        module.write_text("word = 'then'")
        assert f"then {project}" not in (said := run(running, project, *line)) and "[rank 0] then " in said
        module.write_text("word = 'now'")
        assert "[rank 0] now " in run(running, project, "rerun", name, "--name", f"{name}-2")
        assert "[rank 0] then " in run(running, project, "rerun", name, "--exact", "--name", f"{name}-3")
        assert "The requests are the same." in run(running, project, "diff", name, f"{name}-3")
    run(running, project, "run", "--name", "live", "-e", "PYTHONPATH=src", "--", "python", "-c", program)
    run(running, project, "rerun", "live", "--exact", "--name", "live-2")
    assert "The requests are the same." in run(running, project, "diff", "live", "live-2")


def test_values_that_were_not_kept_are_asked_for(running: Cluster, project: Path) -> None:
    run(running, project, "run", "--name", "secret", "--rm", "-e", "MY_TOKEN=abcdef", "--", "true")
    refused = run(running, project, "rerun", "secret", code=1)
    assert "the value of MY_TOKEN is secret and was not kept: export MY_TOKEN, or give --env MY_TOKEN=VALUE" in refused
    assert "Run again: secret" in run(running, project, "rerun", "secret", "-e", "MY_TOKEN=other", "--rm")


def test_what_cannot_be_as_it_was(running: Cluster, project: Path, tmp_path: Path) -> None:
    run(running, tmp_path, "run", "--name", "bare", "--rm", "--", "true")
    assert "--exact: no snapshot of its code was kept" in run(running, project, "rerun", "bare", "--exact", code=1)
    pod = {"containers": [{"name": "pytorch", "image": "host", "command": ["true"]}]}
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": pod}}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "applied"}, "spec": spec}
    running.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs", job)
    running.run("rowlock", "wait", "applied", "--timeout", "200s")
    assert "so no request of it was kept: apply its manifest again" in run(running, project, "rerun", "applied", code=1)
    manifest = running.json("rowlock", "show", "applied", "--json")["manifest"]
    assert manifest["kind"] == "PyTorchJob" and manifest["metadata"]["name"] == "applied"
    assert "needs two runs" in run(running, project, "diff", "bare", code=2)
    assert "There is no run nope" in run(running, project, "diff", "bare", "nope", code=1)


def test_a_job_says_where_its_checkpoints_are_and_when_there_are_none_any_more(running: Cluster) -> None:
    running.run("rowlock", "run", "--name", "saves", "--", "sh", "-c", 'echo 1 > "$ROWLOCK_CHECKPOINT_DIR/one"')
    (file,) = (running.data / "checkpoints").glob("*/one")
    place = file.parent
    assert f"{place} (1 file, the newest " in running.run("rowlock", "describe", "saves")
    shutil.rmtree(place)
    assert f"{place} (does not exist)" in running.run("rowlock", "describe", "saves")
