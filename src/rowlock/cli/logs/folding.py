"""`rowlock logs --fold`: prints a line that several ranks write once, with all of them: `[ranks 0-7] epoch 3`.

No line is lost, and the lines of each rank keep their order. A line joins an equal one that other ranks wrote shortly before; if
necessary, lines that only this rank has written since its last shared line move before it: `I am 0`, `epoch 0` of
one rank and `I am 1`, `epoch 0` of another become three lines.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

WINDOW = 256
"""The most lines that wait for equal ones of other ranks."""
HELD_S = 0.3
"""The longest time in seconds that a line is held back while following."""
_TAG = re.compile(rb"\[([^\]]*)\] ")
Key = TypeVar("Key", bytes, str)
_NUMBERED = re.compile(r"(.*\D) ?(\d+)")


@dataclass(slots=True, eq=False)
class _Fold:
    """One line, and the labels of the ranks that wrote it."""

    text: bytes
    stamp: bytes
    at: float
    """When its first rank wrote it (the caller's clock)."""
    number: int
    """Its position among all lines, including those that have left the window."""
    labels: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LineFolder:
    """Folds lines with rank tags. `stamped`: each text has a time before it; the time of the first rank is shown.
    At most `window` lines are held."""

    stamped: bool = False
    window: int = WINDOW
    _folds: list[_Fold] = field(default_factory=list)
    _gone: int = 0
    """How many lines have left the window, i.e. the number of the first that is held."""
    _by_text: dict[bytes, list[_Fold]] = field(default_factory=dict)
    _by_label: dict[str, list[_Fold]] = field(default_factory=dict)
    """Held lines by text (in any order), and by label (in the rank's order)."""

    def add(self, line: bytes, now: float = 0.0) -> Iterator[bytes]:
        """Add a line; yields the folded lines that leave the window."""
        tag = _TAG.match(line)
        label, text = (tag[1].decode(errors="replace"), line[tag.end() :]) if tag else ("", line)
        stamp = b""
        if self.stamped and tag:
            stamp, blank, text = text.partition(b" ")
            stamp += blank
        fold = self._find_equal(label, text) if label else None
        if fold is None:
            fold = _Fold(text, stamp, now, self._gone + len(self._folds))
            self._folds.append(fold)
            self._by_text.setdefault(text, []).append(fold)
        if label:
            fold.labels.append(label)
            self._by_label.setdefault(label, []).append(fold)
        while len(self._folds) > self.window:
            yield self._give_back()

    def _find_equal(self, label: str, text: bytes) -> _Fold | None:
        """The first equal line of other ranks that this rank's line can join, after moving it behind all of this rank's lines."""
        own = self._by_label.get(label, [])
        loose = list[_Fold]()
        for fold in reversed(own):
            if len(fold.labels) > 1:
                break
            loose.insert(0, fold)
        shared = own[-len(loose) - 1].number if len(own) > len(loose) else -1
        equal = [f for f in self._by_text.get(text, ()) if f.number > shared and f.labels and label not in f.labels]
        if not equal:
            return None
        found = min(equal, key=lambda fold: fold.number)
        if moved := [fold for fold in loose if fold.number > found.number]:
            self._move_before(found, moved)
        return found

    def _move_before(self, place: _Fold, moved: list[_Fold]) -> None:
        begin, end = place.number - self._gone, moved[-1].number - self._gone + 1
        stay = [fold for fold in self._folds[begin:end] if fold not in moved]
        self._folds[begin:end] = [*moved, *stay]
        for index in range(begin, end):
            self._folds[index].number = index + self._gone

    def take_older(self, than: float) -> Iterator[bytes]:
        """Yield the lines up to the first that was first written after this time."""
        while self._folds and self._folds[0].at < than:
            yield self._give_back()

    def take_all(self) -> Iterator[bytes]:
        """Yield all held lines."""
        while self._folds:
            yield self._give_back()

    def _give_back(self) -> bytes:
        fold = self._folds.pop(0)
        self._gone += 1
        _remove(self._by_text, fold.text, fold)
        for label in fold.labels:
            _remove(self._by_label, label, fold)
        tag = f"[{join_labels(fold.labels)}] ".encode() if fold.labels else b""
        return tag + fold.stamp + fold.text


def _remove(held: dict[Key, list[_Fold]], key: Key, fold: _Fold) -> None:
    held[key].remove(fold)
    if not held[key]:
        del held[key]


def join_labels(labels: Iterable[str]) -> str:
    """`rank 0`, `rank 1`, `rank 2`, `rank 5` → `ranks 0-2,5`; labels without a number come first."""
    plain, numbered = list[str](), dict[str, list[int]]()
    for label in labels:
        if found := _NUMBERED.fullmatch(label):
            numbered.setdefault(found[1].rstrip(), []).append(int(found[2]))
        else:
            plain.append(label)
    words = []
    for word, them in numbered.items():
        plural = "s" if len(them) > 1 and not word.endswith("s") else ""
        words.append(f"{word}{plural} {_join_numbers(sorted(them))}")
    return ", ".join((*plain, *words))


def _join_numbers(numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def fold_lines(lines: Iterable[bytes], *, stamped: bool = False) -> Iterator[bytes]:
    """Fold the lines of a complete log."""
    folder = LineFolder(stamped)
    for line in lines:
        yield from folder.add(line)
    yield from folder.take_all()


def fold_followed(lines: Iterable[bytes], *, stamped: bool = False) -> Iterator[bytes]:
    """Fold the lines of a followed log: no line is held for longer than about `HELD_S`."""
    arrived: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
        except BaseException as error:  # noqa: BLE001 (raised where the lines are written)
            arrived.put(error)
        arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    folder = LineFolder(stamped)
    while True:
        try:
            line = arrived.get(timeout=HELD_S / 3)
        except queue.Empty:
            line = b""
        now = time.monotonic()
        if isinstance(line, BaseException) or line is None:
            yield from folder.take_all()
            if line is not None:
                raise line
            return
        if line:
            yield from folder.add(line, now)
        yield from folder.take_older(now - HELD_S)
