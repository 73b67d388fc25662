"""Translates the server's refusal of a submit: replaces the request's field names by the flags that the user typed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rowlock.cli.client import StatusError


def message_in_flags(refusal: StatusError, flag_of: Mapping[str, str]) -> str:
    """The server's message with flags instead of field names. `flag_of` maps a field of the request to its flag."""
    issues = refusal.body.get("complianceIssues") if isinstance(refusal.body, dict) else None
    if not issues or not any(_flag_of_field(i["field"], flag_of) for i in issues):
        return refusal.message
    flag_errors = dict.fromkeys(
        (_flag_of_field(i["field"], flag_of) or i["field"], _name_flags(i["details"], i["field"], flag_of))
        for i in issues
    )
    return "\n".join(f"{flag}: {details}" for flag, details in flag_errors)


def _flag_of_field(field: str, flag_of: Mapping[str, str]) -> str:
    """The flag of the field or of one of its parents: `spec.storage.pvc[0].path` comes from --existing-pvc."""
    while field:
        names = (field, field.partition("[")[0], f"spec.{field}")  # policies name fields without `spec`, as Run:ai's do
        if flag := next((flag_of[name] for name in names if name in flag_of), ""):
            return flag
        field = field.rpartition(".")[0]
    return ""


def _name_flags(details: str, field: str, flag_of: Mapping[str, str]) -> str:
    """The sentence with flags for the sibling fields of this one that it mentions: "no less than cpuCoreRequest"."""
    parent = field.rpartition(".")[0]

    def flag(word: re.Match[str]) -> str:
        return flag_of.get(f"{parent}.{word[0]}", word[0]).rpartition(", ")[2]

    return re.sub(r"\b[a-z]+[A-Z]\w*", flag, details)
