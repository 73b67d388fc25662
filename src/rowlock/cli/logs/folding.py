"""`rowlock logs --fold`: a line that several ranks write stands once, under all of them: `[ranks 0-7] epoch 3`.

Nothing is lost, and no rank's lines change their order. A line of a rank joins an equal one that others wrote a moment before. What
only this rank has written since its last shared line moves before it, where that is necessary: `I am 0`, `epoch 0` of
one rank and `I am 1`, `epoch 0` of another are three lines.
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
"""Lines that wait for equal ones of other ranks at most."""
HELD_S = 0.3
"""Seconds that a follower holds a line back at most."""
_TAG = re.compile(rb"\[([^\]]*)\] ")
Key = TypeVar("Key", bytes, str)
_NUMBERED = re.compile(r"(.*\D) ?(\d+)")


@dataclass(slots=True, eq=False)
class _Fold:
    """One line, and the tag of the rank that wrote it."""

    text: bytes
    stamp: bytes
    at: float
    """When its first rank wrote it."""
    number: int
    """Its place among all lines; those that were given back count."""
    labels: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LineFolder:
    """Takes lines with their tags, and gives them back folded. `stamped`: a time stands before each text, and the first one is shown.
    At most `window` lines are held."""

    stamped: bool = False
    window: int = WINDOW
    _folds: list[_Fold] = field(default_factory=list)
    _gone: int = 0
    """How many lines were given back: the number of the first that is held."""
    _by_text: dict[bytes, list[_Fold]] = field(default_factory=dict)
    _by_label: dict[str, list[_Fold]] = field(default_factory=dict)
    """A rank's lines in their order, and in any order those with a text: of what is held."""

    def add(self, line: bytes, now: float = 0.0) -> Iterator[bytes]:
        """Take a line; yields what leaves the window for it."""
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
        """The first line of others with this text that this rank's can join. It comes behind all of the rank's lines then."""
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
        """The lines up to the first that began after this time."""
        while self._folds and self._folds[0].at < than:
            yield self._give_back()

    def take_all(self) -> Iterator[bytes]:
        """All lines that are held."""
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
    """`rank 0`, `rank 1`, `rank 2`, `rank 5` → `ranks 0-2,5`; labels without a number stand first."""
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
    """Fold the lines of a log that is read to its end."""
    folder = LineFolder(stamped)
    for line in lines:
        yield from folder.add(line)
    yield from folder.take_all()


def fold_followed(lines: Iterable[bytes], *, stamped: bool = False) -> Iterator[bytes]:
    """Fold the lines of a log that is followed: none is held for longer than `HELD_S`."""
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
