"""What a submit says about notifications: where to, about what, and the key that signs them. Parsed here, kept in a Secret of the job.

The address may be a password (Slack's webhooks are), so it is in no other object, and in no text that people are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rowlock.documents.notify_address import MailAddress, parse_notify_address
from rowlock.workloads.body_fields import Fields

STARTED = "started"
EVENTS = (STARTED, "failed", "hangs", "nan", "idle", "preempted", "completed")
"""What can be told of a job."""
NOTIFY_ANNOTATION = "rowlock.dev/notify"
"""Job annotation: the name of the Secret with `url`, `key` and `on`."""
NOTIFIED_ANNOTATION = "rowlock.dev/notified"
"""Job annotation: the keys of what was told, so that the next server does not tell it again."""
UNTOLD_ANNOTATION = "rowlock.dev/notify-failed"
"""Job annotation: why the newest notification did not arrive."""
FIELD = "notify"
SHORTEST_KEY, LONGEST_KEY = 16, 256


def parse_notify(top: Fields) -> dict[str, str]:
    """The field `notify` of a request as the data of a Secret; {} if it is absent. Mistakes are added to its errors."""
    fields = top.object(FIELD)
    return parse_notify_fields(fields) if fields.values else {}


def parse_notify_fields(fields: Fields) -> dict[str, str]:
    """`url`, and the optional `key` and `on`, as the data of a Secret. Mistakes are added to its errors."""
    fields.allow_only("url", "key", "on")
    url, key = fields.text("url"), fields.text("key")
    try:
        address = parse_notify_address(url)
        if key and isinstance(address, MailAddress):
            fields.add_error("key", "format", "signs what goes to an address of the web; e-mail is not signed.")
    except ValueError as error:
        fields.add_error("url", "format", f"{error}.")
    if key and (problem := key_problem(key)):
        fields.add_error("key", "format", f"{problem}.")
    words = fields.texts("on") if fields.get("on") is not None else ()
    if words is None:
        fields.add_error("on", "type", "must be a list of words.")
    elif problem := events_problem(words):
        fields.add_error("on", "options", f"{problem}.")
    return {"url": url, **({"key": key} if key else {}), **({"on": ",".join(words)} if words else {})}


def key_problem(key: str) -> str:
    """Why this cannot sign notifications, without quoting it; "" = it can."""
    if not (SHORTEST_KEY <= len(key) <= LONGEST_KEY and key.isprintable() and key.isascii()):
        return f"must have {SHORTEST_KEY} to {LONGEST_KEY} printable ASCII characters: `openssl rand -hex 32` makes one"
    return ""


def events_problem(words: tuple[str, ...]) -> str:
    """Why these are not names of what can be told; "" = they are."""
    unknown = [word[:40] for word in words if word not in EVENTS]
    return f"may have {', '.join(EVENTS)}, not {unknown[0]!r}" if unknown else ""


def fields_without_address(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The fields of a request but this one, without its values in the typed command."""
    given = dict(fields)
    notify = given.pop(FIELD, None)
    for name, value in given.items():
        is_typed = name == "submitCommand" and isinstance(value, str) and isinstance(notify, Mapping)
        yield name, hide(value, notify) if is_typed else value


def hide(text: str, notify: Mapping[str, Any]) -> str:
    """The text without the address and the key of a notification."""
    for name in ("url", "key"):
        secret = notify.get(name)
        if isinstance(secret, str) and secret:
            text = text.replace(secret, "(not kept)")
    return text
