"""Progress bars of ranks: live on a terminal, each rank's on a line of its own, and their final state in logs."""

from __future__ import annotations

from collections.abc import Iterator

import pyte
import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.end_to_end.run.terminal import Terminal

BAR = r"""
import os, sys
rank, go = os.environ["RANK"], sys.argv[1]
for step in range(3):
    print(f"\r{step}/2 of {rank}", end="", flush=True, file=sys.stderr)
    if rank == "0" and step == 1:
        with open(go) as fifo:  # until the test has seen the bar
            fifo.read()
print(file=sys.stderr)
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("bars")) as made:
        made.up()
        yield made


def test_bars_are_live_on_a_terminal_and_final_in_logs(
    running: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import os

    go = tmp_path_factory.mktemp("go") / "fifo"
    os.mkfifo(go)
    terminal = Terminal(running, "rowlock", "run", "-n", "2", "--name", "bars", "--", "python", "-c", BAR, str(go))
    terminal.hear(b"[rank 0] 1/2 of 0")  # which no newline has ended
    go.write_text("")
    terminal.hear(b"Job bars is completed")
    assert terminal.end() == 0
    screen = pyte.Screen(100, 30)
    pyte.ByteStream(screen).feed(terminal.all_said)
    shown = [line.rstrip() for line in screen.display if "of" in line]
    assert sorted(shown) == ["[rank 0] 2/2 of 0", "[rank 1] 2/2 of 1"]
    logs = running.run("rowlock", "logs", "bars")
    assert sorted(logs.splitlines()) == ["[rank 0] 2/2 of 0", "[rank 1] 2/2 of 1"]
    assert sorted(running.run("rowlock", "logs", "bars", "--tail", "1").splitlines()) == sorted(logs.splitlines())
