"""Commands that start torchrun: how many ranks each of them starts.

Read from a job's command if its spec has no `spec.nprocPerNode`: torchrun is the program itself, or a shell starts it. Uses only the
standard library, because the command lines import it and must start fast.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

_SWITCHES = frozenset(
    {"--standalone", "--no-python", "--module", "-m", "--run-path", "--virtual-local-rank", "--help", "-h"}
)
"""torchrun's options without a value, in torch 2.13."""
_SHELLS = frozenset(("sh", "bash", "dash", "zsh"))
_IN_SCRIPT = re.compile(
    r"(?:^|[\s;&|(])(?:[^\s;&|('\"]*/)?(?:torchrun|-m\s+torch\.distributed\.(?:run|launch))\s((?:[^\n;&|)]){0,2000})",
)
"""Matches a torchrun in a shell script; the group has the following words of the same command."""
_MOST_COMMANDS, _MOST_CHARACTERS = 16, 65_536
"""Maximum of torchruns examined in a script, and of characters of an examined command: users' scripts may have any size."""


def _name_of(program: str) -> str:
    return program.rpartition("/")[2]


def is_torchrun(command: Sequence[str]) -> bool:
    """Whether the program is torchrun, which starts its ranks itself."""
    return _name_of(command[0]) == "torchrun" or tuple(command[1:3]) == ("-m", "torch.distributed.run")


def launched_ranks(command: Sequence[str]) -> int | None:
    """The number in torchrun's option `--nproc-per-node`, where torchrun is the program of `command` or is in a shell's script (`bash -c`).
    None if there is no torchrun, if the value is a word (`gpu`) or a variable, or if several differ."""
    return None if sum(map(len, command)) > _MOST_CHARACTERS else _launched_ranks(tuple(command))


@functools.lru_cache(maxsize=64)  # all pods of a job have the same command, and every list asks for each
def _launched_ranks(command: tuple[str, ...]) -> int | None:
    numbers = {_given_number(words) for words in _torchrun_arguments(command)}
    return numbers.pop() if len(numbers) == 1 else None


def _torchrun_arguments(command: Sequence[str]) -> Iterator[Iterator[str]]:
    if not command:
        return
    if is_torchrun(command):
        yield iter(command[1:] if _name_of(command[0]) == "torchrun" else command[3:])
    elif _name_of(command[0]) in _SHELLS:
        script = next((word for word in command[1:] if not word.startswith("-")), "")
        if "torch" not in script:
            return
        script = re.sub(r"(?m)^[ \t]*#.*$", "", script.replace("\\\n", " "))
        for number, found in enumerate(_IN_SCRIPT.finditer(script)):
            if number == _MOST_COMMANDS:
                break
            yield iter(word.strip("'\"") for word in found[1].split())


def _given_number(words: Iterator[str]) -> int | None:
    found = ""
    for word in words:
        if not word.startswith("-"):
            break  # the script: the following words are its arguments
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if not equals and option not in _SWITCHES:
            value = next(words, "")
        if option == "--nproc-per-node":
            found = value
    return int(found) if found.isascii() and found.isdigit() and 0 < int(found[:9]) <= 99_999 else None
