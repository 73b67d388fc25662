"""The template and the assets that a submit names: environment, compute resource, data sources."""

from __future__ import annotations

from typing import Any

from rowlock.cli.grammar import CommandError, CommandLine


def environment_asset(line: CommandLine) -> str:
    """The environment asset that V2's --environment names; "" when the flag only sets variables, as it always does in V1. Raises
    CommandError for two assets."""
    if "environment_variable" not in vars(line):
        return ""
    names = [value for value in line.environment if "=" not in value]
    if len(names) > 1:
        raise CommandError(f"a workload has one environment, and --environment names {', '.join(names)}", 2)
    return names[0] if names else ""


def data_sources(line: CommandLine) -> list[dict[str, str]]:
    """The data sources of --datasource, as the REST API's `[{"id": NAME}]`."""
    given = getattr(line, "datasource", None) or ()
    return [{"id": name} for value in given for name in value.split(",") if name]


def asset_references(line: CommandLine) -> dict[str, Any]:
    """`templateId` and `assets` of the request, with the names on the command line; the server resolves them."""
    named = {
        "environment": environment_asset(line),
        "compute": getattr(line, "compute", None),
        "datasources": data_sources(line),
    }
    assets = {kind: names for kind, names in named.items() if names}
    template = getattr(line, "template", None)
    return ({"templateId": template} if template else {}) | ({"assets": assets} if assets else {})


def says_image_elsewhere(line: CommandLine) -> bool:
    """Whether a template or an environment of the command line may set the image."""
    return bool(getattr(line, "template", None) or environment_asset(line))
