"""The error that a log tells: causes before echoes, the user's line before the library's."""

from __future__ import annotations

import json

import pytest

from rowlock.diagnosis.log_errors import find_error, last_words

T = "2026-11-21T20:00:0{}.250000000Z "


def stamped(second: int, text: str) -> str:
    return "".join(T.format(second) + line + "\n" for line in text.strip("\n").split("\n"))


PLAIN = """
Traceback (most recent call last):
  File "/w/train.py", line 40, in <module>
    main()
  File "/w/train.py", line 12, in step
    loss(x)
  File "/env/lib/python3.11/site-packages/torch/nn/modules/loss.py", line 1, in forward
    raise ValueError("sizes differ: 3 and 4")
ValueError: sizes differ: 3 and 4
"""
ECHO = """
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/train.py", line 9, in <module>
[rank0]:     dist.all_reduce(x)
[rank0]:   File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
[rank0]:     work.wait()
[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.3]:1234
"""
RANK1 = (
    ECHO.replace("rank0", "rank1")
    .replace("RuntimeError: [../third_party", "KeyError: 'images' [../third_party")
    .replace("Connection closed by peer", "no such")
)
CHAINED = """
Traceback (most recent call last):
  File "data.py", line 3, in load
FileNotFoundError: [Errno 2] No such file or directory: 'x.pt'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 8, in <module>
RuntimeError: cannot load
"""
TORCHRUN = """
E1121 elastic/multiprocessing/api.py:1008] failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: python
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_20:00:03
  host      : a-master-0
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 77)
  error_file: <N/A>
"""


@pytest.mark.parametrize(
    ("log", "said", "rank", "secondary"),
    [
        (stamped(1, PLAIN), "ValueError: sizes differ: 3 and 4 (train.py:12 in step)", None, False),
        (PLAIN, "ValueError: sizes differ: 3 and 4 (train.py:12 in step)", None, False),
        (stamped(1, ECHO) + stamped(2, RANK1), "KeyError: 'images'", 1, False),
        (stamped(1, PLAIN) + stamped(2, "training goes on") + stamped(3, ECHO), "ValueError", None, False),
        (stamped(1, CHAINED), "RuntimeError: cannot load (train.py:8; caused by FileNotFoundError: [Errno 2] No such file or directory: 'x.pt')", None, False),
        (stamped(1, TORCHRUN), "was killed with SIGKILL: as torchrun saw it", 1, False),
        (stamped(1, ECHO) + stamped(2, TORCHRUN), "was killed with SIGKILL: as torchrun saw it", 1, False),
        (
            stamped(1, "step 3\nthe tokenizer has no padding token") + stamped(1, ECHO) + stamped(2, TORCHRUN.replace("-9", "1")),
            "ended with exit code 1: as torchrun saw it; the last line before that: the tokenizer has no padding token", 1, False,
        ),
        (stamped(1, PLAIN) + stamped(2, TORCHRUN), "ValueError", None, False),
        (stamped(1, "Fatal Python error: Segmentation fault"), "Fatal Python error: Segmentation fault", None, False),
        (
            stamped(1, "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"),
            "terminate called after throwing an instance of 'std::bad_alloc' what():  std::bad_alloc",
            None,
            False,
        ),
        (stamped(1, "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyboardInterrupt"),
         "KeyboardInterrupt (a.py:1)", None, False),
    ],
)  # fmt: skip
def test_the_error_that_explains(log: str, said: str, rank: int | None, secondary: bool) -> None:
    found = find_error(log)
    assert found is not None and str(found).startswith(said)
    assert (found.rank, found.secondary) == (rank, secondary)


def test_an_echo_is_an_echo() -> None:
    found = find_error(stamped(7, ECHO))
    assert found is not None and found.secondary and found.rank == 0 and found.place == "train.py:9"
    assert found.at == pytest.approx(1795291207.25, abs=1e-3)


@pytest.mark.parametrize(
    "log", ["", "all is well\n", "Traceback is a word\n", stamped(1, "Traceback (most recent call last):")]
)
def test_nothing_wrong(log: str) -> None:
    assert find_error(log) is None


def test_two_ranks_that_write_at_once_are_told_apart() -> None:
    lines = zip(ECHO.strip().split("\n"), RANK1.strip().split("\n"), strict=True)
    found = find_error(stamped(1, "\n".join(line for pair in lines for line in pair)))
    assert found is not None and found.kind == "KeyError" and found.rank == 1


def test_an_error_that_was_handled_is_not_why_it_ended_later() -> None:
    handled = stamped(1, PLAIN) + stamped(5, "epoch 3") + stamped(9, PLAIN.replace("sizes differ: 3 and 4", "the end"))
    found = find_error(handled)
    assert found is not None and found.text == "the end"


SUMMARY = "".join(stamped(5, f"TRACKER INFO: figure {n}") for n in range(12))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PLAIN, 1, "TRACKER INFO: figure 11; the last error in its log, which it may have handled: ValueError: sizes differ: 3 and 4 (train.py:12 in step)"),
        (PLAIN, 9, "TRACKER INFO: figure 11"),
        ("step 3", 1, "TRACKER INFO: figure 11"),
    ],
)  # fmt: skip
def test_an_error_above_a_summary_of_many_lines_is_told_where_python_may_have_left_with_it(
    error: str, code: int, said: str
) -> None:
    log = stamped(1, error) + SUMMARY
    assert find_error(log, code=code) is None
    assert last_words(log, code) == said


def test_an_error_after_which_a_loop_went_on_is_not_told() -> None:
    steps = "".join(stamped(2 + n // 2, f"step {n} loss {1 / (n + 1):.3f}") for n in range(12))
    log = stamped(1, PLAIN) + steps + stamped(8, "accuracy 0.41 is below 0.60")
    assert find_error(log, code=1) is None
    assert last_words(log, 1) == "accuracy 0.41 is below 0.60"


def test_a_lost_peer_above_such_a_summary_is_no_cause() -> None:
    found = find_error(stamped(1, ECHO.replace("[rank0]: ", "")) + SUMMARY, code=1)
    assert found is not None and found.secondary
    assert find_error(stamped(1, ECHO.replace("[rank0]: ", "")) + SUMMARY, code=3) is None


def test_colours_are_no_part_of_an_error() -> None:
    """As Python 3.13 prints it where FORCE_COLOR is set."""
    log = (
        "Traceback (most recent call last):\n"
        '  File \x1b[35m"/w/train.py"\x1b[0m, line \x1b[35m12\x1b[0m, in \x1b[35mstep\x1b[0m\n'
        '    raise ValueError\x1b[31m("no")\x1b[0m\n'
        "\x1b[1;35mValueError\x1b[0m: \x1b[35mno labels\x1b[0m\n"
    )
    assert str(find_error(log)) == "ValueError: no labels (train.py:12 in step)"


NOTED = """
[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/train.py", line 9, in <module>
[rank1]:     raise ValueError("bad shard")
[rank1]: ValueError: bad shard
[rank1]: it was shard 7 of 16
"""
NO_TRACKER = """
Traceback (most recent call last):
  File "/w/train.py", line 12, in <module>
    with xgboost.collective.CommunicatorContext():
xgboost.core.XGBoostError: [00:17:41] /workspace/src/collective/result.cc:83: [comm.cc:220|00:17:41]:

- [comm.cc:220|00:17:41]: Failed to bootstrap the communication group.
- [comm.cc:41|00:17:41]: Failed to connect to the tracker.
- [socket.cc:189|00:17:41]: Failed to connect to 127.0.0.1:29777
"""
HANDLED = """
ERROR:root:trying the next mirror
Traceback (most recent call last):
  File "/w/train.py", line 13, in <module>
    raise OSError("the mirror is down")
OSError: the mirror is down
"""


def test_notes_of_an_error_are_told_where_its_lines_are_marked() -> None:
    found = find_error(stamped(1, NOTED) + stamped(1, "bye"))
    assert found is not None and found.text == "bad shard; it was shard 7 of 16"


def test_a_traceback_in_a_line_of_json_is_read() -> None:
    frames = "".join(f'  File "/w/train.py", line {n}, in step\n    step({n})\n' for n in range(1, 99))
    line = json.dumps(
        {"level": "error", "n": 3, "exception": f"Traceback (most recent call last):\n{frames}ValueError: bad batch\n"}
    )
    found = find_error(stamped(1, '{"level": "info"}\n' + line))
    assert found is not None and str(found) == "ValueError: bad batch (train.py:98 in step)" and found.at > 0
    assert find_error(stamped(1, line[:-9])) is None, "it is cut off"
    assert find_error(stamped(1, '{"Traceback (most recent call last):": 1}')) is None


def test_a_tracker_that_is_not_there_is_no_lost_peer() -> None:
    found = find_error(stamped(1, NO_TRACKER))
    assert found is not None and not found.secondary
    assert found.text == "Failed to connect to the tracker: Failed to connect to 127.0.0.1:29777"


@pytest.mark.parametrize(
    "line", ["step {}", "INFO:root:batch {} is done", "2026-11-29 10:00:00,{} INFO loaded", "  Epoch {}: 3 %"]
)
def test_lines_of_a_program_that_goes_on_at_once_are_no_part_of_the_message(line: str) -> None:
    later = "\n".join(line.format(number) for number in range(12))
    assert find_error(stamped(1, HANDLED) + stamped(1, later)) is None
    assert find_error(stamped(1, HANDLED) + stamped(1, line.format(1))) is not None, "a last word"


FRAMES = '  File "/w/train.py", line 3, in load\n    open(path)\nFileNotFoundError: no vocabulary'
LOST_CHILD = 'Traceback (most recent call last):\n  File "/w/main.py", line 9, in <module>\n'


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (f"Overwrite? [y/N] Traceback (most recent call last):\n{FRAMES}", "FileNotFoundError: no vocabulary (train.py:3 in load)"),
        (f"Epoch 1:  45%|████▌     | 9/20 [00:01<00:01]Traceback (most recent call last):\n{FRAMES}", "FileNotFoundError: no vocabulary (train.py:3 in load)"),
        ("\n".join(f"(train pid=7) {line}" for line in f"Traceback (most recent call last):\n{FRAMES}".splitlines()), "FileNotFoundError: no vocabulary (train.py:3 in load)"),
        ('Traceback (most recent call last):\n\n> File "/w/a.py", line 8, in <module>\n    mean([])\n    └ <function mean>\n\n  File "/w/a.py", line 3, in mean\n    return 1 / len(x)\n               │   └ []\n\nZeroDivisionError: division by zero\n', "ZeroDivisionError: division by zero (a.py:3 in mean)"),
        (f"Exception in initializer:\nTraceback (most recent call last):\n{FRAMES}\n{LOST_CHILD}concurrent.futures.process.BrokenProcessPool: A process was terminated.", "FileNotFoundError: no vocabulary (train.py:3 in load)"),
        (f"{LOST_CHILD}subprocess.CalledProcessError: Command 'convert' died with <Signals.SIGSEGV: 11>.", "CalledProcessError: Command 'convert' died with <Signals.SIGSEGV: 11>. (main.py:9)"),
        (f"convert: unable to open image a.png\n{LOST_CHILD}subprocess.CalledProcessError: Command 'convert' returned non-zero exit status 1.", "CalledProcessError: Command 'convert' returned non-zero exit status 1. (main.py:9; caused by convert: unable to open image a.png)"),
        (f"step 10\n{LOST_CHILD}subprocess.CalledProcessError: Command 'false' returned non-zero exit status 1.", "CalledProcessError: Command 'false' returned non-zero exit status 1. (main.py:9)"),
        (f"free(): invalid pointer\n{LOST_CHILD}subprocess.CalledProcessError: Command 'pack' died with <Signals.SIGABRT: 6>.", "CalledProcessError: Command 'pack' died with <Signals.SIGABRT: 6>. (main.py:9; caused by free(): invalid pointer)"),
        (f'{LOST_CHILD}ValueError: cannot convert (PerReplica:{{\n  0: <tensor 4>,\n  1: <tensor 5>\n}}) to a tensor\nbye', "ValueError: cannot convert (PerReplica:{ 0: <tensor 4>, 1: <tensor 5> }) to a tensor (main.py:9)"),
        (f'{LOST_CHILD}ValueError: bad interval [3, 4)\nstep 3 loss 1', "ValueError: bad interval [3, 4) (main.py:9)"),
        ('[rank0]: Traceback (most recent call last):\n[rank0]:   File "/w/main.py", line 9, in <module>\n[rank0]: torch.CheckpointException: ranks:dict_keys([0])\n[rank0]: Traceback (most recent call last): (RANK 0)\n[rank0]:   File "/w/utils.py", line 1, in f\n[rank0]: AssertionError: no metadata in /c/step_9\n', "CheckpointException: ranks:dict_keys([0]) (main.py:9; caused by AssertionError: no metadata in /c/step_9)"),
        ('Traceback (most recent call last):\n  File "/w/main.py", line 9, in <module>\nmpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated\n----------\nMPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n----------\n[w-0:00000] *** An error occurred in Socket closed\n[w-0:00000] *** on a NULL communicator\nprterun has exited due to process rank 1 with PID 0 on node w-1 calling\n"abort".\n', "Exception: MPI_ERR_TRUNCATE: message truncated (main.py:9)"),
        ("On WorkerInfo(id=1, name=worker1):\nValueError('no rows')\nTraceback (most recent call last):\n" + FRAMES, None),
    ],
)  # fmt: skip
def test_shapes_of_public_reports(log: str, said: str | None) -> None:
    error = find_error("\n".join(T.format(1) + line for line in log.splitlines()))
    assert (error and str(error)) == said
    assert error is None or not error.secondary


def test_a_childs_error_of_long_ago_is_not_why_a_pool_broke() -> None:
    broken = f"{LOST_CHILD}BrokenProcessPool: A process was terminated."
    early = stamped(1, f"Traceback (most recent call last):\n{FRAMES}")
    error = find_error(early + "".join(stamped(2, f"step {n}") for n in range(12)) + stamped(3, broken))
    assert error is not None and error.kind == "BrokenProcessPool"


MARKED = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/w/main.py", line 9, in <module>\n[rank1]: RuntimeError: no plan\n'
PRINTED = f"Traceback (most recent call last):\n{FRAMES}\n"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (stamped(1, PRINTED) + stamped(2, MARKED), "RuntimeError: no plan (main.py:9; caused by FileNotFoundError: no vocabulary)"),
        (stamped(1, PRINTED).replace("T20:00", "T19:00") + stamped(2, MARKED), "RuntimeError: no plan (main.py:9)"),
        (stamped(1, f"Exception in thread Thread-1:\n{PRINTED}") + stamped(3, MARKED), "FileNotFoundError: no vocabulary (train.py:3 in load)"),
        (stamped(1, PRINTED) + stamped(2, MARKED.replace("no plan", "Connection reset by peer")), "FileNotFoundError: no vocabulary (train.py:3 in load)"),
    ],
)  # fmt: skip
def test_what_a_rank_printed_before_the_error_that_torch_marks(log: str, said: str) -> None:
    assert str(find_error(log)) == said


def test_a_place_in_cython_is_a_librarys() -> None:
    log = 'Traceback (most recent call last):\n  File "/w/m.py", line 4, in <module>\n  File "src/mpi4py/MPI.src/Comm.pyx", line 440, in mpi4py.MPI.Comm.Recv\nmpi4py.MPI.Exception: MPI_ERR_RANK: invalid rank'
    assert str(find_error(log)) == "Exception: MPI_ERR_RANK: invalid rank (m.py:4)"
