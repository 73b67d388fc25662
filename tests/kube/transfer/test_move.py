"""`rowlock move`: a run of the embedded cluster goes to another cluster, with its code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent

from rowlock.errors import BadRequest
from rowlock.kube.transfer.moved_job import MAX_CODE_BYTES, MoveOptions, code_object, moved_request

HOST = {
    "image": "rowlock.dev/host",
    "noWorkers": True,
    "command": ["/opt/venv/bin/python", "/code/train.py", "/data/x"],
}


def request(**spec: Any) -> dict[str, Any]:
    return {"name": "j", "projectId": "default", "spec": {**HOST, "workingDir": "/code/sub", **spec}}


def test_paths_of_the_code_lead_to_it_and_the_rest_is_said() -> None:
    moved, notes = moved_request(
        request(environmentVariables=[{"name": "PYTHONPATH", "value": "/code/lib:/code2/lib"}]),
        ["/code"],
        MoveOptions(image="torch:2"),
    )
    worker = moved.master
    assert (worker.image, worker.working_dir) == ("torch:2", "/rowlock/source/sub")
    assert list(worker.command) == ["python", "/rowlock/source/train.py", "/data/x"]
    assert "/rowlock/source/lib:/code2/lib" in json.dumps(moved.body)
    assert len(notes) == 2 and "/opt/venv/bin/python" in notes[0] and "/data/x" in notes[1]


def test_programs_of_this_machine_need_an_image() -> None:
    with pytest.raises(BadRequest, match="--image"):
        moved_request(request(), ["/code"], MoveOptions())


def test_values_that_were_not_kept_are_refused() -> None:
    secret = request(environmentVariables=[{"name": "API_TOKEN", "value": "(not kept)"}])
    with pytest.raises(BadRequest, match="secret"):
        moved_request(secret, [], MoveOptions(image="x"))


def test_code_that_no_config_map_holds_is_refused() -> None:
    with pytest.raises(BadRequest, match="rowlock build"):
        code_object("j", "n", "0123456789", b"x" * (MAX_CODE_BYTES + 1))


# ------------------------------------------------------------ from one cluster to another


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """An embedded cluster where a job of a source directory has run, was deleted, and is in the archive only."""
    source = tmp_path_factory.mktemp("source")
    (source / "train.py").write_text("import lib.words\nprint(lib.words.GREETING)\n")
    (source / "lib").mkdir()
    (source / "lib" / "words.py").write_text("GREETING = 'hello from the moved code'\n")
    with lent(tmp_path_factory.mktemp("here")) as made:
        made.up("--warm-start", "off")
        made.run(
            "rowlock",
            "run",
            "--rm",
            "--source",
            str(source),
            "--name",
            "walks",
            "--",
            "python3",
            "train.py",
            cwd=source,
        )
        yield made, source


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def there(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A server over the other cluster, with the project `default`; and the kubeconfig that leads to that cluster."""
    directory = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "embedded":
            kubeconfig = stack.enter_context(embedded_server(directory, "rowlock.serve", "--warm-start", "off"))
        else:
            if missing := real_cluster_missing(operator=True):
                pytest.skip(missing)
            kubeconfig = stack.enter_context(real_cluster(directory, "--operator"))
        served = stack.enter_context(lent(tmp_path_factory.mktemp("there")))
        served.up("--kubeconfig", str(kubeconfig), "--install-crds")
        if request.param == "real":
            served.run("rowlock", "project", "create", "default")
        yield served, kubeconfig


def context_of(kubeconfig: Path) -> str:
    said = subprocess.run(
        ["python3", "-c", "import sys, yaml; print(yaml.safe_load(open(sys.argv[1]))['current-context'])", str(kubeconfig)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return said.stdout.strip()


def test_a_run_that_is_gone_is_moved_with_its_code(here: tuple[Cluster, Path], there: tuple[Cluster, Path]) -> None:
    (home, source), (served, kubeconfig) = here, there
    (source / "lib" / "words.py").write_text("GREETING = 'not this one'\n")
    to = ("--to", context_of(kubeconfig), "--kubeconfig", str(kubeconfig))
    assert "--image" in home.run("rowlock", "move", "walks", *to, code=1)
    image = ("--image", "rowlock.dev/host")
    if not served.api("GET", "/api/v1/nodes")["items"]:
        refused = home.run("rowlock", "move", "walks", *to, *image, code=1)
        assert "'rowlock.dev/host' means the programs of one machine" in refused
        image = ("--image", "localhost/host:1")
    assert "has no project 'nowhere'" in home.run(
        "rowlock", "move", "walks", *to, *image, "--to-project", "nowhere", code=1
    )
    planned = home.json("rowlock", "move", "walks", *to, *image, "--dry-run")
    assert [obj["kind"] for obj in planned] == ["ConfigMap", "PyTorchJob"]
    assert served.json("rowlock", "list", "--json") == [], "a dry run made something"

    said = home.run("rowlock", "move", "walks", *to, *image)
    assert "submitted to project default" in said and "variables of your shell stay here" in said
    again = home.run("rowlock", "move", "walks", *to, *image, code=1)
    assert "has a PyTorchJob walks already" in again and "--name" in again
    names = [n["metadata"]["name"] for n in served.api("GET", "/api/v1/namespaces/runai-default/configmaps")["items"]]
    assert len([name for name in names if name.startswith("walks-source-")]) == 1, "a refused move left its code behind"
    if served.api("GET", "/api/v1/nodes")["items"]:  # programs run there
        served.until(
            lambda: "hello from the moved code" in served.run("rowlock", "logs", "walks", code=None), "it runs there"
        )


def test_a_job_that_is_here_goes_only_when_that_was_asked(
    here: tuple[Cluster, Path], there: tuple[Cluster, Path]
) -> None:
    (home, _), (_, kubeconfig) = here, there
    name = f"stays-{kubeconfig.parent.name[:4]}"
    home.run("runai", "submit-dist", "pytorch", name, "-i", "nothing:1", "--workers=1", "-p", "default")
    to = ("--to", context_of(kubeconfig), "--kubeconfig", str(kubeconfig))
    assert "is here as well" in home.run("rowlock", "move", name, *to)
    moved = home.json("rowlock", "move", name, *to, "--name", "second", "--delete-here", "--json")
    assert (moved["name"], moved["project"], moved["context"], moved["deletedHere"]) == (
        "second",
        "default",
        to[1],
        True,
    )
    home.until(lambda: name not in home.run("rowlock", "list"), "it is gone here")


def test_what_cannot_be_meant_is_one_sentence(here: tuple[Cluster, Path], tmp_path: Path) -> None:
    home, _ = here
    assert "--to CONTEXT" in home.run("rowlock", "move", "walks", code=2)
    nowhere = home.run("rowlock", "move", "walks", "--to", "x", "--kubeconfig", str(tmp_path / "none"), code=2)
    assert "there is no kubeconfig" in nowhere
