"""`stdinOnce`: the stdin of a container ends with the first client that was attached to it, however that one leaves."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.kubectl.walks import kubectl, missing

PODS = "/api/v1/namespaces/runai-default/pods"
READ = "while read line; do echo got $line; done; echo over"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not kubectl():
        pytest.skip(missing())
    with lent(tmp_path_factory.mktemp("once")) as made:
        made.up()
        yield made


@pytest.fixture(params=["true", "false"], ids=["websockets", "SPDY"])
def place(shared: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """With a kubectl that speaks one of the two."""
    return Cluster(shared.data, {**shared.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": request.param})


@contextmanager
def reading(cluster: Cluster, name: str, *, once: bool) -> Iterator[str]:
    """A pod that tells what it reads, and when that ends; gone afterwards."""
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", READ], "stdin": True}
    spec = {"restartPolicy": "Never", "containers": [{**container, "stdinOnce": once}]}
    cluster.api("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    try:
        cluster.until(lambda: phase(cluster, name) == "Running", f"{name} to run")
        yield name
    finally:
        cluster.api("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def phase(cluster: Cluster, pod: str) -> str:
    return str(cluster.api("GET", f"{PODS}/{pod}")["status"].get("phase"))


def log_of(cluster: Cluster, pod: str) -> str:
    return cluster.run(kubectl(), "logs", pod)


def say(cluster: Cluster, pod: str, words: str) -> None:
    """Attaches, says it, and leaves when there is nothing more to say."""
    argv = (kubectl(), "attach", "-i", "-q", pod)
    with subprocess.Popen(
        argv, env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as one:
        assert one.stdin is not None
        one.stdin.write(words.encode())
        one.stdin.close()
        cluster.until(lambda: f"got {words.strip()}" in log_of(cluster, pod), f"{words!r} to arrive")
        one.kill()


def test_the_first_client_that_finishes_ends_the_input(place: Cluster) -> None:
    with reading(place, "once", once=True) as pod:
        done = subprocess.run(
            (kubectl(), "attach", "-i", "-q", pod), env=place.env, input=b"a\nb\n", capture_output=True, timeout=60
        )
        assert done.returncode == 0 and done.stdout.endswith(b"over\n"), done
        place.until(lambda: phase(place, pod) == "Succeeded", "the pod to end")
        assert log_of(place, pod) == "got a\ngot b\nover\n"


def test_a_client_that_is_killed_ends_the_input(place: Cluster) -> None:
    with reading(place, "killed", once=True) as pod:
        argv = (kubectl(), "attach", "-i", "-q", pod)
        with subprocess.Popen(argv, env=place.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdin is not None
            client.stdin.write(b"a\n")
            client.stdin.flush()
            place.until(lambda: "got a" in log_of(place, pod), "the first line")
            assert phase(place, pod) == "Running"
            client.kill()
        place.until(lambda: phase(place, pod) == "Succeeded", "the pod to end")


def test_who_only_listens_ends_nothing(place: Cluster) -> None:
    with reading(place, "heard", once=True) as pod:
        argv = (kubectl(), "attach", "-q", pod)
        with subprocess.Popen(argv, env=place.env, stdout=subprocess.PIPE) as listener:
            say_argv = (kubectl(), "attach", "-i", "-q", pod)
            with subprocess.Popen(say_argv, env=place.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as speaker:
                assert speaker.stdin is not None
                speaker.stdin.write(b"a\n")
                speaker.stdin.flush()
                place.until(lambda: "got a" in log_of(place, pod), "the first line")
                listener.kill()
                speaker.stdin.write(b"b\n")
                speaker.stdin.flush()
                place.until(lambda: "got b" in log_of(place, pod), "the second line")
                assert phase(place, pod) == "Running"
                speaker.stdin.close()
        place.until(lambda: phase(place, pod) == "Succeeded", "the pod to end")


def test_without_it_the_input_never_ends(place: Cluster) -> None:
    with reading(place, "again", once=False) as pod:
        say(place, pod, "a\n")
        say(place, pod, "b\n")
        assert log_of(place, pod) == "got a\ngot b\n" and phase(place, pod) == "Running"


def test_run_with_rm_ends_with_its_input(place: Cluster) -> None:
    flags = ("--image=rowlock.dev/host", "--restart=Never", "--rm", "-i", "-q", "--command", "--", "sh", "-c", READ)
    done = subprocess.run(
        (kubectl(), "run", "quick", *flags), env=place.env, input=b"a\n", capture_output=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout == b"got a\nover\n", done
    assert "quick" not in place.run(kubectl(), "get", "pods")
