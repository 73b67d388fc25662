"""The server, with a note of each turn of its event loop that takes long.

    python -m tests.hostile.limits.measured_server NOTES --data-dir DIR …   (then as `rowlock.serve`)

A line of NOTES is JSON: `at` (monotonic seconds), `cpu` (seconds of this thread: what other processes take does not count), `where`
(the frames that a look found, the outermost first).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from asyncio import base_events
from pathlib import Path
from typing import TextIO

LONG = 0.03  # seconds from which a turn is noted
LOOK = 0.02  # seconds between two looks at what the loop does
FRAMES = 12


class _Turns:
    """Times every turn of the event loop: all that it does between two looks at what has come in."""

    def __init__(self, notes: TextIO) -> None:
        self._notes, self._began, self._where = notes, 0.0, ""
        self._main = threading.main_thread().ident or 0

    def install(self) -> None:
        turns, run_once = self, base_events.BaseEventLoop._run_once  # type: ignore[attr-defined] # nothing public is called so

        def run_and_note(loop: base_events.BaseEventLoop) -> None:
            turns._began, turns._where = time.perf_counter(), ""
            began = time.thread_time()
            run_once(loop)
            turns._began = 0.0
            took = time.thread_time() - began
            if took > LONG:
                turns._note(took)

        base_events.BaseEventLoop._run_once = run_and_note  # type: ignore[attr-defined]
        threading.Thread(target=self._look, daemon=True).start()

    def _note(self, took: float) -> None:
        line = {"at": time.monotonic(), "cpu": round(took, 4), "where": self._where}
        self._notes.write(json.dumps(line) + "\n")
        self._notes.flush()

    def _look(self) -> None:
        while True:
            time.sleep(LOOK)
            began = self._began
            if began and time.perf_counter() - began > LONG and not self._where:
                frame, found = sys._current_frames().get(self._main), list[str]()
                if frame is not None and frame.f_code.co_name == "select":
                    continue
                while frame is not None and len(found) < FRAMES:
                    code = frame.f_code
                    found.append(f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}")
                    frame = frame.f_back
                self._where = " > ".join(reversed(found))


def main(notes: str, argv: list[str]) -> int:
    from rowlock import serve

    with open(notes, "a", encoding="utf-8") as file:
        _Turns(file).install()
        return serve.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
