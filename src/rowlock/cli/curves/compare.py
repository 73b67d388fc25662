"""`rowlock diff A B`: what differs between two runs: outcome, metrics, request, interpreter, packages, code."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import data_dir, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.history.runs import find_run
from rowlock.cli.history.timeline import format_span
from rowlock.cli.output import show, show_json, table

if TYPE_CHECKING:
    from rowlock.answers.workloads import Run

_OUTCOME = ("status", "duration", "attempts", "verdict")
_NOT_COMPARED = ("name", "submitCommand", "projectId", "useGivenNameAsPrefix")
"""Fields of a request that are not compared: they identify the run, or are shown elsewhere."""


class ChangedField(NamedTuple):
    """One field of both runs; None when a run does not have it."""

    field: str
    before: Any
    after: Any


def diff(line: CommandLine) -> int:
    """Print what differs between two runs, the earlier one named first. The exit code is 0 whether or not they differ."""
    if len(line.words) != 2:
        raise CommandError("`rowlock diff` needs two runs: `rowlock diff train~1 train`", 2)
    server = client.connect(line)
    first, second = (find_run(server, project(line), word) for word in line.words)
    then, now = (run["ran"].get("code") or {} for run in (first, second))
    outcome = [ChangedField(name, _outcome(first)[name], _outcome(second)[name]) for name in _OUTCOME]
    request = list(_differences("", _request(first), _request(second)))
    metrics = list(_compare_metrics(*(_last_values(server, run) for run in (first, second))))
    packages = changed_packages(data_dir(line), then, now)
    code, note = _code_diff(data_dir(line), then, now, patch=line.code)
    if line.json:
        show_json({
            "runs": [first["id"], second["id"]],
            "outcome": {d.field: [d.before, d.after] for d in outcome},
            "request": {d.field: [d.before, d.after] for d in request},
            "metrics": {d.field: [d.before, d.after] for d in metrics},
            "packages": {name: [before, after] for name, before, after in packages or ()},
            "code": {"commits": [then.get("commit") or None, now.get("commit") or None], "diff": code, "note": note},
        })  # fmt: skip
        return 0
    titles = [f"{run['name']} ({run['id'][:8]})" for run in (first, second)]
    show(table(("OUTCOME", *titles), [(d.field, _text(d.before), _text(d.after)) for d in outcome]))
    show("")
    if metrics:
        show(table(("METRIC, AT LAST", *titles), [(d.field, _number(d.before), _number(d.after)) for d in metrics]))
        show("")
    if request:
        show(table(("REQUEST", *titles), [(d.field, _text(d.before), _text(d.after)) for d in request]))
    else:
        show("The requests are the same.")
    show("")
    for text in (*_describe_packages(packages), *_describe_code(code, note, then, now)):
        show(text)
    return 0


def _outcome(run: Run) -> dict[str, Any]:
    seconds = run["durationSeconds"]
    return {
        "status": run["phase"],
        "duration": format_span(seconds) if seconds is not None else None,
        "attempts": run["attempts"] or None,
        "verdict": run["verdict"].splitlines()[0] if run["verdict"] else None,
    }


def _last_values(server: ServerClient, run: Run) -> dict[str, float]:
    """The last value of every metric that the run printed."""
    from rowlock.cli.curves.command import curves_of

    return {name: curve.points[-1][1] for name, curve in curves_of(server, run).items() if curve.points}


def _compare_metrics(before: dict[str, float], after: dict[str, float]) -> Iterator[ChangedField]:
    """Every metric, also unchanged ones, because people look at these too. NaN becomes None, because JSON has no NaN."""
    for name in dict.fromkeys((*before, *after)):
        values = [values.get(name) for values in (before, after)]
        yield ChangedField(name, *(value if value is not None and math.isfinite(value) else None for value in values))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _request(run: Run) -> dict[str, Any]:
    """The request as flat fields that people can compare: a command is one line, each environment variable is a field."""
    ran = run["ran"]
    code = ran.get("code") or {}
    request = ran["request"] if isinstance(ran.get("request"), dict) else {}
    found: dict[str, Any] = {k: v for k, v in request.items() if k not in _NOT_COMPARED}
    for role in ("spec", "masterSpec"):
        if isinstance(found.get(role), dict):
            fields = dict(found[role])
            variables = fields.pop("environmentVariables", None) or []
            fields["env"] = {str(v.get("name")): v.get("value") for v in variables if isinstance(v, dict)}
            found[role] = {k: v for k, v in fields.items() if k not in ("command", "args", "workingDir")}
    found |= {"command": shlex.join(ran["command"]), "image": ran["image"], "directory": ran["workingDir"]}
    if code.get("copy"):  # every run has its own copy, so the path always differs
        found["command"] = found["command"].replace(code["copy"], code["source"])
        found["directory"] = code.get("workingDir") or code["source"]
        for role in ("spec", "masterSpec"):
            (found.get(role) or {}).get("env", {}).pop("PYTHONPATH", None)
        if code.get("pythonPath"):
            found["spec"]["env"]["PYTHONPATH"] = code["pythonPath"]
    found |= {"replicas": ran["replicas"], "resources": ran["resources"], "python": code.get("pythonVersion")}
    return found


def _differences(path: str, before: Any, after: Any) -> Iterator[ChangedField]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from _differences(f"{path}.{name}".lstrip("."), before.get(name), after.get(name))
    elif (before or None) != (after or None):
        yield ChangedField(path.removeprefix("spec."), before, after)


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def changed_packages(
    data_directory: str, then: dict[str, Any], now: dict[str, Any]
) -> list[tuple[str, str | None, str | None]] | None:
    """(name, version then, version now) of each package that differs; None when one of the lists is not on this machine."""
    from rowlock.cli.source.code_record import kept_packages

    before, after = kept_packages(data_directory, then), kept_packages(data_directory, now)
    if before is None or after is None:
        return None
    names = sorted({*before, *after})
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]


def _describe_packages(changes: list[tuple[str, str | None, str | None]] | None) -> Iterator[str]:
    if changes is None:
        yield "Packages: not known of both runs on this machine."
    elif not changes:
        yield "Packages: the same."
    else:
        yield table(
            ("PACKAGE", "BEFORE", "AFTER"), [(name, before or "-", after or "-") for name, before, after in changes]
        )


def _code_diff(
    data_directory: str, then: dict[str, Any], now: dict[str, Any], *, patch: bool
) -> tuple[str | None, str]:
    """(the diff as text, a note). Without a diff to show, (None, the reason)."""
    from rowlock.cli.source.snapshot import SourceStore

    trees = [str(code.get("snapshot") or "") for code in (then, now)]
    for which, tree, code in zip(("first", "second"), trees, (then, now), strict=True):
        if not tree:
            return None, f"no code of the {which} run was kept" + (f": {code['note']}" if code.get("note") else "")
    store = SourceStore(data_directory)
    for which, tree in zip(("first", "second"), trees, strict=True):
        if not store.has(tree):
            return None, f"the code of the {which} run is not on this machine"
    return store.diff(*trees, patch=patch), ""


def _describe_code(code: str | None, note: str, then: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    commits = [str(facts.get("commit") or "")[:12] for facts in (then, now)]
    if code is None:
        yield f"Code: {note}."
        if all(commits):
            yield f"Commits: {commits[0]} and {commits[1]}."
    elif not code:
        yield "Code: the same."
    else:
        named = f" (commits {commits[0]} and {commits[1]})" if all(commits) and commits[0] != commits[1] else ""
        yield f"Code{named}:"
        yield code.rstrip("\n")
