"""`rowlock run` as a person at a terminal has it: every rank is heard to its end, and Ctrl-C asks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent, make
from tests.end_to_end.run.terminal import Terminal

from rowlock.cli import main
from rowlock.cli.commands.tree import ROOT
from rowlock.cli.run import command as run

LONG = ("sh", "-c", "echo it runs; sleep 600")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("run")) as made:
        made.up()
        yield made


def interrupted(cluster: Cluster, name: str) -> Terminal:
    """A run on a terminal, at the question that Ctrl-C brings."""
    terminal = Terminal(cluster, "rowlock", "run", "--name", name, "--", *LONG)
    terminal.hear(b"[rank 0] it runs")
    terminal.type(b"\x03")
    terminal.hear(b"[s/d/x] ")
    return terminal


def jobs(cluster: Cluster) -> list[str]:
    return [job["name"] for job in cluster.json("rowlock", "list", "--json")]


def phase(cluster: Cluster, name: str) -> str:
    return str(cluster.json("rowlock", "describe", name, "--json")["phase"])


@pytest.mark.parametrize("keys", [b"x\n", b"delete\n"])
def test_ctrl_c_and_delete(running: Cluster, keys: bytes) -> None:
    terminal = interrupted(running, "deleted")
    for answer in (b"what?\n", b"xyz\n", b"don't\n"):
        terminal.type(answer)
        terminal.hear(b"[s/d/x] ")  # an answer that is none of them is asked for again
    terminal.type(keys)
    terminal.hear(b"Job deleted is stopped and deleted.")
    assert terminal.end() == 130
    assert "deleted" not in jobs(running)


def test_ctrl_c_and_stop_keeps_the_job(running: Cluster) -> None:
    terminal = interrupted(running, "stopped")
    terminal.type(b"s\n")
    terminal.hear(b"Job stopped is stopped. `rowlock resume stopped` starts it again")
    assert terminal.end() == 130
    assert phase(running, "stopped") == "Stopped"
    assert "[rank 0] it runs\n" in running.run("rowlock", "logs", "stopped")
    running.run("rowlock", "resume", "stopped")
    running.run("rowlock", "wait", "stopped", "--for", "running")
    running.run("rowlock", "delete", "stopped")


@pytest.mark.parametrize("keys", [b"\x03", b"s\n\x03"], ids=["at the question", "while it stops"])
def test_a_second_ctrl_c_stops_programs_that_do_not_want_to(running: Cluster, keys: bytes) -> None:
    stubborn = "trap '' TERM; echo it runs; while true; do sleep 1; done"
    terminal = Terminal(running, "rowlock", "run", "--name", "stubborn", "--grace", "1h", "--", "sh", "-c", stubborn)
    terminal.hear(b"[rank 0] it runs")
    terminal.type(b"\x03")
    terminal.hear(b"[s/d/x] ")
    terminal.type(keys[:2])
    if keys[2:]:
        terminal.hear(b"Job stubborn is being stopped; Ctrl-C stops it at once.")
        terminal.type(keys[2:])
    terminal.hear(b"Job stubborn is stopped.")  # well before the hour that the program has to end
    assert terminal.end() == 130
    assert phase(running, "stubborn") == "Stopped"
    running.run("rowlock", "delete", "stubborn")


@pytest.mark.parametrize(("name", "keys"), [("detached", b"d\n"), ("in-a-word", b"detach\n"), ("ctrl-d", b"\x04")])
def test_ctrl_c_and_detach(running: Cluster, name: str, keys: bytes) -> None:
    terminal = interrupted(running, name)
    terminal.type(keys)
    terminal.hear(f"Job {name} goes on. Follow it: `rowlock logs -f {name}`".encode())
    assert terminal.end() == 0
    assert name in jobs(running)
    running.run("rowlock", "delete", name)


@pytest.mark.parametrize("flags", [(), ("--rm",)])
def test_without_a_terminal_an_interrupt_stops_the_job(running: Cluster, flags: tuple[str, ...]) -> None:
    argv = ["rowlock", "run", "--name", "piped", *flags, "--", *LONG]
    with subprocess.Popen(
        argv, env=running.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "[rank 0] it runs\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 130
    if flags:
        assert "piped" not in jobs(running)
    else:
        assert phase(running, "piped") == "Stopped"
        running.run("rowlock", "delete", "piped")


def test_a_run_that_is_terminated_says_that_the_job_goes_on(running: Cluster) -> None:
    argv = ["rowlock", "run", "--name", "left", "--", *LONG]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, env=running.env, text=True, **streams) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "[rank 0] it runs\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 143
        told = process.stderr.read().splitlines()
    assert told[-1] == ("Job left goes on. Follow it: `rowlock logs -f left`; stop it: `rowlock delete left`")
    assert "left" in jobs(running)
    running.run("rowlock", "delete", "left")


def test_who_reads_no_further_is_told_that_the_job_goes_on(running: Cluster) -> None:
    line = "rowlock run --name cut -- sh -c 'while true; do echo again; sleep 0.02; done' | head -2"
    said = running.run("bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}", code=141)
    assert said.count("[rank 0] again") == 2 and "Job cut goes on. Follow it: `rowlock logs -f cut`" in said
    running.run("rowlock", "delete", "cut")


def test_a_terminal_is_told_what_comes_next(running: Cluster) -> None:
    terminal = Terminal(running, "rowlock", "run", "--name", "next", "--", "false")
    terminal.hear(b"Next: `rowlock why next`, `rowlock logs next`, `rowlock rerun next --replace`.")
    assert terminal.end() == 1
    assert "Next:" not in running.run("rowlock", "run", "--rm", "--", "true")


def test_another_interpreter_is_named(running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    said = running.run("rowlock", "run", "--rm", "--", "python", "-c", "pass")
    assert "Its interpreter" not in said
    monkeypatch.setitem(running.env, "PATH", f"{tmp_path}:{running.env['PATH']}")
    said = running.run("rowlock", "run", "--rm", "--", "python", "-c", "pass")
    assert f"Its interpreter is {python} (Python {sys.version.split()[0]})." in said


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt, 130), (run.Terminated, 143)])
@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("find_server", "Interrupted: nothing was submitted.\n"),
        ("_submit", "Interrupted: whether job j was submitted is unknown: `rowlock list -p b --data-dir D` shows it.\n"),
        ("follow_run", "Job j goes on. Follow it: `rowlock logs -f j -p b --data-dir D`; stop it: `rowlock delete j -p b --data-dir D`"),
    ],
)  # fmt: skip
def test_an_interruption_says_what_became_of_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str, told: str,
    end: type[BaseException], code: int,
) -> None:  # fmt: skip
    def ends(*_: object) -> None:
        raise end

    if step == "follow_run" and end is KeyboardInterrupt:
        return  # it asks: the tests above
    monkeypatch.setattr(run, "find_server", lambda line: None)
    monkeypatch.setattr(run, "_submit", lambda *_: {"name": "j", "workloadId": "1"})
    monkeypatch.setattr(run, step, ends)
    argv = ["run", "--name", "j", "-p", "b", "--data-dir", "/d", "--", "true"]
    assert main.run(ROOT, argv, ()) == code
    assert told.replace("D", "/d") in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def pods_at_work(running: Cluster, job: str) -> list[str]:
    pods = running.api("GET", "/api/v1/namespaces/runai-default/pods")["items"]
    mine = [p for p in pods if p["metadata"]["name"].startswith(f"{job}-")]
    return [p["metadata"]["name"] for p in mine if p["status"].get("phase") not in ("Succeeded", "Failed")]


def test_a_job_gives_up_after_so_many_restarts_and_has_the_code_of_the_rank_that_died(running: Cluster) -> None:
    script = "test $(cat tries | wc -l) = 3 && sleep 600; echo >> tries; exit 4"
    argv = ["rowlock", "run", "--name", "tries", "--backoff-limit", "2", "--working-dir", str(running.data.parent)]
    said = running.run(*argv, "--", "sh", "-c", f"touch tries; {script}", code=4)
    assert "ended with exit code 4" in said, said
    assert len((running.data.parent / "tries").read_text().splitlines()) == 3, "it was started again twice"
    running.until(lambda: not pods_at_work(running, "tries"), "the failed job to hold nothing")
    running.run("rowlock", "delete", "tries")


@pytest.mark.parametrize("words", ["training pytorch submit", "submit-dist pytorch --name"])
def test_a_job_of_either_runai_that_has_failed_leaves_no_pod_in_a_loop(running: Cluster, words: str) -> None:
    name = f"loops-{len(words)}"
    line = ("runai", *words.split(), name, "--workers", "1", "-i", "rowlock.dev/host", "--backoff-limit", "1")
    running.run(*line, "--", "sh", "-c", "exit 3")
    running.run("rowlock", "wait", name, "--for", "Failed", "--timeout", "200s")
    running.until(lambda: not pods_at_work(running, name), "the failed job to hold nothing")
    running.run("rowlock", "delete", name)


def test_ranks_that_outlive_the_master_are_heard_to_their_end(running: Cluster) -> None:
    script = "echo first; test $RANK = 0 && exit 0; sleep 3; echo last words; exit 5"
    said = running.run("rowlock", "run", "-n", "2", "--rm", "--", "sh", "-c", script, code=5)
    assert {"[rank 0] first", "[rank 1] first", "[rank 1] last words"} <= set(said.splitlines())
    assert re.search(
        r"is completed: It completed, but before that: rank 1 \(pod .*-worker-0, node .*\) ended with exit code 5", said
    )


def test_a_rank_that_would_run_on_after_a_failure_is_stopped(running: Cluster) -> None:
    script = "test $RANK = 0 && sleep 600; exit 3"
    said = running.run("rowlock", "run", "-n", "2", "--name", "half", "--", "sh", "-c", script, code=3)
    assert "rank 1 (pod half-worker-0" in said and "lost it" not in said, said
    running.until(lambda: not pods_at_work(running, "half"), "the failed job to hold nothing")
    why = running.run("rowlock", "why", "half")
    assert "ended with exit code 3" in why and "rank 0 was then stopped" in why, why
    running.run("rowlock", "delete", "half")


def test_the_command_arrives_as_it_was_typed(running: Cluster) -> None:
    script = 'test $$ -gt 1 && echo "$(echo one) $((1 + 1)) a b"'
    assert "[rank 0] one 2 a b" in running.run("rowlock", "run", "--rm", "--", "sh", "-c", script)


def test_a_server_in_the_foreground_says_what_goes_on_without_it(running: Cluster, tmp_path: Path) -> None:
    other = make(tmp_path / "a directory with 'quotes' and $pace", tmp_path)
    argv = ["rowlock", "up"]
    with subprocess.Popen(argv, env=other.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None and server.stdout.readline().startswith("rowlock serves https://")
            other.run("rowlock", "run", "-d", "--name", "long", "--", *LONG)
            other.run("rowlock", "wait", "long", "--for", "running", "--timeout", "200s")
            server.send_signal(signal.SIGINT)
            assert "1 pod keeps running: `rowlock up` finds it" in server.stdout.read() and server.wait(90) == 0
        finally:
            server.kill()
    other.up()
    assert other.json("rowlock", "describe", "long", "--json")["phase"] == "Running"
    said = other.run("rowlock", "down", "--yes")
    assert "1 unfinished job was stopped" in said and "`rowlock up -d" in said and "`rowlock resume" in said


def test_a_server_that_dies_under_a_run_leaves_the_job(running: Cluster) -> None:
    argv = ["rowlock", "run", "--name", "survivor", "--", *LONG]
    with subprocess.Popen(
        argv, env=running.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "[rank 0] it runs\n"
        os.kill(running.pid, signal.SIGKILL)
        assert process.wait(90) == 1
        last = process.stderr.read().splitlines()[-1]
    running.up()  # first of all: else a test that fails leaves the pod host behind
    assert last == (
        "the server has stopped; job survivor goes on, unless `rowlock down` stopped it: start the server again "
        "(`rowlock up -d`), then follow the job: `rowlock logs -f survivor`"
    )
    assert running.json("rowlock", "describe", "survivor", "--json")["phase"] == "Running"
    running.run("rowlock", "delete", "survivor")
