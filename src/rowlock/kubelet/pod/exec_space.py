"""Counts the bytes of a program's variables and arguments against exec's limits, while they are built.

`$(NAME)` in a variable may refer to an earlier one, so a kilobyte of a pod may expand to gigabytes. Nothing that exec would
refuse is built: the container gets a problem, and no other pod is delayed.
"""

import re
import resource
from collections.abc import Mapping

from rowlock.kubelet.pod.facts import ContainerConfigError

LONGEST_STRING = 128 << 10
"""Bytes of one argument, or of one variable with its name, the terminating zero included (MAX_ARG_STRLEN of Linux)."""
MOST_REFERENCES = 1 << 15
"""Most `$(NAME)` and `$$` in all variables and arguments of a container: each costs time, even if its value is empty."""
_MOST_BYTES, _LEAST_BYTES = 6 << 20, LONGEST_STRING
_BYTES_PER_STRING = 9
"""The terminating zero, and a pointer: execve counts both."""
_REFERENCE = re.compile(r"\$(\$|\([A-Za-z_.-][A-Za-z0-9_.-]*\))")


def exec_limit() -> int:
    """Bytes that execve takes here for variables and arguments: a quarter of the stack's limit, 6 MiB at most."""
    soft = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return _MOST_BYTES if soft == resource.RLIM_INFINITY else max(_LEAST_BYTES, min(_MOST_BYTES, soft // 4))


class ExecSpace:
    """What is left of exec's limits for one program. Each method raises ContainerConfigError with a sentence when that is
    not enough."""

    def __init__(self, container: str) -> None:
        self._container, self._limit = container, exec_limit()
        self._left, self._references = self._limit, MOST_REFERENCES

    def take(self, text: str, name: str = "") -> None:
        """Counts an argument, or the variable `name`; a variable that is set again counts again."""
        size = len(text) + len(name)
        if size <= LONGEST_STRING and not (text.isascii() and name.isascii()):
            size = len((text + name).encode(errors="surrogatepass"))
        size += bool(name)  # the equals sign
        if size >= LONGEST_STRING:
            raise self._too_long(name)
        self._left -= size + _BYTES_PER_STRING
        if self._left < 0:
            raise ContainerConfigError(
                f"variables and arguments of container {self._container} come to more than {self._limit} bytes, which is what exec"
                " takes here: shorten them, or mount long texts as files"
            )

    def expand(self, text: str, env: Mapping[str, str], name: str = "") -> str:
        """Replaces `$(NAME)` by its value in `env` and `$$` by a dollar; unknown names stay. `name`: the variable that `text` is for."""
        if "$" not in text:
            return text
        parts, end, size = list[str](), 0, len(text)
        for match in _REFERENCE.finditer(text):
            token = match[1]
            value = "$" if token == "$" else env.get(token[1:-1], match[0])
            size += len(value) - len(match[0])
            self._references -= 1
            if size >= LONGEST_STRING + len(match.string) - match.end():  # the rest may refer to empty variables
                raise self._too_long(name)
            if self._references < 0:
                raise ContainerConfigError(
                    f"variables and arguments of container {self._container} hold more than {MOST_REFERENCES} references"
                    " ($(NAME), $$): write what they stand for"
                )
            parts += (text[end : match.start()], value)
            end = match.end()
        return "".join((*parts, text[end:]))

    def argument(self, text: str, env: Mapping[str, str]) -> str:
        """An argument, expanded and counted."""
        expanded = self.expand(text, env)
        self.take(expanded)
        return expanded

    def _too_long(self, name: str) -> ContainerConfigError:
        what = f"variable {name[:256]}" if name else "an argument or a path"
        return ContainerConfigError(
            f"{what} of container {self._container} comes to {LONGEST_STRING} bytes or more, and exec takes less for each:"
            " shorten it, or mount it as a file"
        )


def expand(text: str, env: Mapping[str, str]) -> str:
    """Expands `text` within the limits of a fresh ExecSpace."""
    return ExecSpace("").expand(text, env)
