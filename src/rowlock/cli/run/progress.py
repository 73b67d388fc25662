"""Warnings about a job, printed while its log is followed, because a job that hangs logs nothing itself.

A thread fetches the job's events every few seconds and prints those of the diagnosis (`RankFailed`, `JobHangs` and so on)
once, to stderr.
"""

from __future__ import annotations

import threading
from typing import Any

from rowlock.cli.client import ServerClient
from rowlock.cli.grammar import CommandError
from rowlock.cli.output import tell

POLL_INTERVAL = 3.0
"""Seconds between two requests."""
_EVENT_REASONS = frozenset({"JobHangs", "JobStill", "RankSlow", "JobMovesAgain"})
_SUSPEND_REASONS = frozenset({"PyTorchJobSuspended", "PyTorchJobResumed"})


class ProgressReporter:
    """Polls while a log is followed: `with ProgressReporter(server, name, events_path): …`."""

    def __init__(
        self, server: ServerClient, name: str, events_path: str, *, restarts: bool = False, pauses: bool = False
    ) -> None:
        """`events_path`: the REST path of the job's events. `restarts`: print failed ranks, too (without restarts the end of
        the job reports them). `pauses`: print when the job is suspended or resumed; only for a job that is followed from its
        start, since older events would look new."""
        self._reasons = (
            _EVENT_REASONS | ({"RankFailed"} if restarts else set()) | (_SUSPEND_REASONS if pauses else set())
        )
        self._server = ServerClient(
            server.url, server.directory
        )  # its own connection, because the log uses the other one
        self._name, self._events_path = name, events_path
        self._reported: set[tuple[str, str]] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(POLL_INTERVAL):
                self.report_new_events()
        except CommandError:  # the job or the server is gone: the follower of the log reports it
            return
        finally:
            self.close()

    def close(self) -> None:
        """Close its connection."""
        self._server.close()

    def report_new_events(self) -> None:
        """Print new events, the oldest first."""
        events: list[dict[str, Any]] = self._server.get(self._events_path, limit=100)["events"]
        for event in reversed(events):
            key = (str(event["reason"]), str(event["message"]))
            if key[0] in self._reasons and key not in self._reported and not self._stopped.is_set():
                self._reported.add(key)
                tell(f"Job {self._name}: {key[1]}")
