"""Names that may become a part of a path. Every name from outside must pass `path_component` first.

Pods, their owners and readers of logs choose names; with `..`, a slash or a wildcard in one of them they would choose the
path. Standard library only.
"""

import re

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)


class NotAName(ValueError):
    """A text cannot be a part of a path; carries a sentence."""


def is_name(text: str) -> bool:
    """Whether it has at most 253 letters, digits, `-`, `_` and `.`, the last three not at the ends, like Kubernetes' names and uids."""
    return _NAME.fullmatch(text) is not None


def path_component(text: str, what: str) -> str:
    """Returns a valid name. Raises NotAName, which mentions `what` it names."""
    if not is_name(text):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise NotAName(
            f"{what} {shown!r} cannot name a directory: use letters, digits, '-', '_' and '.', beginning and ending with"
            " a letter or digit, at most 253 characters"
        )
    return text
