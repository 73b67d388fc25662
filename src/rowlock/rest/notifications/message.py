"""The request that tells a notice: JSON whose `text` Slack and Mattermost show, and headers with its signature. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import NamedTuple

from rowlock import __version__, objects
from rowlock.archive.records import RunRecord
from rowlock.rest.notifications.notices import Notice

SIGNATURE_HEADER = "X-Rowlock-Signature"
_LONGEST_TEXT = 2000
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
"""Slack's. They also keep a program's own output from calling everybody: `<!channel>`."""
_CALLS = re.compile(r"@(?=\w)")


class Message(NamedTuple):
    """The body of a request and its headers."""

    body: bytes
    headers: dict[str, str]


def make_message(notice: Notice, record: RunRecord, key: str = "") -> Message:
    """The request for a notice about a run, signed if there is a key."""
    sentence = notice.sentence[:_LONGEST_TEXT]
    fields = {
        "text": chat_text(f"{record.name} (project {record.project}) {sentence}"),
        "id": f"{record.uid}/{notice.key}",
        "event": notice.event,
        "at": objects.micro_timestamp(notice.at),
        "job": record.name,
        "project": record.project,
        "namespace": record.namespace,
        "kind": record.kind,
        "workloadId": record.id,
        "sentence": sentence,
    }
    return signed_message(fields, key)


def signed_message(fields: dict[str, str], key: str) -> Message:
    """These fields as a request; the signature is the HMAC-SHA256 of the body, in hexadecimal."""
    body = json.dumps(fields, ensure_ascii=False).encode(errors="replace")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"rowlock/{__version__}",
        "X-Rowlock-Event": fields["event"],
    }
    if key:
        headers[SIGNATURE_HEADER] = f"sha256={hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}"
    return Message(body, headers)


def chat_text(text: str) -> str:
    """Plain text as Slack and Mattermost show it: nothing in it is a link, a mention or a call for everybody."""
    escaped = "".join(_ESCAPES.get(c, c) for c in text)
    return _CALLS.sub("@\u200b", escaped)
