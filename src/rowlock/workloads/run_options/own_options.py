"""The options of a submit beside Run:ai's `spec`: who is told what happens, when the job may start, and how long it may run; its tags and its note."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rowlock.workloads.body_fields import Fields
from rowlock.workloads.run_options.marks import NO_MARKS, Marks, parse_marks
from rowlock.workloads.run_options.notify import parse_notify
from rowlock.workloads.run_options.retries import NO_RULES, RetryRules, parse_retries, retry_annotations
from rowlock.workloads.run_options.start_order import Awaited, order_annotations, parse_after, parse_start_after
from rowlock.workloads.run_options.time_limit import MAX_TIME_ANNOTATION


@dataclass(frozen=True, slots=True)
class OwnOptions:
    """Parsed options. `notify`: where to tell what happens, as the data of a Secret, which no other object has."""

    notify: Mapping[str, str] = field(default_factory=dict)
    max_time: int | None = None
    after: tuple[Awaited, ...] = ()
    start_after: str = ""
    marks: Marks = NO_MARKS
    retries: RetryRules = NO_RULES

    @property
    def is_ordered(self) -> bool:
        """Whether the job waits for others, or for a time."""
        return bool(self.after or self.start_after)

    def annotations(self) -> dict[str, str]:
        """The annotations of the job that keep them."""
        limit = {MAX_TIME_ANNOTATION: str(self.max_time)} if self.max_time else {}
        marks = {name: text for name, text in self.marks.annotations().items() if text is not None}
        return limit | order_annotations(self.after, self.start_after) | marks | retry_annotations(self.retries)


def parse_own_options(top: Fields) -> OwnOptions:
    """The options of a request; mistakes are added to its errors."""
    return OwnOptions(
        notify=parse_notify(top),
        max_time=top.integer("maxTimeSeconds", 1),
        after=parse_after(top),
        start_after=parse_start_after(top),
        marks=parse_marks(top),
        retries=parse_retries(top.object("spec")),
    )
