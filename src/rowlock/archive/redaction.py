"""What is not written down: values of variables whose names say that they are secret.

Secrets themselves are never read. A variable that was given in the clear may still be one (`WANDB_API_KEY`): its value is
taken out wherever it stands in the record, also in the command line that was typed."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|APIKEY|KEY|CREDENTIALS?|AUTH|COOKIE|DSN)(?:$|_)", re.I
)
"""Names of variables whose values are not kept."""
NOT_KEPT = "(not kept)"
_MIN_LENGTH = 4
"""Characters of a value that is looked for elsewhere: shorter ones stand in everything."""


def secret_values(record: Any) -> list[str]:
    """The values of secret variables in it, the longest first."""
    found: set[str] = set()
    waiting = [record]
    while waiting:  # without recursion: every job is looked through once
        value = waiting.pop()
        if isinstance(value, dict):
            name, text = value.get("name"), value.get("value")
            if isinstance(name, str) and isinstance(text, str) and text and _is_secret(name):
                found.add(text)
            waiting += [part for part in value.values() if isinstance(part, dict | list)]
        else:
            waiting += [part for part in value if isinstance(part, dict | list)]
    return sorted(found, key=len, reverse=True)


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    return SECRET_NAME.search(name) is not None


def redact(record: Any, secrets: list[str]) -> Any:
    """The record without these values, as a copy where there are any; itself otherwise."""
    return _without(record, secrets) if secrets else record


def _without(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("value"), str) and _is_secret(str(value.get("name") or "")):
            value = {**value, "value": NOT_KEPT if value["value"] else ""}
        return {key: _without(part, secrets) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without(part, secrets) for part in value]
    if isinstance(value, str):
        for secret in secrets:
            if len(secret) >= _MIN_LENGTH:
                quoted = json.dumps(secret, ensure_ascii=False)[1:-1]  # annotations hold requests as JSON
                value = value.replace(secret, NOT_KEPT).replace(quoted, NOT_KEPT)
    return value
