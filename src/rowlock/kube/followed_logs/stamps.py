"""The time stamps that kubelets put before the lines of a log: RFC 3339, with up to nine digits of a second, some in the node's own time zone."""

from __future__ import annotations

import contextlib

from rowlock import objects

LONGEST = 40
"""Bytes: no stamp is longer, so a line whose first blank comes later has none."""


def stamp_of(line: bytes) -> bytes:
    """The stamp at the start of a line; b"" if there is none."""
    stamp = line[: LONGEST + 1].partition(b" ")[0]
    with contextlib.suppress(ValueError):
        if stamp[10:11] == b"T" and objects.seconds(stamp.decode("ascii", "replace")):
            return stamp
    return b""


def sort_key(stamp: bytes) -> tuple[int, bytes]:
    """(seconds since the epoch, nine digits of the second). A float holds only six of them."""
    fraction = stamp[20:].rstrip(b"Z").partition(b"+")[0] if stamp[19:20] == b"." else b""
    return int(objects.seconds(stamp.decode())), fraction[:9].ljust(9, b"0")
