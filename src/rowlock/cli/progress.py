"""What the platform notices while a log is followed: a job that hangs is silent, so somebody else must speak.

A thread beside the log asks for the job's warnings every few seconds and tells those of the inquest once, on stderr.
"""

from __future__ import annotations

import threading
from typing import Any

from rowlock.cli.client import ServerClient
from rowlock.cli.commands.jobs import WORKLOADS
from rowlock.cli.grammar import CommandError
from rowlock.cli.output import tell

POLL_INTERVAL = 3.0
"""Seconds between two questions."""
_EVENT_REASONS = frozenset({"JobHangs", "JobStill", "RankSlow", "JobMovesAgain"})
_SUSPEND_REASONS = frozenset({"PyTorchJobSuspended", "PyTorchJobResumed"})


class ProgressReporter:
    """For as long as a log is followed: `with News(server, name, identity): …`."""

    def __init__(
        self, server: ServerClient, name: str, identity: str, *, restarts: bool = False, pauses: bool = False
    ) -> None:
        """With `restarts` ranks that failed are told, too; without, the end of the job tells it. With `pauses` it is told
        that somebody has suspended the job: of one that is followed from its first moment."""
        self._reasons = (
            _EVENT_REASONS | ({"RankFailed"} if restarts else set()) | (_SUSPEND_REASONS if pauses else set())
        )
        self._server = ServerClient(server.url, server.directory)  # a connection of its own: the log has the other
        self._name, self._events = name, f"{WORKLOADS}/{identity}/events"
        self._reported: set[tuple[str, str]] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="news", daemon=True)

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(POLL_INTERVAL):
                self.report_new_events()
        except CommandError:  # the job or the server is gone: who follows the log says so
            return
        finally:
            self.close()

    def close(self) -> None:
        """Lets go of the connection."""
        self._server.close()

    def report_new_events(self) -> None:
        """Tells what is new, the oldest first."""
        events: list[dict[str, Any]] = self._server.get(self._events, limit=100)["events"]
        for event in reversed(events):
            key = (str(event["reason"]), str(event["message"]))
            if key[0] in self._reasons and key not in self._reported and not self._stopped.is_set():
                self._reported.add(key)
                tell(f"Job {self._name}: {key[1]}")
