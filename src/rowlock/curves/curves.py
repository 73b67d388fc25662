"""Curves of a run, from the pieces of its log. The x of a point is the program's position when it printed the value."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowlock.curves.lines import Progress, is_evaluation, read_piece

MAX_POINTS = 20_000
"""The most points of a curve; beyond that every second point is dropped, repeatedly."""
MAX_CURVES = 64
"""The most curves of a run; further metrics are ignored."""


@dataclass(slots=True)
class Curve:
    """One metric of one run: `points` are (x, value), x in units of `axis`; values may be NaN."""

    axis: str
    is_evaluation: bool = False
    """It is a metric of an evaluation, which is not measured at every step."""
    points: list[tuple[float, float]] = field(default_factory=list)
    _stride: int = 1
    _seen: int = 0
    _last: float | None = None

    def add(self, x: float, value: float, *, is_redrawn: bool = False) -> None:
        """Add a point. `is_redrawn`: it is from a progress bar, which may update the value at the same x, and repeats old evaluations."""
        if is_redrawn and self.points and value == self.points[-1][1] and self.is_evaluation:
            return
        if is_redrawn and self._last == x:
            if self.points and self.points[-1][0] == x:
                self.points[-1] = (x, value)
            return
        self._last = x
        self._seen += 1
        if self._seen % self._stride and self._stride > 1:
            return
        self.points.append((x, value))
        if len(self.points) > MAX_POINTS:
            del self.points[1::2]
            self._stride *= 2

    def cut(self, x: float) -> None:
        """Remove the points at and after `x`: a later attempt repeats them."""
        self.points = [point for point in self.points if point[0] < x]
        self._last = None


@dataclass(slots=True)
class _Counter:
    """A counter of one axis within an attempt; it may restart in each epoch."""

    last: float = 0.0
    base: float = 0.0
    total: float | None = None

    def move(self, count: float, total: float | None) -> float:
        """The cumulative position. A counter with a total has restarted when it falls, and then adds that total; one without has
        restarted when it falls below half, and then adds its last value."""
        if self.total is not None and count < self.last:
            self.base += self.total
        elif self.total is None and count < self.last / 2:
            self.base += self.last
        self.last, self.total = count, total
        return self.base + count


class CurveReader:
    """Reads the pieces of one attempt after another. `curves`: metric → curve, in the order of first appearance."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Begin a new attempt; continuing from a checkpoint, it replaces the points that it repeats."""
        self._counters: dict[tuple[str, bool], _Counter] = {}
        """By axis and whether a bar shows it: bars often count within an epoch, lines over the whole run."""
        self._place: tuple[str, float] | None = None
        self._main_bar: str | None = None
        self._shown: dict[str, dict[str, float]] = {}

    def push(self, piece: str) -> None:
        """Read the next piece: a line, or the next state of a progress bar."""
        for found in read_piece(piece):
            if found.bar is not None:
                self._push_bar(found)
            elif found.axis:
                self._add(found.axis, self._move(found.axis, found), found.metrics)
            elif self._place is not None:
                self._add(*self._place, found.metrics)

    def _push_bar(self, found: Progress) -> None:
        """Add the figures of a bar, unless they are unchanged since it was last drawn. Those of a second bar (an evaluation) get the
        position of the first."""
        bar = found.bar or ""
        is_news = bool(found.metrics) and found.metrics != self._shown.get(bar)
        if found.metrics:
            self._shown[bar] = found.metrics
            self._main_bar = bar if self._main_bar is None else self._main_bar
        if self._main_bar in (None, bar):
            if self._main_bar == bar or found.metrics:
                self._move("step", found)
            metrics = found.metrics
        else:
            metrics = {
                f"{bar} {name}" if name in self._shown[self._main_bar] else name: v for name, v in found.metrics.items()
            }
        if is_news and self._place is not None:
            self._add(*self._place, metrics, is_redrawn=True)

    def _move(self, axis: str, found: Progress) -> float:
        is_first = not any(known == axis for known, _ in self._counters)
        x = self._counters.setdefault((axis, found.bar is not None), _Counter()).move(found.count, found.total)
        if is_first:
            for curve in self.curves.values():
                if curve.axis == axis:
                    curve.cut(found.count)
        self._place = (axis, x)
        return x

    def _add(self, axis: str, x: float, metrics: dict[str, float], *, is_redrawn: bool = False) -> None:
        for name, value in metrics.items():
            if name in self.curves or len(self.curves) < MAX_CURVES:
                curve = self.curves.setdefault(name, Curve(axis, is_evaluation(name)))
                if curve.axis == axis:
                    curve.add(x, value, is_redrawn=is_redrawn)
