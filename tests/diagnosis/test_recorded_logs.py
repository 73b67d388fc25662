"""What real programs left in their logs, recorded (torch 2.13, XGBoost 3.2, JAX 0.10, Python 3.11, Go, OpenJDK 17, Node 20, g++), and what it means."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rowlock.diagnosis.log_errors import find_error
from rowlock.diagnosis.log_lines import last_line

RECORDED = Path(__file__).parent / "recorded"
STARTUP_LINE = "E0000 00:00:1795914918.685028   14379 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: UNKNOWN ERROR (303)"
STAMP = "2026-11-21T20:00:{:09.6f}000Z "
HANDLED = 'Traceback (most recent call last):\n  File "/w/a.py", line 3, in load\nOSError: disk is slow'


@pytest.mark.parametrize(
    ("name", "said", "whose"),
    [
        ('cpp_assert', "bad: bad.cc:3: int main(int, char**): Assertion `c==1' failed.", 'own'),
        ('cpp_throw', "terminate called after throwing an instance of 'std::runtime_error' what():  bad batch", 'own'),
        ('ddp_peer', 'RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:27824: Connection reset by peer. This is typically caused by a remote worker hanging or bugs in the application. Check the logs of the remote worker before reporting an error. GLHF! 🏖️ (torch_ddp_fail.py:4)', 'secondary'),
        ('gloo_cause', 'ValueError: bad batch (torch_fail.py:8)', 'own'),
        ('gloo_peer', 'RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:14229. This is typically caused by a remote worker crashing. Check the logs of the remote worker before reporting an error. GLHF! 🏖️ (torch_fail.py:4)', 'secondary'),
        ('go', 'panic: runtime error: index out of range [3] with length 0 (bad.go:3)', 'own'),
        ('handled_oom', "FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent/file' (handled_oom.py:4)", 'own'),
        ('java', 'RuntimeException: bad batch (Bad.java:1 in f; caused by IllegalStateException: bad shard)', 'own'),
        ('jax_peer', 'Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details. Disable Python buffering, i.e. `python -u`, to be sure to see all the previous output. absl::Status: INTERNAL: Shutdown barrier has failed.', 'secondary'),
        ('monitored_barrier', 'RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms (monitored_timeout.py:15)', 'own'),
        ('monitored_peer', 'RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank. (monitored_timeout.py:15)', 'secondary'),
        ('node', 'RangeError: bad batch (bad.js:1 in f)', 'own'),
        ('python_fault', 'Fatal Python error: Segmentation fault (fault.py:8 in read)', 'own'),
        ('python_group', "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions) (group.py:5 in main; caused by ValueError: bad batch (group.py:2 in a); KeyError: 'x' (group.py:3 in b))", 'own'),
        ('python_handled', 'step 19', 'last line'),
        ('python_loader', 'ValueError: bad sample (loader.py:4 in __getitem__)', 'own'),
        ('python_pool', 'ValueError: bad shard (pool.py:2 in f)', 'own'),
        ('python_printexc', 'RuntimeError: bad batch: shape 3 (printexc.py:2)', 'own'),
        ('python_spawn', 'ValueError: bad batch (spawn.py:2 in f)', 'own'),
        ('python_syn', 'SyntaxError: invalid syntax (syn.py:1)', 'own'),
        ('raise_from', "ValueError: unknown model 'llama': choose one of ['gpt'] (raise_from.py:4 in build; caused by KeyError: 'llama')", 'own'),
        ('pytest', 'tests_x.py::test_a failed: ValueError: bad words: 3 (and 1 more)', 'own'),
        ('rich', "ValueError: unknown model 'llama' (rich_chain.py:8 in load_the_configuration_of_the_model; caused by KeyError: 'llama')", 'own'),
        ('rich_ascii', "ValueError: unknown model 'llama' (rich_chain.py:8 in load_the_configuration_of_the_model; caused by KeyError: 'llama')", 'own'),
        ('rich_long_path', 'ValueError: a learning rate of -1 (train.py:14 in build)', 'own'),
        ('shell', 'sh: 1: frob: not found', 'last line'),
        ('startup_line', 'ValueError: one line (startup_line.py:4)', 'own'),
        ('tensorflow_peer', 'UnavailableError: Graph execution error: Collective ops is aborted by: recvmsg:Connection reset by peer (killed_rank_after_startup_line.py:9)', 'secondary'),
        ('torchrun_exception', 'ValueError: bad batch (torch_fail.py:8)', 'own'),
        ('torchrun_kill', 'was killed with SIGKILL: as torchrun saw it', 'own'),
        ('xgboost_cause', 'ValueError: bad batch (fail_xgboost.py:10 in after_iteration)', 'own'),
        ('xgboost_peer', 'XGBoostError: [06:03:15] /workspace/src/collective/result.cc:83: [histogram.h:197|06:03:15]: [loop.cc:101|06:03:15]: Encountered EOF. The other end is likely closed. (fail_xgboost.py:12)', 'secondary'),
        ('xgboost_tracker', 'XGBoostError: [06:03:18] /workspace/src/collective/result.cc:83: [histogram.h:197|06:03:18]: [allgather.cc:50|06:03:18]: Ring allgather failed, current iteration:0 (fail_xgboost.py:12)', 'secondary'),
    ],
)  # fmt: skip
def test_what_a_recorded_log_tells(name: str, said: str, whose: str) -> None:
    log = (RECORDED / f"{name}.log").read_text()
    error = find_error(log)
    if error is None:
        assert (last_line(log), "last line") == (said, whose)
    else:
        assert (str(error), "secondary" if error.secondary else "own") == (said, whose)


def test_every_recording_is_judged() -> None:
    (judged,) = [mark.args[1] for mark in test_what_a_recorded_log_tells.pytestmark]  # type: ignore[attr-defined]
    assert sorted(row[0] for row in judged) == sorted(path.stem for path in RECORDED.iterdir())


@pytest.mark.parametrize(
    "more", ["", "\nConnection reset by peer", f"\n{HANDLED.replace('disk is slow', 'Connection reset by peer')}"]
)
def test_a_killed_rank_is_not_explained_by_what_it_said_before(more: str) -> None:
    assert find_error(STARTUP_LINE + more, signal.SIGKILL) is None


def test_a_library_counts_only_where_the_program_says_nothing_after_it() -> None:
    assert last_line(f"{STARTUP_LINE}\ncannot open shard 3") == "cannot open shard 3"
    assert last_line(f"step 5\n{STARTUP_LINE}") == STARTUP_LINE
    assert last_line(f"step 5\n{STARTUP_LINE.replace('E0000', 'W0000')}") == "step 5"
    absent = "/usr/bin/env: 'python3\\r': No such file or directory"
    assert last_line(f"{absent}\n/usr/bin/env: use -[v]S to pass options in shebang lines") == absent


def test_an_error_after_which_the_program_worked_on_is_handled() -> None:
    lines = [STAMP.format(1.0) + line for line in HANDLED.splitlines()]
    assert (
        str(find_error("\n".join([*lines, STAMP.format(1.5) + "training failed"])))
        == "OSError: disk is slow (a.py:3 in load)"
    )
    assert find_error("\n".join([*lines, STAMP.format(9.0) + "step 4"])) is None
    assert find_error("\n".join([*lines, STAMP.format(2.5) + "step 4"]), signal.SIGTERM) is None
    assert find_error("\n".join(lines), signal.SIGTERM) is not None


FAILED = 'Traceback (most recent call last):\n  File "/w/a.py", line 9, in <module>\nValueError: no such optimizer'
IGNORED = {
    "at exit": "Exception ignored in atexit callback: <function close at 0x7f>\n{traceback}",
    "a deallocator": "Exception ignored in: <function Reader.__del__ at 0x7f>\n{traceback}",
    "Python 3.14": "Exception ignored while calling deallocator <function Reader.__del__ at 0x7f>:\n{traceback}",
    "without a traceback": "Exception ignored in: <function Reader.__del__ at 0x7f>\nOSError: closed",
    "a chain": "Exception ignored in: <generator object f at 0x7f>\n{traceback}\n\nDuring handling of the above exception, another"
    " exception occurred:\n\n{traceback}",
    "a logging handler": "--- Logging error ---\n{traceback}\nCall stack:\n  File \"/w/a.py\", line 3, in <module>\nMessage: '%d'\nArguments: ('a',)",
}
"""What Python 3.11 to 3.14 print of errors that end nothing."""


@pytest.mark.parametrize("ignored", IGNORED.values(), ids=IGNORED)
def test_an_error_that_python_itself_ignores_is_none(ignored: str) -> None:
    text = ignored.replace(
        "{traceback}", HANDLED.replace("\nOSError", '\n  File "/w/b.py", line 3, in f' * 12 + "\nOSError")
    )
    for log in (f"{text}\n{FAILED}", f"{FAILED}\n{text}", f"[rank0]: begin\n{text}\n{text}\n\n{FAILED}\n"):
        assert str(find_error(log)) == "ValueError: no such optimizer (a.py:9)"
    assert find_error(f"{text}\naccuracy is too low\n") is None
    assert last_line(f"accuracy is too low\n{text}\n") == "accuracy is too low"


def test_a_process_that_ended_itself_said_why_before_its_native_stack() -> None:
    log = (
        "step 3\nterminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: no kernel image is available\n"
        "CUDA kernel errors might be reported later\n\nException raised from launch at Launch.cpp:31 (most recent call first):\n"
        "frame #0: c10::Error::Error + 0x7d (0x7f)\n"
    )
    said = (
        "terminate called after throwing an instance of 'c10::Error' what():  CUDA error: no kernel image is available"
    )
    assert str(find_error(log, signal.SIGABRT)) == said
    assert find_error(log) is None, "a child's: the program went on, and ended otherwise"


def test_of_nccls_six_lines_the_last_is_told_first() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/w/a.py", line 9, in <module>\n'
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error, NCCL version 2.21.5\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\n"
        "socketStartConnect: Connect to 10.0.0.3<4711> failed : No route to host\n"
    )
    assert str(find_error(log)).startswith(
        "DistBackendError: socketStartConnect: Connect to 10.0.0.3<4711> failed : No route to host (NCCL error in: NCCLUtils.hpp:268"
    )


def test_a_rank_with_an_error_of_its_own_that_then_loses_its_peers_is_the_cause() -> None:
    log = (
        f"{HANDLED}\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + HANDLED.replace("disk is slow", "Connection closed by peer")
    )  # fmt: skip
    error = find_error(log)
    assert error is not None and (str(error), error.secondary) == ("OSError: disk is slow (a.py:3 in load)", False)
