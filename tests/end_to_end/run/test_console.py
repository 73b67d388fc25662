"""`rowlock run`: what is piped in reaches the first rank, a terminal is passed on, and the shell's environment goes along."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.end_to_end.run.terminal import Terminal

SHOW = "import os, sys; print(*(os.environ.get(name, '-') for name in sys.argv[1:]))"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("console")) as made:
        made.env["STARTED_THE_SERVER"] = "yes"
        made.up()
        del made.env["STARTED_THE_SERVER"]
        yield made


def piped(cluster: Cluster, text: bytes, *argv: str) -> str:
    done = subprocess.run(["rowlock", "run", *argv], env=cluster.env, input=text, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_the_first_rank_reads_what_is_piped_in_and_the_others_nothing(running: Cluster) -> None:
    lines = b"".join(b"%d\n" % number for number in range(100_000))
    said = piped(running, lines, "-n", "2", "--rm", "--", "sh", "-c", "cat | wc -lc").splitlines()
    assert sorted(line.split() for line in said) == [
        ["[rank", "0]", "100000", str(len(lines))],
        ["[rank", "1]", "0", "0"],
    ]


def test_a_program_that_reads_nothing_does_not_wait_for_who_writes(running: Cluster) -> None:
    with subprocess.Popen(
        ["rowlock", "run", "--rm", "--", "echo", "done"], env=running.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.read() == b"[rank 0] done\n"
        assert process.wait(90) == 0  # though nobody has closed its stdin


NOT_PASSED_ON = (
    "What is piped in reaches no rank",
    "What is piped in is not passed on: --attach does that, or `rowlock attach held",
)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("rowlock", "run", "-d", "--name", "held", "--", "true"), NOT_PASSED_ON[0]),
        (("runai", "submit", "held", "-i", "rowlock.dev/host", "--stdin", "--", "true"), NOT_PASSED_ON[1]),
    ],
)
def test_who_pipes_into_a_job_that_reads_nothing_is_told(
    running: Cluster, tmp_path: Path, argv: tuple[str, ...], said: str
) -> None:
    """And nobody who pipes nothing, or whose shell reads the file on."""
    (tmp_path / "list").write_text("one\ntwo\n")

    def submit(command: tuple[str, ...], text: bytes) -> str:
        done = subprocess.run(command, env=running.env, input=text, capture_output=True, timeout=200)
        assert done.returncode == 0, done.stderr
        running.run("rowlock", "delete", "held")
        return done.stderr.decode()

    assert said in submit(argv, b"one\ntwo\n")
    assert said in submit(("sh", "-c", f'"$@" < {tmp_path / "list"}', "sh", *argv), b"")
    assert said not in submit(argv, b"")
    assert said not in submit(("sh", "-c", f'{{ read -r _; "$@"; }} < {tmp_path / "list"}', "sh", *argv), b"")


def test_a_python_prompt_on_a_terminal(running: Cluster) -> None:
    terminal = Terminal(running, "rowlock", "run", "-it", "--name", "prompt", "--", "python", "-i", "-q")
    terminal.hear(b">>> ")
    terminal.type(b"import sys; print(sys.stdin.isatty(), 6 * 7)\n")
    terminal.hear(b"True 42")
    terminal.type(b"exit(3)\n")
    terminal.hear(b"Job prompt is failed")
    assert terminal.end() == 3


def test_a_breakpoint_of_one_rank(running: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nrank = os.environ['RANK']\nif rank == '1':\n    breakpoint()\nprint('rank', rank, 'goes on')\n"
    )
    terminal = Terminal(
        running, "rowlock", "run", "-n", "2", "--debug", "1", "--name", "stop", "--", "python", str(script)
    )
    terminal.hear(b"(Pdb) ")
    terminal.type(b"p 'it is ' + rank\n")
    terminal.hear(b"'it is 1'")
    terminal.type(b"c\n")
    terminal.hear(b"rank 1 goes on")
    terminal.hear(b"Job stop is completed")
    assert terminal.end() == 0


def test_a_program_that_ends_at_once_has_its_output_and_its_code(running: Cluster) -> None:
    terminal = Terminal(running, "rowlock", "run", "-t", "--rm", "--", "sh", "-c", "echo it\\'s me; exit 4")
    terminal.hear(b"it's me")
    terminal.hear(b"exit code 4")
    assert terminal.end() == 4


def test_the_other_ranks_are_heard_when_the_one_at_the_terminal_has_ended(running: Cluster, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "if os.environ['RANK'] == '1':\n    sys.exit(0 if input('ready? ') == 'yes' else 1)\n"
        "print('rank 0 read', open(sys.argv[1]).read(), flush=True)\n"
    )
    terminal = Terminal(
        running, "rowlock", "run", "-n", "2", "--debug", "1", "--rm", "--", "python", str(script), str(tmp_path / "go")
    )
    terminal.hear(b"ready? ")
    terminal.type(b"yes\n")
    terminal.hear(b"What the other ranks print from now on:")
    (tmp_path / "go").write_text("on")
    terminal.hear(b"[rank 0] rank 0 read on")
    terminal.hear(b"is completed")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("-t",), "--tty needs a terminal, and stdin is none"),
        (("--debug", "2", "-n", "2"), "--debug 2: there is no such rank; with --nnodes 2 the last is 1"),
        (("--debug", "0", "--nproc-per-node", "2"), "--debug gives a terminal to one rank"),
        (("-t", "--", "torchrun", "--nproc-per-node=2", "t.py"), "--tty gives a terminal to one rank"),
        (("--replace",), "--replace needs the --name"),
        (("--rm", "-d"), "--rm deletes the job when it has ended, and --detach does not wait for that"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_submitted(
    running: Cluster, flags: tuple[str, ...], sentence: str
) -> None:
    program = () if "--" in flags else ("--", "true")
    assert sentence in running.run("rowlock", "run", *flags, *program, code=2)


def test_the_submitters_environment_goes_along_and_the_servers_does_not(running: Cluster) -> None:
    names = ("FOO", "WANDB_API_KEY", "STARTED_THE_SERVER", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    env = {**running.env, "FOO": "two words", "WANDB_API_KEY": "s3cr3t", "RANK": "7", "BASH_FUNC_f%%": "() { :; }"}
    argv = ["rowlock", "run", "-n", "2", "--name", "env", "--", "python", "-c", SHOW, *names]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=200)
    assert sorted(done.stdout.splitlines()) == [f"[rank {n}] two words s3cr3t - {n} 0 1 {n}" for n in range(2)]
    named = next(line for line in done.stderr.splitlines() if "goes along" in line)
    assert "s3cr3t" not in done.stderr and "--clean-env" in named
    objects = running.run("kubectl", "get", "pytorchjob,pod", "-n", "runai-default", "-o", "yaml")
    assert "s3cr3t" not in objects and "two words" not in objects
    secrets = json.loads(running.run("kubectl", "get", "secret", "-n", "runai-default", "-o", "json"))["items"]
    (owner,) = next(s for s in secrets if "WANDB_API_KEY" in s["data"])["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("PyTorchJob", "env")
    clean = subprocess.run(
        ["rowlock", "run", "--rm", "--clean-env", "--", "python", "-c", SHOW, "FOO"], env=env, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=200,
    )  # fmt: skip
    assert clean.stdout == "[rank 0] -\n"


def test_a_job_is_replaced_only_by_one_that_would_be_accepted(running: Cluster) -> None:
    running.run("rowlock", "run", "-d", "--name", "again", "--", "sleep", "600")
    old = running.json("rowlock", "describe", "again", "--json")["id"]
    assert "replace it with --replace" in running.run("rowlock", "run", "--name", "again", "--", "true", code=1)
    running.run("rowlock", "run", "--replace", "--name", "again", "--cpu", "100000", "--", "true", code=1)
    assert running.json("rowlock", "describe", "again", "--json")["id"] == old
    assert "[rank 0] new\n" in running.run("rowlock", "run", "--replace", "--name", "again", "--", "echo", "new")
    assert running.json("rowlock", "describe", "again", "--json")["id"] != old
