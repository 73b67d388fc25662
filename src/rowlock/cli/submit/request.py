"""Converts the flags of a submit to `spec` and `masterSpec` of Run:ai's REST API, with the table of submit fields."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rowlock.cli.compute_flags import gpu_request, normalize_quantity
from rowlock.cli.grammar import CommandError, CommandLine, is_digits
from rowlock.cli.output import parse_duration
from rowlock.cli.submit.flags import flag_of, has_field, has_master_field, master_flag_of
from rowlock.cli.submit.items import parse_claim, parse_items, parse_pairs, parse_resources, parse_volume
from rowlock.submit_fields import SUBMIT_FIELDS, SubmitField, paths

Spec = dict[str, Any]


def request_specs(line: CommandLine, generation: int, framework: str) -> tuple[Spec, Spec]:
    """(`spec` of the workers, `masterSpec` with the fields in which the master differs, often {}). Raises CommandError."""
    spec: Spec = {}
    from_template = bool(getattr(line, "template", None))  # the template sets what no flag sets
    for row in SUBMIT_FIELDS:
        flag = flag_of(row, generation)
        if flag and from_template and flag.dest not in line.given_flags:
            continue
        if flag and not row.refuse and row.path and has_field(row, framework):
            _add_field(spec, row, getattr(line, flag.dest, None), flag.names.split()[0])
    _name_nfs_server(spec, line)
    _add_command(spec, line)
    master: Spec = {}
    for row in SUBMIT_FIELDS:
        flag = master_flag_of(row, generation)
        if flag and flag.dest in line.given_flags and has_master_field(row, framework):
            _add_master_field(master, spec, row, getattr(line, flag.dest), flag.names.split()[0])
    return spec, master


def _name_nfs_server(spec: Spec, line: CommandLine) -> None:
    """V1's --nfs-server: turn the host directories of -v into exports of that NFS server. Raises CommandError without -v."""
    server, storage = getattr(line, "nfs_server", None), spec.get("storage", {})
    if server:
        exports = [{**volume, "server": server} for volume in storage.pop("hostPath", [])]
        if not exports and not storage.get("nfs"):
            raise CommandError("--nfs-server says whose directories -v names: give -v DIRECTORY:CONTAINER, too", 2)
        storage["nfs"] = [*exports, *storage.get("nfs", [])]


def _add_command(spec: Spec, line: CommandLine) -> None:
    """Set the command: the words after `--`, without quoting or expansion."""
    rest, given_args = line.rest or [], list(getattr(line, "args", None) or [])
    spec.pop("command", None)
    spec.pop("args", None)
    if getattr(line, "command", None):
        spec["command"], spec["args"] = rest[:1], [*rest[1:], *given_args]
    elif rest or given_args:
        spec["args"] = [*given_args, *rest]


def _add_field(spec: Spec, row: SubmitField, value: Any, name: str) -> None:
    if value is None or value is False or value == []:
        return
    if row.const is not None:
        value = row.const
    convert = _CONVERTERS.get(row.kind)
    if row.kind in _PART_READERS:
        for path, part in _PART_READERS[row.kind](value, name).items():
            _set_value(spec, path, part)
        return
    converted = convert(value, name) if convert else value
    _set_value(spec, paths(row)[0], converted)


def _set_value(spec: Spec, path: str, value: Any) -> None:
    """Set a value at its path; lists from several flags are concatenated."""
    *parents, last = path.split(".")
    for parent in parents:
        spec = spec.setdefault(parent, {})
    if isinstance(value, list) and isinstance(spec.get(last), list):
        spec[last] = [*spec[last], *value]
    else:
        spec[last] = value


# ---------------------------------------------------------------- values


def _parse_names(values: Sequence[str], _: str) -> list[str]:
    return [word for value in values for word in value.split(",") if word]


def _parse_key_variables(source_field: str, word: str) -> Callable[[Sequence[str], str], list[dict[str, Any]]]:
    """A parser of `NAME=HOLDER,key=KEY`: variables whose values are in a Secret or a credential of the submitter."""

    def parse(values: Sequence[str], name: str) -> list[dict[str, Any]]:
        variables = []
        for value in values:
            variable, _, source = value.partition("=")
            holder, _, key = source.partition(",key=")
            if not (variable and holder and key):
                raise CommandError(f'invalid argument "{value}" for {name}: write NAME={word},key=KEY', 2)
            variables.append({"name": variable, source_field: {"name": holder, "key": key}})
        return variables

    return parse


def _parse_field_variables(values: Sequence[str], name: str) -> list[dict[str, Any]]:
    return [{"name": pair["name"], "podFieldRef": {"path": pair["value"]}} for pair in parse_pairs(values, name)]


def _parse_container_ports(values: Sequence[str], name: str) -> list[dict[str, Any]]:
    """Parse V1's LOCAL:REMOTE; REMOTE is the container's port. Raises CommandError."""
    ports = [value.rpartition(":")[2] for value in _parse_names(values, name)]
    for value, port in zip(_parse_names(values, name), ports, strict=True):
        if not is_digits(port) or not 0 < int(port) < 65536:
            raise CommandError(
                f'invalid argument "{value}" for {name}: write LOCAL:REMOTE, ports from 1 to 65535, for example 8080:80',
                2,
            )
    return [{"container": int(port)} for port in ports]


def _excluded_nodes(values: Sequence[str], name: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": _parse_names(values, name)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


_CONVERTERS: dict[str, Callable[[Any, str], Any]] = {
    "quantity": lambda value, _: normalize_quantity(value),
    "duration": lambda value, name: int(parse_duration(value, name)),
    "names": _parse_names,
    "numbers": lambda values, name: ",".join(_parse_names(values, name)),
    "pairs": parse_pairs,
    "own credentials": lambda values, name: [
        {"name": word, "userCredential": True} for word in _parse_names(values, name)
    ],
    "resources": parse_resources,
    "variables": parse_pairs,
    "secret variables": _parse_key_variables("secret", "SECRET"),
    "credential variables": _parse_key_variables("userCredential", "CREDENTIAL"),
    "field variables": _parse_field_variables,
    "ports": _parse_container_ports,
    "excluded nodes": _excluded_nodes,
    "preferred topology": lambda value, _: {"type": "Preferred", "key": value},
    "required topology": lambda value, _: {"type": "Required", "key": value},
    "items": parse_items,
    "claims": lambda values, name: [parse_claim(value, name) for value in values],
}


def _parse_gpus(value: float, name: str) -> dict[str, Any]:
    return {f"compute.{field}": part for field, part in gpu_request(value, name).items()}


def _own_user(value: Any, name: str) -> dict[str, Any]:
    """The uid of the calling user, or the given number."""
    if isinstance(value, str) and value not in ("", "true"):
        if value == "false":
            return {}
        if not is_digits(value):
            raise CommandError(f'invalid argument "{value}" for {name}: write a user\'s number, or nothing', 2)
        return {"security.runAsUid": int(value)}
    return {"security.runAsUid": os.getuid(), "security.runAsGid": os.getgid()}


def _parse_environment(values: Sequence[str], name: str) -> dict[str, Any]:
    """The variables among the values of --environment; other values name an asset (`asset_references`)."""
    pairs = parse_pairs([value for value in values if "=" in value], name)
    return {"environmentVariables": pairs} if pairs else {}


def _parse_volumes(values: Sequence[str], name: str) -> dict[str, Any]:
    """Split the volumes of -v into directories of the node and exports of NFS servers."""
    volumes = [parse_volume(value, name) for value in values]
    parts = {
        "storage.hostPath": [one for one in volumes if "server" not in one],
        "storage.nfs": [one for one in volumes if "server" in one],
    }
    return {place: items for place, items in parts.items() if items}


_PART_READERS: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "gpus": _parse_gpus, "own user": _own_user, "environment": _parse_environment, "volumes": _parse_volumes,
}  # fmt: skip
"""Kinds of fields that set several fields of the request."""


# ---------------------------------------------------------------- the master


def _add_master_field(master: Spec, spec: Spec, row: SubmitField, value: Any, name: str) -> None:
    field = paths(row)[0]
    if field == "storage.pvc":
        if value:
            master["storage"] = {kind: items for kind, items in spec.get("storage", {}).items() if kind != "pvc"}
    elif field == "environmentVariables":
        master[field] = _override_variables(spec.get(field, []), parse_pairs(value, name))
    elif field.startswith("compute."):
        compute = master.get("compute")
        if compute is None:
            compute = master["compute"] = dict(spec.get("compute", {}))
        if row.kind == "gpus":
            for key in [key for key in compute if key.startswith("gpu")]:
                del compute[key]
        compute.pop(field.removeprefix("compute."), None)  # a master's list replaces that of the workers
        _add_field(master, row, value, name)
    else:
        if field == "command":
            master.setdefault("args", [])
        _set_value(master, field, value)


def _override_variables(workers: list[dict[str, Any]], overrides: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The workers' variables with the master's changes; `NAME=-` removes one."""
    variables = {variable["name"]: variable for variable in workers}
    for item in overrides:
        if item["value"] == "-":
            variables.pop(item["name"], None)
        else:
            variables[item["name"]] = item
    return list(variables.values())
