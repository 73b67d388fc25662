"""`check`: says whether the operator would admit a manifest, and warns about fields with surprising effects. It writes
nothing."""

from __future__ import annotations

from typing import Any

from rowlock.cli import client
from rowlock.cli.commands.scheduler import load_manifests
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import show, show_json


def check(line: CommandLine) -> int:
    """Check the manifests; the exit code is 0 when all of them would be admitted, else 1."""
    if not line.file:
        raise CommandError("`rowlock check` needs the file that would be submitted: `rowlock check -f job.yaml`", 2)
    body = {"objects": load_manifests(line.file), "project": project(line)}
    response = client.connect(line).call("POST", "/api/v1/check", body=body)
    if line.json:
        show_json(response)
    else:
        for result in response["results"]:
            _show_result(result)
    return int(any(result["refused"] for result in response["results"]))


def _show_result(result: dict[str, Any]) -> None:
    title = f"{result['kind']} {result['name']}".strip()
    if not result["refused"]:
        show(f"{title}: admitted")
    else:
        show(f"{title}: refused: {result['refused']}")
    if result["hint"]:
        show(f"  what helps: {result['hint']}")
    for remark in result["remarks"]:
        show(f"  note: {remark}")
