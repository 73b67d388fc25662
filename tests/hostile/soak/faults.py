"""Faults that only the server's own process can have: a clock that steps, a py-spy that is slow.

The server is started with a `sitecustomize` module on its PYTHONPATH that reads two numbers from a file which the soak
writes: an offset that `time.time` adds, and the seconds that py-spy takes longer. Nothing of the product knows of it, and
the machine's own clock is left alone.
"""

from __future__ import annotations

import struct
from pathlib import Path

LAYOUT = "dd"  # offset of the clock, delay of py-spy; both in seconds
_SITECUSTOMIZE = """
import asyncio, mmap, struct, time
with open({control!r}, "rb") as file:
    control = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
real_time, real_exec = time.time, asyncio.create_subprocess_exec
def stepped_time():
    return real_time() + struct.unpack_from({layout!r}, control)[0]
async def slow_exec(program, *argv, **more):
    delay = struct.unpack_from({layout!r}, control)[1]
    if delay and str(program).endswith("py-spy"):
        program, argv = "/bin/sh", ("-c", 'sleep "$1"; shift; exec "$@"', "sh", str(delay), program, *argv)
    return await real_exec(program, *argv, **more)
time.time, asyncio.create_subprocess_exec = stepped_time, slow_exec
"""


class InjectedFaults:
    """The file that the server looks at, and the directory for its PYTHONPATH."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.python_path = directory
        self._control = directory / "control"
        self.set()
        text = _SITECUSTOMIZE.format(control=str(self._control), layout=LAYOUT)
        (directory / "sitecustomize.py").write_text(text)

    def set(self, *, clock_offset: float = 0.0, py_spy_delay: float = 0.0) -> None:
        """Seconds both; without arguments everything is as it should be."""
        packed = struct.pack(LAYOUT, clock_offset, py_spy_delay)
        if not self._control.exists():
            self._control.write_bytes(packed)
        with self._control.open("r+b") as file:  # in place: the server maps the file
            file.write(packed)
