"""`rowlock history`, `show`, `tag`, `note`, `favourite` and `usage`: what there was, as a table of verbs."""

from __future__ import annotations

from rowlock.cli.context import DATA_DIR, JSON, PROJECT
from rowlock.cli.grammar import Command, Flag

USAGE = Command("usage", "Show who held, used, wasted and waited for GPUs: GPU hours by project, user or job.", "usage.hours:usage", flags=(
    Flag("--by", "project|user|job", "what a row is about", "project"),
    Flag("--since", "text", "how far back to count, for example 7d", "7d", value="DURATION"),
    Flag("--limit", "int", "at most N rows, those that held most", 500, value="N"),
    Flag("--csv", "switch", "print comma-separated values"),
    Flag("-p --project", "text", "only this project (default: all that you may see)", value="NAME"),
    DATA_DIR, JSON,
))  # fmt: skip
HISTORY = Command("history", "List all runs, also deleted ones.", "history.runs:index", flags=(
    Flag("-A --all-projects", "switch", "list the runs of all projects"),
    Flag("--name", "text", "only runs of this name; * matches any text", value="NAME"),
    Flag("--status", "text", "only runs with this status: running, completed, failed, deleted, ...", value="STATUS"),
    Flag("--since", "text", "only runs submitted within this time, for example 7d", value="DURATION"),
    Flag("--tag", "text", "only runs with this tag", value="TAG"),
    Flag("--search", "text", "only runs with this in their name, note or tags", value="TEXT"),
    Flag("--favourites", "switch", "only favourites"),
    Flag("--limit", "int", "list at most N runs, the newest", 50, value="N"),
    PROJECT, DATA_DIR, JSON,
), aliases="runs")  # fmt: skip
TAG = Command("tag", "Give a run tags, or take them away; without TAG: show its tags and its note.", "history.marks:tag", "RUN [TAG...]", (
    Flag("--remove", "list", "take this tag away", value="TAG"),
    PROJECT, DATA_DIR, JSON,
))  # fmt: skip
NOTE = Command(
    "note",
    'Write a note on a run, in place of the one it has; "" removes it.',
    "history.marks:note",
    "RUN TEXT",
    (PROJECT, DATA_DIR, JSON),
)
FAVOURITE = Command("favourite", "Keep a run in the archive for good, however old it gets.", "history.marks:favourite", "RUN", (
    Flag("--undo", "switch", "keep it only as long as other runs"),
    PROJECT, DATA_DIR, JSON,
), aliases="favorite")  # fmt: skip
SHOW = Command(
    "show",
    "Show a run: its phases, ranks, verdict, command and code.",
    "history.runs:show_run",
    "RUN",
    (PROJECT, DATA_DIR, JSON),
)
