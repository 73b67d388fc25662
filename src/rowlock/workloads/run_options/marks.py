"""Tags, a note, and whether a run is a favourite: given at a submit or later, kept in annotations of the job. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.body_fields import Fields

TAGS_ANNOTATION, NOTE_ANNOTATION = "rowlock.dev/tags", "rowlock.dev/note"
"""Job annotations: words with spaces between; any text."""
FAVOURITE_ANNOTATION = "rowlock.dev/favourite"
"""Job annotation: `true` keeps the run in the archive beyond the retention."""
MOST_TAGS, LONGEST_NOTE = 20, 2000
_TAG = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./:=]{0,62}")
TAG_RULE = "has 1 to 63 letters, digits and -_./:=, and begins with a letter or a digit"


class Marks(NamedTuple):
    """What people wrote on a run."""

    tags: tuple[str, ...] = ()
    note: str = ""
    favourite: bool = False

    def annotations(self) -> dict[str, str | None]:
        """The annotations of the job that keep them; None for those that are not set."""
        return {
            TAGS_ANNOTATION: " ".join(self.tags) or None,
            NOTE_ANNOTATION: self.note or None,
            FAVOURITE_ANNOTATION: "true" if self.favourite else None,
        }


NO_MARKS = Marks()


def marks_of(job: Object) -> Marks:
    """The marks of a job; what is malformed is left out, since anybody may write annotations."""
    notes = objects.annotations(job)
    tags = [word for word in str(notes.get(TAGS_ANNOTATION) or "").split() if _TAG.fullmatch(word)]
    note = str(notes.get(NOTE_ANNOTATION) or "")[:LONGEST_NOTE]
    return Marks(tuple(dict.fromkeys(tags))[:MOST_TAGS], note, notes.get(FAVOURITE_ANNOTATION) == "true")


def marks_from_json(body: Mapping[str, Any]) -> Marks:
    """The marks of a dict with their names; NO_MARKS for {}."""
    return Marks(tuple(body.get("tags") or ()), str(body.get("note") or ""), bool(body.get("favourite")))


def parse_marks(fields: Fields, before: Marks = NO_MARKS) -> Marks:
    """The fields `tags`, `note` and `favourite` of a request; those that are absent stay as they were. Mistakes are added to its errors."""
    tags = before.tags if fields.get("tags") is None else _parse_tags(fields)
    note = before.note if fields.get("note") is None else fields.text("note").strip()
    if len(note) > LONGEST_NOTE:
        fields.add_error("note", "max", f"has {len(note):,} characters; {LONGEST_NOTE:,} are allowed.")
    return Marks(tags, note, before.favourite if fields.get("favourite") is None else fields.flag("favourite"))


def _parse_tags(fields: Fields) -> tuple[str, ...]:
    tags = fields.texts("tags")
    if tags is None:
        fields.add_error("tags", "type", "must be a list of words.")
        return ()
    if len(tags) > MOST_TAGS:
        fields.add_error("tags", "max", f"has {len(tags)} tags; {MOST_TAGS} are allowed.")
    for tag in tags[:MOST_TAGS]:
        if not _TAG.fullmatch(tag):
            fields.add_error("tags", "format", f"{tag[:80]!r} is no tag: one {TAG_RULE}.")
    return tuple(dict.fromkeys(tags))
