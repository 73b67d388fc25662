"""What may become a part of a path: names. Every name from outside passes `path_component` before it is one.

Pods, their owners and who asks for a log choose names; `..`, a slash or a wildcard in one of them would be a path of
their choice. Standard library only.
"""

import re

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)


class NotAName(ValueError):
    """A text that cannot be a part of a path; a sentence."""


def is_name(text: str) -> bool:
    """Letters, digits, `-`, `_` and `.`, not at the ends, at most 253: what Kubernetes' names and uids are made of."""
    return _NAME.fullmatch(text) is not None


def path_component(text: str, what: str) -> str:
    """The name itself. Raises NotAName, which says what it is the name of."""
    if not is_name(text):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise NotAName(
            f"{what} {shown!r} cannot name a directory: use letters, digits, '-', '_' and '.', beginning and ending with"
            " a letter or digit, at most 253 characters"
        )
    return text
