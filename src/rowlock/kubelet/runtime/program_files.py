"""The text of the Python program that a pod would run, for advice about it."""

import os
import re
from collections.abc import Callable
from contextlib import suppress

from rowlock.kubelet.files import untrusted
from rowlock.kubelet.images.images import Image, command_line, working_directory
from rowlock.kubelet.pod.facts import Problem
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.objects import Object

_MAX_BYTES = 256 << 10
_PROGRAM = re.compile(r"(?:^|[\s'\"=])([\w./+@-]{1,500}\.py)(?=$|[\s'\";])")
"""The file of a program in a command, or in a shell's script."""


def read_program(template: Object, find_image: Callable[[str], Image | Problem]) -> str:
    """The text of the first container's program; "" where its command names none, or an engine has its files. Reads a disk."""
    containers = parse_pod_spec(template).real_containers
    image = find_image(containers[0].image) if containers else None
    if not isinstance(image, Image) or image.engine:
        return ""
    words = command_line(image, containers[0])
    found = None if isinstance(words, Problem) else _PROGRAM.search(" ".join(words)[:_MAX_BYTES])
    directory = working_directory(image, containers[0], "")
    if found is None or not (directory or os.path.isabs(found[1])):
        return ""
    with suppress(OSError):
        return untrusted.read_file(os.path.join(directory, found[1]), _MAX_BYTES).decode(errors="replace")
    return ""
