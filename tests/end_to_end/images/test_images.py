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
