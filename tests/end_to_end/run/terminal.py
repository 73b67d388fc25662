"""A terminal for a command, as a person has one."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

from tests.end_to_end.cluster import Cluster
from tests.waiting import PATIENCE


class Terminal:
    """A command on a terminal of its own; what it says is waited for, what is typed is sent."""

    def __init__(self, cluster: Cluster, *argv: str) -> None:
        self.said = b""
        self.all_said = b""
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            argv, env=cluster.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=_controlling,
        )  # fmt: skip
        os.close(theirs)

    def hear(self, words: bytes, seconds: float = PATIENCE) -> None:
        """Wait for words after those heard before."""
        deadline = time.monotonic() + seconds
        while words not in self.said:
            assert time.monotonic() < deadline, f"{words!r} was not said: {self.said!r}"
            if select.select([self._ours], [], [], 0.1)[0]:
                piece = self._read()
                self.said += piece
                self.all_said += piece
        self.said = self.said.partition(words)[2]

    def _read(self) -> bytes:
        try:
            return os.read(self._ours, 4096)
        except OSError:  # the other side has closed
            return b""

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """The exit code; what is left is read, so that nobody waits for us."""
        code = self._process.wait(90)
        os.close(self._ours)
        return code


def _controlling() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
