"""Parses flag values that have parts (`NAME=VALUE`, `key=value,...`, `host:container:ro`) into objects of the REST API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock.cli.grammar import CommandError, is_digits, suggest_nearest
from rowlock.submit_fields import ITEM_KEYS

_NUMBERS = frozenset({"seconds", "container", "external"})


def parse_pairs(entries: Sequence[str], flag: str) -> list[dict[str, Any]]:
    """Parse entries `NAME=VALUE` into `{"name", "value"}`. `flag` is named in errors. Raises CommandError."""
    pairs = []
    for item in entries:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise CommandError(f'invalid argument "{item}" for {flag}: write NAME=VALUE')
        pairs.append({"name": name, "value": value})
    return pairs


def parse_resources(entries: Sequence[str], flag: str) -> list[dict[str, Any]]:
    """Parse entries `name=quantity,...` into the REST API's extended resources. `flag` is named in errors."""
    items = [part for item in entries for part in item.split(",")]
    return [{"resource": pair["name"], "quantity": pair["value"]} for pair in parse_pairs(items, flag)]


def parse_items(entries: Sequence[str], flag: str) -> list[dict[str, Any]]:
    """Parse entries `key=value,...` with the flag's keys in `ITEM_KEYS`; a word without `=` is a switch. Raises CommandError."""
    return [_parse_item(entry, flag) for entry in entries]


def _parse_item(entry: str, flag: str) -> dict[str, Any]:
    keys = ITEM_KEYS[flag]
    item: dict[str, Any] = {}
    if constant := keys.get(""):
        _set_part(item, *_split_constant(constant))
    for part in filter(None, entry.split(",")):
        key, equals, value = part.partition("=")
        key = key.strip().lower()
        if key not in keys or not key:
            names = [name for name in keys if name]
            hint = suggest_nearest(key, names)
            raise CommandError(
                f'invalid argument "{entry}" for {flag}: it has no {key!r}.{hint} Known: {", ".join(names)}', 2
            )
        field, constant_value = _split_constant(keys[key])
        if constant_value is not None:
            if equals and value.lower() not in ("true", "false"):
                raise CommandError(f'invalid argument "{entry}" for {flag}: {key} is true or false', 2)
            _set_part(item, field, constant_value if value.lower() != "false" else not constant_value)
        elif not equals or not value:
            raise CommandError(f'invalid argument "{entry}" for {flag}: {key} needs a value, {key}=...', 2)
        else:
            _set_part(item, field, int(value) if field in _NUMBERS and is_digits(value) else value)
    return item


def _split_constant(field: str) -> tuple[str, bool | None]:
    """`readOnly=true` → ("readOnly", True), a switch; `path` → ("path", None), a field that takes the written value."""
    name, equals, word = field.partition("=")
    return name, word == "true" if equals else None


def _set_part(item: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        item = item.setdefault(parent, {})
    item[last] = value


def parse_volume(text: str, flag: str) -> dict[str, Any]:
    """Parse V1's `host:container[:ro|rw][:nfs-server]`, read-write by default. The result has `server` for an NFS export."""
    host, _, rest = text.partition(":")
    container, _, mode = rest.partition(":")
    if not host.startswith("/") or not container.startswith("/"):
        raise CommandError(
            f'invalid argument "{text}" for {flag}: write HOST:CONTAINER[:ro|rw], both beginning with /', 2
        )
    mode, _, server = mode.partition(":")
    if mode not in ("", "ro", "rw"):
        if server:
            raise CommandError(f'invalid argument "{text}" for {flag}: {mode!r} must be ro or rw', 2)
        mode, server = "", mode
    volume = {"path": host, "mountPath": container, "readOnly": mode == "ro"}
    return volume | ({"server": server} if server else {})


def parse_claim(text: str, flag: str) -> dict[str, Any]:
    """Parse V1's `NAME:PATH[:ro]` for an existing claim, or `[CLASS]:SIZE:PATH[:ro]` for a new one."""
    parts = text.split(":")
    read_only = parts[-1] in ("ro", "rw") and parts.pop() == "ro"
    if len(parts) == 2 and parts[1].startswith("/"):
        claim: dict[str, Any] = {"existingPvc": True, "claimName": parts[0], "path": parts[1]}
    elif len(parts) == 3 and parts[2].startswith("/"):
        info = {"size": parts[1], **({"storageClass": parts[0]} if parts[0] else {})}
        claim = {"existingPvc": False, "claimInfo": info, "path": parts[2]}
    else:
        raise CommandError(
            f'invalid argument "{text}" for {flag}: write NAME:PATH, or [CLASS]:SIZE:PATH for a new claim', 2
        )
    return {**claim, "readOnly": True} if read_only else claim
