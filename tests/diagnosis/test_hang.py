"""Who keeps whom waiting, and who is slow: verdicts over stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rowlock.diagnosis.hang import judge_after, judge_ranks, keeps_standing
from rowlock.diagnosis.observation import RankObservation, Verdict
from rowlock.diagnosis.rendezvous import Rendezvous
from rowlock.diagnosis.stacks import NO_CALL, Stack, parse_stack
from rowlock.diagnosis.stragglers import find_straggler
from rowlock.diagnosis.tracebacks import LoggedError

TORCH = "/env/lib/python3.11/site-packages/torch/"


Calls = Sequence[tuple[str, str, int]]


def as_frames(calls: Calls) -> list[dict[str, object]]:
    return [{"name": name, "filename": file, "line": line} for name, file, line in calls]


def dump(*calls: tuple[str, str, int], active: bool = False, threads: Sequence[Calls] = ()) -> Stack:
    """Innermost first, as py-spy says it; `threads`: the calls of others than the main one."""
    found = parse_stack([
        {"thread_name": "watcher", "active": True, "frames": []},
        {"thread_name": "MainThread", "active": active, "frames": as_frames(calls)},
        *({"thread_name": "worker", "active": False, "frames": as_frames(each)} for each in threads),
    ])  # fmt: skip
    assert found is not None
    return found


STEP = ("step", "/w/train.py", 14)
REDUCE = dump(("all_reduce", f"{TORCH}distributed/distributed_c10d.py", 3252), STEP)
BARRIER = dump(("barrier", f"{TORCH}distributed/distributed_c10d.py", 5000), ("save", "/w/train.py", 30))
BACKWARD = dump(("_engine_run_backward", f"{TORCH}autograd/graph.py", 865), ("backward", f"{TORCH}_tensor.py", 1), STEP)
COMPUTING = dump(("_engine_run_backward", f"{TORCH}autograd/graph.py", 865), STEP, active=True)
LOAD = dump(("load", "/w/data.py", 88), ("<module>", "/w/train.py", 3))
ENDING = dump(("_shutdown", "/usr/lib/python3.11/threading.py", 1590))
READ = dump(("readinto", "/usr/lib/python3.11/socket.py", 706), ("load", "/w/data.py", 90))


JOIN: Calls = [("join", "/usr/lib/python3.11/threading.py", 1119), ("<module>", "/w/train.py", 40)]
WAITS: Calls = [("wait", "/usr/lib/python3.11/threading.py", 331), ("prefetch", "/w/train.py", 22)]
JOINS = dump(*JOIN, threads=[WAITS, [("all_reduce", f"{TORCH}distributed/distributed_c10d.py", 3252), STEP]])

NO_DATA, LATER = LoggedError("ValueError", "no data", 7.0, "data.py:3 in load"), LoggedError("OSError", "too late", 9.0)
LOST_PEER = LoggedError("RuntimeError", "Connection closed by peer", 8.0, secondary=True)


def look(rank: int, seen: Stack | None, moved: bool = False, **more: Any) -> RankObservation:
    return RankObservation(f"rank {rank}", f"j-{rank}", "n1", 100 + rank, silent=6.0, stack=seen, moved=moved, **more)


@pytest.mark.parametrize(
    ("looks", "kind", "culprits", "said"),
    [
        (
            [look(0, REDUCE), look(1, LOAD), look(2, REDUCE)],
            "behind",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting: it is at load (data.py:88), asleep or waiting for something"
            " else (0% of a CPU), silent for 6.0 s; both other ranks wait in all_reduce at step (train.py:14).",
        ),
        (
            [look(0, READ, cpu=1.0), look(1, REDUCE)],
            "slow",
            ("rank 0",),
            "rank 0 (pod j-0, node n1) keeps the others waiting: it is at load (data.py:90) in readinto (socket.py:706),"
            " computing (100% of a CPU), silent for 6.0 s; rank 1 waits in all_reduce at step (train.py:14).",
        ),
        (
            [look(0, REDUCE), look(1, LOAD, cpu=0.06, queued=0.9)],
            "slow",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting: it is at load (data.py:88), at work, but kept from the CPUs by other programs"
            " (6% of a CPU), silent for 6.0 s; rank 0 waits in all_reduce at step (train.py:14).",
        ),
        (  # it asks again and again whether its compiler has ended, which gets no CPU
            [look(0, REDUCE), look(1, LOAD, cpu=0.05, queued=0.9, helpers=0.03, helpers_queued=0.9, polls=True)],
            "slow",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting: it is at load (data.py:88), at work, but kept from the CPUs by other programs",
        ),
        (
            [look(0, REDUCE), look(1, LOAD, moved=True), look(2, REDUCE)],
            "slow",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting",
        ),
        (
            [look(0, REDUCE), look(1, BARRIER), look(2, REDUCE)],
            "mismatch",
            ("rank 1",),
            "The ranks wait in different collectives: rank 1 in barrier at save (train.py:30), the others in all_reduce at"
            " step (train.py:14); every rank must call the same ones in the same order.",
        ),
        (
            [look(r, REDUCE) for r in range(3)],
            "stuck",
            (),
            "All 3 ranks wait in all_reduce at step (train.py:14) and none moves, silent for 6.0 s: a message between them was"
            " lost, or they sent different sizes.",
        ),
        (
            [look(0, BACKWARD), look(1, LOAD)],
            "behind",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting: it is at load (data.py:88), asleep or waiting for something"
            " else (0% of a CPU), silent for 6.0 s; rank 0 waits in the backward pass (where gradients are averaged) at"
            " step (train.py:14).",
        ),
        (
            [look(0, REDUCE), look(1, LOAD, state="T")],
            "stopped",
            ("rank 1",),
            "rank 1 is stopped by a signal (SIGSTOP or a debugger) (pod j-1, node n1, pid 101) at load (data.py:88); rank 0"
            " waits for it in all_reduce at step (train.py:14). `kill -CONT 101` continues it.",
        ),
        (
            [look(0, REDUCE), look(1, LOAD, error=LATER), look(2, LOAD, error=NO_DATA), look(3, REDUCE)],
            "failed",
            ("rank 2",),
            "rank 2 (pod j-2, node n1) has failed and does not end: ValueError: no data (data.py:3 in load); it is at load (data.py:88),"
            " asleep or waiting for something else (0% of a CPU), silent for 6.0 s; 2 ranks wait in all_reduce at step (train.py:14).",
        ),
        (
            [look(0, None, blind="no py-spy"), look(1, None, error=NO_DATA)],
            "failed",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) has failed and does not end: ValueError: no data (data.py:3 in load).",
        ),
        (
            [look(0, ENDING, logged=NO_DATA)],
            "failed",
            ("rank 0",),
            "rank 0 (pod j-0, node n1) has failed and does not end: ValueError: no data",
        ),
        (
            [look(0, REDUCE), look(1, ENDING, logged=NO_DATA)],
            "failed",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) has failed and does not end",
        ),
        (
            [look(0, REDUCE), look(1, None, blind=NO_CALL, logged=NO_DATA, cpu=0.3, polls=True)],
            "failed",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) has failed and does not end: ValueError: no data (data.py:3 in load); rank 0 waits",
        ),
        (
            [look(r, None, blind=NO_CALL, logged=NO_DATA) for r in range(2)],
            "blind",
            (),
            "The ranks' stacks cannot be read: py-spy saw no call of Python in it.",
        ),
        (
            [look(0, JOINS), look(1, dump(*JOIN, threads=[WAITS]))],
            "behind",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting: it is at train.py:40 in join (threading.py:1119), its thread at prefetch"
            " (train.py:22) in wait (threading.py:331), asleep or waiting for something else (0% of a CPU), silent for 6.0 s; rank 0 waits in all_reduce at step (train.py:14).",
        ),
        (
            [look(0, REDUCE, logged=NO_DATA), look(1, LOAD)],
            "behind",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting",
        ),
        (
            [look(0, REDUCE), look(1, LOAD, logged=NO_DATA)],
            "behind",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) keeps the others waiting: it is at load (data.py:88), asleep or waiting for something else (0% of a CPU),"
            " silent for 6.0 s, after its log had ended with ValueError: no data (data.py:3 in load); rank 0 waits in all_reduce at step (train.py:14).",
        ),
        (
            [look(0, ENDING, logged=LOST_PEER)],
            "moving",
            (),
            "rank 0 is at _shutdown (threading.py:1590) and uses no CPU, after its log had ended with RuntimeError: Connection closed by peer;"
            " it waits",
        ),
        (
            [look(0, READ, logged=NO_DATA)],
            "moving",
            (),
            "rank 0 is at load (data.py:90) in readinto (socket.py:706) and uses no CPU, after",
        ),
        (
            [look(0, READ, logged=LOST_PEER, world_size=2)],
            "moving",
            (),
            "rank 0 is at load (data.py:90) in readinto (socket.py:706) and",
        ),
        ([look(0, REDUCE), look(1, LOAD, error=LOST_PEER)], "behind", ("rank 1",), "rank 1 (pod j-1, node n1) keeps"),
        ([look(0, LOAD, True, error=NO_DATA), look(1, LOAD, True)], "moving", (), "Nothing hangs: 2 ranks"),
        ([look(0, None, cpu=1.0, error=NO_DATA), look(1, LOAD, True)], "moving", (), "Nothing hangs: 2 ranks"),
        (
            [
                look(0, REDUCE, True, restarts=2),
                look(1, LOAD, True, restarts=2, earlier_error=replace(NO_DATA, rank=3)),
            ],
            "moving",
            (),
            "Nothing hangs: 2 ranks, 0.0 CPUs in use, most at step (train.py:14). torchrun has started its ranks again 2 times, the last time"
            " after local rank 3 of pod j-1 had failed: ValueError: no data (data.py:3 in load).",
        ),
        (
            [look(0, REDUCE, True, restarts=1)],
            "moving",
            (),
            "Nothing hangs: 1 rank, 0.0 CPUs in use, most at step (train.py:14). torchrun has started its ranks again once; what failed left"
            " no error file (programs under torch's `@record` write one), so its log may tell.",
        ),
        (
            [look(0, COMPUTING, True, cpu=1.0), look(1, LOAD, True)],
            "moving",
            (),
            "Nothing hangs: 2 ranks, 1.0 CPUs in use",
        ),
        ([look(0, REDUCE, True), look(1, REDUCE, True)], "moving", (), "Nothing hangs: 2 ranks"),
        ([look(0, ENDING)], "moving", (), "rank 0 is at _shutdown (threading.py:1590) and uses no CPU"),
        ([look(0, LOAD)], "moving", (), "rank 0 is at load (data.py:88) and uses no CPU; it waits for no other rank."),
        (
            [look(0, None, blind="py-spy: Permission denied"), look(1, None)],
            "blind",
            (),
            "The ranks' stacks cannot be read: py-spy: Permission denied.",
        ),
    ],
)
def test_verdicts(looks: list[RankObservation], kind: str, culprits: tuple[str, ...], said: str) -> None:
    found = judge_ranks(looks)
    assert (found.kind, found.culprits) == (kind, culprits)
    assert found.sentence.startswith(said)
    assert found.is_hang == (kind in ("failed", "stopped", "behind", "mismatch", "stuck"))


def test_a_rank_that_was_forked_warm_shows_its_own_calls_only() -> None:
    parent = "/x/rowlock/kubelet/warm/warm_parent.py"
    assert (
        dump(STEP, ("_run", parent, 120), ("become", parent, 60), ("<module>", "<string>", 1)).frames
        == dump(STEP).frames
    )


def test_a_straggler_is_named_with_numbers() -> None:
    slow = [LOAD, READ, dump(STEP)] * 4
    found = find_straggler({"rank 0": [REDUCE] * 7 + [LOAD] * 5, "rank 1": slow, "rank 2": [BACKWARD] * 9 + [LOAD] * 3})
    assert found is not None and found.culprits == ("rank 1",)
    assert found.sentence == (
        "rank 1 is slower than its peers: it waits 0% of the time, the 2 others 67% (12 looks);"
        " it was at load (data.py:88) in 33% of them."
    )


@pytest.mark.parametrize(
    "looks",
    [
        {"rank 0": [REDUCE] * 12},
        {"rank 0": [REDUCE] * 3, "rank 1": [LOAD, READ] * 2},
        {"rank 0": [REDUCE, LOAD] * 6, "rank 1": [LOAD, REDUCE] * 6},
        {"rank 0": [COMPUTING, LOAD] * 6, "rank 1": [LOAD, READ] * 6},
        {"rank 0": [REDUCE] * 12, "rank 1": [READ] * 3 + [LOAD] * 9},
    ],
)
def test_nobody_is_accused_without_evidence(looks: dict[str, list[Stack]]) -> None:
    assert find_straggler(looks) is None


def test_ranks_that_stand_at_the_same_lines_but_write_do_move() -> None:
    looks = {"rank 0": [REDUCE] * 12, "rank 1": [READ] * 3 + [LOAD] * 9}
    assert find_straggler(looks) is None
    found = find_straggler(looks, has_output=True)
    assert found is not None and found.culprits == ("rank 1",)


LOOKS: dict[str, Any] = {"looks": 5, "watched": 3.8}
SEEN = "Seen in 5 looks over 3.8 s: no stack changed, no line was written, no data moved."
INIT = dump(("init_process_group", f"{TORCH}distributed/distributed_c10d.py", 1800), ("<module>", "/w/ddp.py", 3))
ACCEPT = dump(("accept", "/usr/lib/python3.11/socket.py", 294), ("<module>", "/w/plain.py", 5))
NAP = dump(("<module>", "/w/plain.py", 10))
SEND = dump(("<module>", "/w/exchange.py", 9))
LEAVES = dump(
    ("wait", "/usr/lib/python3.11/threading.py", 327),
    ("_wait_all_workers", f"{TORCH}distributed/rpc/api.py", 90),
    ("shutdown", f"{TORCH}distributed/rpc/api.py", 300),
    ("<module>", "/w/rpc.py", 19),
)
WAITS_FOR_AN_EVENT = dump(("wait", "/usr/lib/python3.11/threading.py", 327), ("<module>", "/w/rpc.py", 18))
GIL_HELD = dump(*[(f.function, f.file, f.line) for f in BACKWARD.frames], active=True)
HOOK = dump(
    ("wait", f"{TORCH}futures/__init__.py", 80),
    ("hook", "/w/train.py", 7),
    *[(f.function, f.file, f.line) for f in BACKWARD.frames],
)
WRITES_A_CHECKPOINT = dump(("fsync", f"{TORCH}distributed/checkpoint/filesystem.py", 90), ("save", "/w/train.py", 30))
AGENT = dump(
    ("_delay", f"{TORCH}distributed/elastic/rendezvous/utils.py", 181),
    ("DynamicRendezvousHandler.next_rendezvous", f"{TORCH}distributed/elastic/rendezvous/dynamic_rendezvous.py", 1171),
    ("<module>", "/env/bin/torchrun", 10),
)


@pytest.mark.parametrize(
    ("looks", "kind", "culprits", "sentence"),
    [
        (
            [look(0, ACCEPT, **LOOKS), look(1, NAP, sleeps=True, **LOOKS)],
            "still",
            ("rank 1",),
            f"No rank moves, silent for 6.0 s: rank 1 sleeps at plain.py:10 and rank 0 is at plain.py:5 in accept (socket.py:294);"
            f" rank 1 keeps the others waiting. {SEEN}",
        ),
        (
            [look(0, NAP, **LOOKS), look(1, NAP, **LOOKS), look(2, LOAD, **LOOKS)],
            "still",
            ("rank 2",),
            "No rank moves, silent for 6.0 s: rank 2 is at load (data.py:88), rank 0 is at plain.py:10 and rank 1 is at plain.py:10;"
            f" rank 2 keeps the others waiting. {SEEN}",
        ),
        (
            [look(0, LEAVES, **LOOKS), look(1, WAITS_FOR_AN_EVENT, **LOOKS)],
            "still",
            ("rank 1",),
            "No rank moves, silent for 6.0 s: rank 1 is at rpc.py:18 in wait (threading.py:327) and rank 0 is at rpc.py:19 in wait"
            f" (threading.py:327); rank 1 keeps the others waiting. {SEEN}",
        ),
        (
            [look(0, GIL_HELD, **LOOKS), look(1, HOOK, **LOOKS)],
            "still",
            ("rank 1",),
            "No rank moves, silent for 6.0 s: rank 1 is at hook (train.py:7) in wait (__init__.py:80) and rank 0 is at step"
            f" (train.py:14) in _engine_run_backward (graph.py:865); rank 1 keeps the others waiting. {SEEN}",
        ),
        (
            [look(0, WRITES_A_CHECKPOINT, **LOOKS), look(1, NAP, **LOOKS)],
            "still",
            (),
            "No rank moves, silent for 6.0 s: rank 0 is at save (train.py:30) in fsync (filesystem.py:90) and rank 1 is at"
            f" plain.py:10. {SEEN}",
        ),
        (
            [look(0, INIT, **LOOKS), look(1, None, program="sleep 300")],
            "absent",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) has not begun: its pod runs `sleep 300`, no Python yet;"
            " rank 0 waits in init_process_group at ddp.py:3, silent for 6.0 s.",
        ),
        (
            [look(0, INIT, **LOOKS), look(1, None, has_ended=True)],
            "ended",
            ("rank 1",),
            "rank 1 (pod j-1, node n1) has ended with exit code 0; rank 0 waits in init_process_group at ddp.py:3,"
            f" silent for 6.0 s. {SEEN}",
        ),
        (
            [look(0, SEND, cpu=1.0, polls=True, **LOOKS), look(1, NAP, sleeps=True, **LOOKS)],
            "still",
            ("rank 1",),
            "No rank moves, silent for 6.0 s: rank 1 sleeps at plain.py:10 and rank 0 polls at exchange.py:9; rank 1 keeps the others waiting."
            f" {SEEN}",
        ),
        (
            [look(r, SEND, cpu=1.0, polls=True, **LOOKS) for r in range(2)],
            "still",
            (),
            f"No rank moves, silent for 6.0 s: rank 0 polls at exchange.py:9 and rank 1 polls at exchange.py:9. {SEEN}",
        ),
        (
            [look(0, AGENT, rendezvous=Rendezvous(2, nodes="PET_NNODES=2"), transferred=2e4, **LOOKS)],
            "stuck",
            (),
            "The rendezvous is not complete: torchrun waits for 2 nodes (PET_NNODES=2), and 1 pod runs one; it is in rendezvous at torchrun:10,"
            f" silent for 6.0 s. {SEEN}",
        ),
        (
            [look(0, INIT, rendezvous=Rendezvous(2, 0), world_size=1, **LOOKS)],
            "stuck",
            (),
            "The rendezvous is not complete: 1 rank runs, it expects 2; it is in init_process_group at ddp.py:3, silent for 6.0 s;"
            " compare WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT as the program uses them; a program does not start its own local ranks"
            f" (Lightning's `devices=2`) where LOCAL_RANK is set. {SEEN}",
        ),
        (
            [look(r, INIT, world_size=3, transferred=2e4, **LOOKS) for r in range(2)],
            "stuck",
            (),
            "The rendezvous is not complete: 2 ranks run, they expect 3; they are in init_process_group at ddp.py:3, silent for"
            f" 6.0 s; compare WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT as the program uses them. {SEEN}",
        ),
        (
            [look(0, INIT, **LOOKS)],
            "stuck",
            (),
            "The rendezvous is not complete: the only rank that runs waits for others to come; it is in init_process_group at"
            " ddp.py:3, silent for 6.0 s; compare WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT as the program uses them; a program"
            f" does not start its own local ranks (Lightning's `devices=2`) where LOCAL_RANK is set. {SEEN}",
        ),
    ],
)
def test_hangs_that_no_list_of_calls_knows(
    looks: list[RankObservation], kind: str, culprits: tuple[str, ...], sentence: str
) -> None:
    found = judge_ranks(looks)
    assert (found.kind, found.culprits, found.sentence) == (kind, culprits, sentence)
    assert found.is_hang == (kind != "absent")


def test_bytes_by_which_torchruns_keep_each_other_alive_are_no_movement() -> None:
    """Six of them send ten thousand bytes per second to the pod of their store, for ever."""
    for transferred, chatter, kind in (
        (10_127.0, 14_400.0, "behind"),
        (10_127.0, 0.0, "moving"),
        (16_000.0, 14_400.0, "moving"),
    ):
        looks = [look(r, seen, transferred=transferred, chatter=chatter) for r, seen in enumerate((REDUCE, LOAD))]
        assert judge_ranks(looks).kind == kind


def test_a_rank_that_is_left_where_another_one_logged_an_error_hangs() -> None:
    """A launcher that waits for its ranks one after the other does not see that the second has failed."""
    left = look(0, READ, logged=NO_DATA, world_size=2)
    assert judge_ranks([left]) == Verdict(
        "still",
        "No rank moves, silent for 6.0 s: rank 0 is at load (data.py:90) in readinto (socket.py:706) and uses no CPU, after its log had"
        " ended with ValueError: no data (data.py:3 in load); of 2 ranks no other one runs.",
    )
    assert judge_ranks([replace(left, silent=2.0)]).kind == "moving"
    asleep = look(0, NAP, logged=NO_DATA, world_size=2, sleeps=True)
    assert [judge_ranks([replace(asleep, silent=each)]).kind for each in (19.0, 21.0)] == ["moving", "still"]


def test_what_a_rank_logged_that_has_lost_its_peer_is_told_once_its_program_is_over() -> None:
    over = look(0, ENDING, logged=LOST_PEER)
    assert "log had ended with RuntimeError: Connection closed by peer" in judge_ranks([over, look(1, NAP)]).sentence
    assert "log had ended" not in judge_ranks([look(0, READ, logged=LOST_PEER), look(1, NAP)]).sentence


def test_ranks_that_all_sleep_hang_only_after_a_while() -> None:
    asleep = [look(r, NAP, sleeps=True, **LOOKS) for r in range(2)]
    assert judge_ranks(asleep) == Verdict(
        "moving",
        "Nothing hangs so far: both ranks sleep, silent for 6.0 s, and a sleep ends by itself: rank 0 sleeps at plain.py:10 and rank 1"
        " sleeps at plain.py:10.",
    )
    later = judge_after(asleep, 20.0)
    assert (later.kind, later.culprits) == ("still", ())
    assert later.sentence.startswith("No rank moves, silent for 26 s: rank 0 sleeps")
    assert judge_ranks([asleep[0], look(1, LOAD, **LOOKS)]).kind == "still", "the other one may wait for it"


@pytest.mark.parametrize(
    "looks",
    [
        [replace(look(0, REDUCE), silent=0.1), look(1, LOAD)],
        [replace(look(0, REDUCE), silent=0.1), look(1, LOAD, moved=True)],
        [look(0, NAP), look(1, LOAD, transferred=5e6)],
        [look(0, NAP), look(1, LOAD, cpu=1.0, helpers=1.0)],
        [look(0, NAP), look(1, LOAD, cpu=0.5)],
        [replace(look(0, LOAD), silent=0.1), look(1, None, has_ended=True)],
        [look(0, LOAD, transferred=2e4), look(1, NAP)],
        [look(0, LOAD, moved=True), look(1, None, program="pip install x")],
        [look(0, NAP), look(1, LOAD, cpu=0.06, queued=0.9)],
        [look(r, LOAD, cpu=0.05, helpers=0.04, queued=0.5) for r in range(2)],
        [look(0, NAP), look(1, LOAD, cpu=0.05, queued=0.9, helpers=0.03, helpers_queued=0.9, polls=True)],
        [look(0, ENDING, logged=NO_DATA), look(1, LOAD, moved=True)],
        [look(0, ENDING, logged=NO_DATA), look(1, LOAD, cpu=0.9)],
        [look(0, INIT, world_size=2), look(1, None, state="X", has_left=True)],
        [look(0, REDUCE), look(1, LOAD), look(2, None, state="Z", has_left=True)],
    ],
)
def test_a_rank_that_does_anything_moves(looks: list[RankObservation]) -> None:
    found = judge_ranks(looks)
    assert found.kind == "moving" and found.sentence.startswith("Nothing hangs")


@pytest.mark.parametrize(
    ("now", "stands"),
    [
        ({"silent": 26.0, "moved": True}, True),  # at another line of its loop
        ({"silent": 2.0, "moved": True}, False),
        ({"silent": 26.0, "transferred": 9000.0}, False),
        ({"silent": 26.0, "cpu": 0.8}, False),
        ({"silent": 26.0, "cpu": 0.8, "polls": True}, True),
        ({"silent": 26.0, "pid": 7}, False),
        ({"silent": 26.0, "has_left": True}, False),
    ],
)
def test_a_hang_that_was_found_lasts_until_somebody_moves(now: dict[str, Any], stands: bool) -> None:
    held = [look(0, LOAD), look(1, LOAD)]
    assert keeps_standing(held, 20.0, [replace(held[0], silent=26.0), replace(held[1], **now)]) is stands


def test_of_a_rank_that_ended_well_it_is_not_said_that_others_wait_for_it_unless_they_are_in_a_collective() -> None:
    ended = RankObservation("rank 0", "j-0", "n1", has_ended=True)
    for seen, culprits in ((REDUCE, ("rank 0",)), (READ, ())):
        found = judge_ranks([ended, look(1, seen)])
        assert (found.kind, found.culprits) == ("ended", culprits)
        assert found.sentence.startswith("rank 0 (pod j-0, node n1) has ended with exit code 0; rank 1 ")


def test_a_thread_of_a_library_that_polls_is_not_the_rank() -> None:
    looks = [look(0, SEND, cpu=0.3, polls=True, main_is_asleep=True), look(1, NAP, cpu=0.3, polls=True)]
    assert judge_ranks(looks).sentence.startswith(
        "No rank moves, silent for 6.0 s: rank 0 is at exchange.py:9 and rank 1 polls at"
    )


def in_call(call: str, line: int = 14) -> Stack:
    return dump((call, f"{TORCH}distributed/distributed_c10d.py", 3252), ("step", "/w/train.py", line))


@pytest.mark.parametrize(
    ("stacks", "reason"),
    [
        ([in_call("send")] * 2, "none of them receives, and of two ranks that exchange messages one must receive first."),
        ([in_call("recv")] * 2, "none of them sends."),
        ([in_call("broadcast")] * 2, "a message between them was lost, or they sent different sizes, or do not agree on whose data it is."),
        ([in_call("all_reduce")] * 2, "a message between them was lost, or they sent different sizes."),
        (
            [in_call("all_reduce"), in_call("all_reduce", 20)],
            "they are not at the same place (rank 0 at step (train.py:14) and rank 1 at step (train.py:20)), and every rank must call the"
            " same collectives in the same order.",
        ),
    ],
)  # fmt: skip
def test_why_ranks_in_the_same_call_wait_for_ever(stacks: Sequence[Stack], reason: str) -> None:
    verdict = judge_ranks([look(n, stack) for n, stack in enumerate(stacks)])
    assert verdict.kind == "stuck" and f", silent for 6.0 s: {reason}" in verdict.sentence


def test_a_stage_of_a_pipeline_that_waits_for_another_is_not_the_one_that_is_late() -> None:
    waits = dump(("_wait_batch_p2p", f"{TORCH}distributed/pipelining/schedules.py", 683), STEP)
    assert judge_ranks([look(0, waits), look(1, LOAD)]).culprits == ("rank 1",)
    verdict = judge_ranks([look(0, BARRIER), look(1, waits)])
    assert (
        verdict.kind == "mismatch" and "rank 1 in send or recv of a pipeline at step (train.py:14)" in verdict.sentence
    )
