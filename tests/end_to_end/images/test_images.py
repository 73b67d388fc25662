"""Images as a user has them: built, run as they are, entered, copied from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

from rowlock.kubelet.images.build import rootfs_problem

DOCKERFILE = """FROM python
WORKDIR /srv/code
COPY program.sh .
ENV GREETING=hello
CMD ["/bin/sh", "program.sh"]
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("images")) as made:
        made.up()
        yield made


@pytest.fixture
def image(shared: Cluster, tmp_path: Path) -> str:
    if problem := rootfs_problem(tmp_path / "probe"):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / "program.sh").write_text(
        'echo "$GREETING from $PWD, rank $RANK"; echo left > made; [ -z "$STAY" ] || sleep 600\n'
    )
    shared.run("rowlock", "build", "-t", "team/greeter", str(context))
    return "team/greeter"


def test_an_image_runs_as_it_is(shared: Cluster, image: str) -> None:
    said = shared.run("rowlock", "run", "-i", image, "-n", "2", "--rm")
    assert {"[rank 0] hello from /srv/code, rank 0", "[rank 1] hello from /srv/code, rank 1"} <= set(said.splitlines())
    said = shared.run("rowlock", "run", "-i", image, "--rm", "--", "sh", "-c", "pwd; ls")
    assert {"[rank 0] /srv/code", "[rank 0] program.sh"} <= set(said.splitlines()) and "made" not in said


def test_exec_sees_what_the_program_sees(shared: Cluster, image: str) -> None:
    shared.run("rowlock", "run", "-i", image, "--name", "stays", "--env", "STAY=1", "--detach")
    try:
        shared.run("rowlock", "wait", "stays", "--for", "running")
        shared.until(lambda: "hello" in shared.run("rowlock", "logs", "stays"), "the greeting")
        assert shared.run("rowlock", "exec", "stays", "--", "cat", "/srv/code/made") == "left\n"
        shared.run("rowlock", "exec", "stays", "--", "touch", "/rowlock-exec-was-here")
        assert not Path("/rowlock-exec-was-here").exists()
        data = shared.run("rowlock", "exec", "stays", "--", "ls", str(shared.data))
        assert "token" not in data and "cluster.db" not in data, "the cluster's secrets are not the pod's"
    finally:
        shared.run("rowlock", "delete", "stays")


SERVER = "import http.server as h; h.HTTPServer(('0.0.0.0', 8765), h.SimpleHTTPRequestHandler).serve_forever()"


def test_probes_and_hooks_see_the_files_of_the_image(shared: Cluster, image: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    goes = "pwd > /out/gone; cat /srv/code/hooked program.sh >> /out/gone"
    container = {
        "name": "main",
        "image": image,
        "command": ["python3", "-c", SERVER],  # it serves its working directory, which is the image's
        "startupProbe": {
            "exec": {"command": ["cat", "/srv/code/program.sh"]},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
        "readinessProbe": {"httpGet": {"port": 8765, "path": "/hooked"}, "periodSeconds": 1},
        "livenessProbe": {"tcpSocket": {"port": 8765}, "periodSeconds": 1},
        "lifecycle": {
            "postStart": {"exec": {"command": ["sh", "-c", "echo from postStart > hooked"]}},
            "preStop": {"exec": {"command": ["sh", "-c", goes]}},
        },
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    pods = "/api/v1/namespaces/runai-default/pods"
    spec = {
        "containers": [container],
        "volumes": [{"name": "out", "hostPath": {"path": str(out)}}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 20,
    }
    shared.api("POST", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probed"}, "spec": spec})

    def is_ready() -> bool:
        conditions = shared.api("GET", f"{pods}/probed")["status"].get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    shared.until(is_ready, "the probes to succeed")
    shared.api("DELETE", f"{pods}/probed")
    shared.until((out / "gone").exists, "the hook before the end")
    shared.until(lambda: "STAY" in (out / "gone").read_text(), "the image's program in what the hook wrote")
    lines = (out / "gone").read_text().splitlines()
    assert lines[:2] == ["/srv/code", "from postStart"]
    assert not Path("/srv/code/hooked").exists() and not Path("/out").exists()
