"""`rowlock tag`, `note` and `favourite`: what people write on runs, also on those that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.history.runs import RUNS, find_run, tag_words
from rowlock.cli.output import show_result

if TYPE_CHECKING:
    from rowlock.answers.workloads import RunHeader


def tag(line: CommandLine) -> int:
    if not line.words:
        raise CommandError("say which run: `rowlock tag RUN TAG…`", 2)
    server = client.connect(line)
    run: RunHeader = find_run(server, project(line), line.words[0])
    absent = [word for word in line.remove if word not in run["tags"]]
    if absent:
        has = f"it has {', '.join(run['tags'])}" if run["tags"] else "it has none"
        raise CommandError(f"{run['name']} has no tag {absent[0]}: {has}")
    tags = [word for word in dict.fromkeys([*run["tags"], *line.words[1:]]) if word not in line.remove]
    if tags != run["tags"]:
        run = server.call("PATCH", f"{RUNS}/{run['id']}", body={"tags": tags})
    return _show(line, run)


def note(line: CommandLine) -> int:
    if len(line.words) != 2:
        raise CommandError(
            "say which run, and what to write, in quotes: `rowlock note RUN 'the first that learned'`", 2
        )
    return _change(line, {"note": line.words[1]})


def favourite(line: CommandLine) -> int:
    if len(line.words) != 1:
        raise CommandError("say which run: `rowlock favourite RUN`", 2)
    return _change(line, {"favourite": not line.undo})


def _change(line: CommandLine, body: dict[str, Any]) -> int:
    server = client.connect(line)
    run: RunHeader = find_run(server, project(line), line.words[0])
    return _show(line, server.call("PATCH", f"{RUNS}/{run['id']}", body=body))


def _show(line: CommandLine, run: RunHeader) -> int:
    """Print what is written on the run."""
    header = {name: run[name] for name in ("id", "name", "projectName", "tags", "note", "favourite")}
    tags = " ".join(tag_words(run)) or "no tags"
    return show_result(line, header, f"{run['name']}: {tags}" + (f"\n{run['note']}" if run["note"] else ""))
