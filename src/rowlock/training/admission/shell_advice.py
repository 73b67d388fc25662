"""Advice about shells that keep SIGTERM from the program that they run. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

_FORKING_SHELLS, _SHELLS = frozenset({"sh", "dash", "ash"}), frozenset({"sh", "dash", "ash", "bash", "zsh"})
"""Shells that fork even for the last command of a script (dash, which is `sh` on Debian); all shells."""
_SEPARATORS = frozenset({";", "&&", "||", "|", "&", "|&"})
_BLOCK_ENDS = frozenset({"done", "fi", "esac", "}", ")"})


def signal_remark(container: Mapping[str, Any], owner: str) -> Iterator[str]:
    """One sentence if the container's process 1 is a shell that may not pass SIGTERM on. `owner`: what the command is part of, such as
    "Worker"."""
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    shell = words[0].rpartition("/")[2] if words else ""
    if shell in _SHELLS and _keeps_signals(shell, _script_of(words[1:])):
        yield (
            f"{shell} of {owner} may not pass SIGTERM on: then, on a cluster, its program is killed after the grace period"
            " without being asked to save; begin the last command with `exec`"
        )


_LONGEST_SCRIPT = 16 << 10
"""Maximum length of a script that is parsed for advice: splitting it into words takes a millisecond per KiB."""


def _script_of(words: list[str]) -> str:
    """The script of a shell's -c option; "" if it runs a file."""
    for number, word in enumerate(words):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return words[number + 1] if number + 1 < len(words) else ""
        if not word.startswith("-") and (number == 0 or not words[number - 1].endswith("o")):  # `-o pipefail`
            return ""
    return ""


def _keeps_signals(shell: str, script: str) -> bool:
    """Whether the shell waits for the script's last command instead of exec'ing it; False if that is unclear."""
    if len(script) > _LONGEST_SCRIPT:
        return False
    lexer = shlex.shlex(script.strip().replace("\n", " ; "), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # quotes that do not end, or a here document
        return False
    if not words or ("trap" in words and {"TERM", "SIGTERM", "15"} & set(words[words.index("trap") :])):
        return False
    while words and words[-1] == ";":
        words.pop()
    starts = [n + 1 for n, word in enumerate(words) if word in _SEPARATORS]
    last, before = words[starts[-1] :] if starts else words, words[starts[-1] - 1] if starts else ";"
    if last[:1] == ["exec"]:
        return False
    is_simple = before in (";", "&&") and bool(last) and last[-1] not in _BLOCK_ENDS and last[0] != "wait"
    return shell in _FORKING_SHELLS or not is_simple
