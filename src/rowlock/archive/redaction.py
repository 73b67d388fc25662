"""Redaction: the values of environment variables with secret names are not recorded.

Secrets themselves are never read. A variable given in the clear may still be secret (`WANDB_API_KEY`): its value is
removed everywhere in the record, also from the typed command line. Searching every value in every text costs their
product, on the event loop: where that is too much, all fields that users typed are left out instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|APIKEY|KEY|CREDENTIALS?|AUTH|COOKIE|DSN)(?:$|_)", re.I
)
"""Names of variables whose values are not kept."""
NOT_KEPT = "(not kept)"
_MIN_LENGTH = 4
"""Minimum length of a value that is searched for elsewhere: shorter ones occur in ordinary text."""
MOST_WORK = 16 << 20
"""The most characters of text times number of values that are searched: about 20 ms."""
_TYPED = frozenset({"annotations", "command", "args", "env"})
"""Fields with free-form content from users."""
_BETWEEN = "\udcff"
"""Separates the texts of a record: a lone surrogate, which no decoded JSON contains."""


def secret_values(record: Any) -> list[str]:
    """The values of secret variables in a record, the longest first."""
    found: set[str] = set()
    waiting = [record]
    while waiting:  # iterative, because it runs for every job
        value = waiting.pop()
        if isinstance(value, dict):
            name, text = value.get("name"), value.get("value")
            if isinstance(name, str) and isinstance(text, str) and text and _is_secret(name):
                found.add(text)
            parts: Iterable[Any] = value.values()
        else:
            parts = value
        for part in parts:
            if part.__class__ is dict or part.__class__ is list:
                waiting.append(part)
    return sorted(found, key=len, reverse=True)


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    return SECRET_NAME.search(name) is not None


def redact(record: Any, secrets: list[str]) -> Any:
    """A copy of the record with these values removed; the record itself when `secrets` is empty."""
    if not secrets:
        return record
    texts: list[str] = []
    rest = _take_texts(record, texts)
    searched = [secret for secret in secrets if len(secret) >= _MIN_LENGTH]
    if len(searched) * sum(map(len, texts)) > MOST_WORK:
        return _without_typed(record)
    joined = _BETWEEN.join(texts)
    for secret in searched:
        joined = joined.replace(secret, NOT_KEPT)
        quoted = json.dumps(secret, ensure_ascii=False)[1:-1]  # annotations hold requests as JSON
        if quoted != secret:
            joined = joined.replace(quoted, NOT_KEPT)
    return _put_texts(rest, iter(joined.split(_BETWEEN)))


class _Text:
    """The type of the placeholder for a text that was taken out."""


_TEXT = _Text()


def _take_texts(value: Any, texts: list[str]) -> Any:
    """A copy with `_TEXT` in place of each text, which is added to `texts`, and without values of secret variables."""
    if isinstance(value, dict):
        if isinstance(value.get("value"), str) and _is_secret(str(value.get("name") or "")):
            value = {**value, "value": NOT_KEPT if value["value"] else ""}
        return {key: _take_texts(part, texts) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_take_texts(part, texts) for part in value]
    if isinstance(value, str):
        texts.append(value)
        return _TEXT
    return value


def _put_texts(value: Any, texts: Iterator[str]) -> Any:
    if isinstance(value, dict):
        return {key: _put_texts(part, texts) for key, part in value.items()}
    if isinstance(value, list):
        return [_put_texts(part, texts) for part in value]
    return next(texts) if value is _TEXT else value


def _without_typed(value: Any) -> Any:
    """A copy with the fields that users typed emptied."""
    if isinstance(value, dict):
        return {
            key: type(part)() if key in _TYPED and isinstance(part, dict | list) else _without_typed(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_typed(part) for part in value]
    return value
