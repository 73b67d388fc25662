"""Who failed first, in one sentence."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from rowlock.diagnosis.log_errors import SEEN_BY_TORCHRUN
from rowlock.diagnosis.root_cause import (
    RankFailure,
    exit_description,
    failure_from_dict,
    group_incidents,
    incident_sentence,
    root_cause,
)
from rowlock.diagnosis.tracebacks import LoggedError

CAUSE = LoggedError("ValueError", "bad batch", 12.5, "train.py:12 in step")
ECHO = LoggedError("RuntimeError", "Connection closed by peer", 12.0, "train.py:20", secondary=True)


def dead(rank: int, code: int = 1, at: float = 13.0, **more: Any) -> RankFailure:
    return RankFailure(f"rank {rank}", f"j-worker-{rank}", "n1", code, 1.0, at, **more)


@pytest.mark.parametrize(
    ("incident", "ranks", "said"),
    [
        (
            [dead(0, trouble=ECHO, at=12.9), dead(2, trouble=CAUSE)],
            2,
            "rank 2 (pod j-worker-2, node n1) ended with exit code 1 after 12 s: ValueError: bad batch (train.py:12 in step);"
            " rank 0 then lost it and ended too.",
        ),
        (
            [dead(1, 137, signal=9), dead(0, trouble=ECHO), dead(2, 143, signal=15, stopped=True)],
            3,
            "rank 1 (pod j-worker-1, node n1) was killed with SIGKILL (exit code 137) after 12 s; not by rowlock, and it logged no"
            " error: a `kill -9` by somebody, or the kernel was out of memory; all 2 others then lost it and ended too.",
        ),
        (
            [dead(1, 137, signal=9, reason="OOMKilled", message="it used 64 MiB of 64 MiB")],
            4,
            "rank 1 (pod j-worker-1, node n1) was killed for using too much memory after 12 s: it used 64 MiB of 64 MiB.",
        ),
        (
            [dead(0, trouble=CAUSE), dead(1, 3, at=14.0)],
            2,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 1 after 12 s: ValueError: bad batch (train.py:12 in step)"
            "; rank 1 failed too, but later.",
        ),
        (
            [
                dead(
                    0,
                    said="BlockingIOError: [Errno 11] Resource temporarily unavailable",
                    shortage="it had as many as it may have",
                )
            ],
            2,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 1 after 12 s; the last line of its log: BlockingIOError: [Errno 11]"
            " Resource temporarily unavailable; it had as many as it may have.",
        ),
        (
            [dead(0, shortage="it had many")],
            2,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 1 after 12 s; it had many.",
        ),
        (
            [
                dead(0, 2, said="python: can't open file 'nofile.py'"),
                dead(1, 2, at=13.1, said="python: can't open file 'nofile.py'"),
            ],
            2,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 2 after 12 s; the last line of its log: python: can't open"
            " file 'nofile.py'; rank 1 failed the same way.",
        ),
        (
            [dead(0, trouble=CAUSE), dead(1, trouble=CAUSE, at=13.1), dead(2, trouble=ECHO, at=13.2)],
            3,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 1 after 12 s: ValueError: bad batch (train.py:12 in step)"
            "; rank 1 failed the same way, and rank 2 lost a peer.",
        ),
        (
            [dead(0, 128, reason="StartError", message='exec: "pyhton": executable file not found in $PATH')],
            1,
            'rank 0 (pod j-worker-0, node n1) could not start: exec: "pyhton": executable file not found in $PATH.',
        ),
        (
            [
                dead(
                    1,
                    143,
                    signal=15,
                    stopped=True,
                    reason="Evicted",
                    message="Pod ephemeral local storage usage exceeds the total limit 1Mi. ",
                ),
                dead(0, trouble=ECHO, at=12.9),
            ],
            2,
            "rank 1 (pod j-worker-1, node n1) was stopped by the kubelet after 12 s: Evicted: Pod ephemeral local storage usage exceeds the"
            " total limit 1Mi; rank 0 then lost it and ended too.",
        ),
        (
            [dead(0, 143, signal=15, stopped=True, reason="Unhealthy", message="Container main failed liveness probe")],
            1,
            "rank 0 (pod j-worker-0, node n1) was stopped by the kubelet after 12 s: Unhealthy: Container main failed liveness probe.",
        ),
        (
            [dead(3, 135, signal=7)],
            1,
            "rank 3 (pod j-worker-3, node n1) was killed with SIGBUS (exit code 135) after 12 s; often a full /dev/shm: make it"
            " larger with `--large-shm` (runai), or with a memory volume there (an emptyDir with `medium: Memory`).",
        ),
        (
            [dead(0, trouble=LoggedError("BdbQuit", "", 12.5, "train.py:7 in step")), dead(1, trouble=ECHO)],
            2,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 1 after 12 s: BdbQuit (train.py:7 in step); it came to a"
            " breakpoint and had no terminal: `rowlock run --tty` gives a terminal to the first rank, `--debug RANK` to another;"
            " rank 1 then lost it and ended too.",
        ),
        (
            [dead(0, 2, said="sh: 1: cannot create /v/file: Read-only file system")],
            1,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 2 after 12 s; the last line of its log: sh: 1: cannot create"
            " /v/file: Read-only file system.",
        ),
        (
            [dead(0, trouble=LoggedError("was killed with SIGKILL", SEEN_BY_TORCHRUN, 12.5, rank=2))],
            1,
            "rank 2 (pod j-worker-0, node n1) was killed with SIGKILL after 12 s, as torchrun saw it.",
        ),
        (
            [dead(0, trouble=LoggedError("ValueError", "bad batch", 12.5, "train.py:12 in step", rank=2))],
            1,
            "rank 2 (pod j-worker-0, node n1) ended with exit code 1 after 12 s: ValueError: bad batch (train.py:12 in step).",
        ),
        (
            [dead(0, trouble=ECHO)],
            1,
            "rank 0 (pod j-worker-0, node n1) ended with exit code 1 after 12 s: RuntimeError: Connection closed by peer"
            " (train.py:20); no rank logged an error of its own, so the logs do not say why the first one ended.",
        ),
    ],
)
def test_sentences(incident: list[RankFailure], ranks: int, said: str) -> None:
    assert incident_sentence(incident, ranks) == said


def test_ranks_that_were_asked_to_end_have_not_failed() -> None:
    ended_by_us = [dead(n, 143, signal=15, stopped=True, said="step 7") for n in (1, 0)]
    assert incident_sentence(ended_by_us, 2).startswith("No rank failed: rank 0 and rank 1 were told to end (")
    assert incident_sentence([*ended_by_us, dead(2, trouble=CAUSE)]).startswith(
        "rank 2 (pod j-worker-2, node n1) ended with"
    )


def test_a_cause_beats_an_earlier_echo_and_the_earliest_cause_wins() -> None:
    late = LoggedError("KeyError", "x", 12.7)
    assert root_cause([dead(0, trouble=ECHO), dead(1, trouble=late), dead(2, trouble=CAUSE)]).rank == "rank 2"


def test_deaths_far_apart_are_different_incidents() -> None:
    found = group_incidents([dead(0, at=100.0), dead(1, at=12.0), dead(2, at=13.0), dead(3, at=43.0)])
    assert [[d.rank for d in incident] for incident in found] == [["rank 1", "rank 2", "rank 3"], ["rank 0"]]


def test_deaths_survive_being_written_down() -> None:
    for each in (dead(0, trouble=CAUSE), dead(1, 137, signal=9, stopped=True)):
        assert failure_from_dict(each.to_dict()) == each


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (1, "ended with exit code 1"),
        (139, "was killed with SIGSEGV (exit code 139)"),
        (143, "was killed with SIGTERM (exit code 143)"),
        (255, "ended with exit code 255"),
    ],
)
def test_exit_codes_are_decoded(code: int, said: str) -> None:
    assert exit_description(code, 0) == said


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGXCPU, "its limit of CPU time was reached"),
        (signal.SIGXFSZ, "a file grew beyond the limit of sizes"),
        (signal.SIGILL, "an instruction that this CPU does not have"),
        (signal.SIGFPE, "a division by zero"),
        (signal.SIGPIPE, "a pipe or a connection that nobody read any more"),
        (signal.SIGSYS, "a system call that its sandbox (seccomp) forbids"),
    ],
)
def test_a_signal_that_says_why_is_explained(number: signal.Signals, words: str) -> None:
    said = incident_sentence([dead(1, 128 + number, signal=number)])
    assert f"was killed with {number.name} (exit code {128 + number}) after 12 s; " in said and words in said


def test_an_exit_code_that_says_why_is_explained() -> None:
    silent, talking = dead(1, 124), dead(1, 124, said="warming up")
    assert "logged no error; `timeout` ends a program so when its time is up." in incident_sentence([silent])
    assert "the last line of its log: warming up; `timeout` ends" in incident_sentence([talking])
    assert "timeout" not in incident_sentence([dead(1, 124, trouble=CAUSE)])


GONE = "rank 1 (pod j-worker-1, node n1)"
REFUSED = LoggedError("ConnectionRefusedError", "[Errno 111] Connection refused", 12.0, "train.py:3", secondary=True)


@pytest.mark.parametrize(
    ("incident", "left", "said"),
    [
        (
            [dead(0, trouble=ECHO)],
            [GONE],
            f"{GONE} had ended with exit code 0 while others still needed it: rank 0 (pod",
        ),
        ([dead(0, trouble=CAUSE)], [GONE], "rank 0 (pod j-worker-0, node n1) ended with exit code 1"),
        ([dead(0, trouble=ECHO)], [], "rank 0 (pod j-worker-0, node n1) ended with exit code 1"),
    ],
)
def test_a_rank_that_ended_well_too_early(incident: list[RankFailure], left: list[str], said: str) -> None:
    assert incident_sentence(incident, 2, left).startswith(said)


@pytest.mark.parametrize(
    ("incident", "unknown"),
    [
        ([dead(0, trouble=ECHO), dead(1, trouble=ECHO, at=13.1)], True),
        ([dead(0, trouble=ECHO), dead(1, 143, stopped=True, at=14.0)], False),
        ([dead(0, trouble=ECHO, at=14.0), dead(1, 143, stopped=True, at=13.0)], True),
        ([dead(0, trouble=REFUSED), dead(1, trouble=ECHO, at=13.1)], False),
    ],
)
def test_who_had_all_its_peers_did_not_lose_one(incident: list[RankFailure], unknown: bool) -> None:
    assert ("the logs do not say why" in incident_sentence(incident, 2)) == unknown


def test_a_rank_that_was_told_to_end_is_not_first_for_what_it_had_logged() -> None:
    handled = dead(1, 143, signal=15, stopped=True, trouble=LoggedError("OSError", "no metadata", 11.0, "dcp.py:7"))
    sentence = incident_sentence([handled, dead(0, trouble=CAUSE)], 2)
    assert sentence.startswith("rank 0 (pod j-worker-0") and sentence.endswith("; rank 1 was then stopped.")


def test_a_rank_that_was_told_to_end_while_it_ended_of_the_same_error_failed_the_same_way() -> None:
    ending = dead(1, 143, signal=15, stopped=True, trouble=CAUSE)
    assert "rank 1 failed too" in incident_sentence([ending, dead(0, trouble=CAUSE)], 2)


def test_an_error_that_torch_has_marked_is_unhandled_though_the_cluster_ended_its_rank() -> None:
    marked = dead(1, 143, signal=15, stopped=True, trouble=LoggedError("OSError", "torn", 11.0, rank=1))
    assert root_cause([marked, dead(0, trouble=CAUSE)]) is marked
