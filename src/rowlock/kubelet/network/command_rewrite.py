"""Rewrites the rendezvous address in launchers' commands, where pods have no network of their own. Pure.

`env_rewrite.py` does the same for variables. A command may name it, too: `torchrun --rdzv-endpoint=job-master-0:29500`, as one
word, as two, or inside a shell script. All other names of pods and services are found by `unknown_names`, to be reported.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from rowlock.kubelet.network.env_rewrite import LOOPBACK, PodResolver, PortLookup

ENDPOINT_FLAGS: Mapping[str, int] = {"--rdzv-endpoint": 29400}
"""Flag whose value is `name:port` → the default port."""
HOST_FLAGS: Mapping[str, tuple[str, int]] = {
    "--master-addr": ("--master-port", 29500),
    "--main-process-ip": ("--main-process-port", 29500),
    "--main-address": ("--main-port", 29400),
}
"""Flag whose value is a name → the flag with its port, and the default port. They are those of torchrun and DeepSpeed, of accelerate,
and of Lightning's Fabric; all take `_` for `-`."""
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_SCHEME = r"(?<!\w)\w{1,32}://"
_ADDRESS = re.compile(rf"(?<![\w.@/$-])(?:{_SCHEME})?({_HOST}):(\d{{1,5}})(?![\w.])|{_SCHEME}({_HOST})(?![\w.:@-])")
"""`name:port`, also in a URL, or a URL without a port. Every part has a bounded length, since words of a pod may be long."""
MOST_ADDRESSES, MOST_CHARACTERS = 64, 128 << 10
"""Most addresses of one flag that are rewritten; most characters that are searched for unknown names."""


def rewrite_command(argv: Sequence[str], resolve: PodResolver, port_of: PortLookup) -> list[str]:
    """The command for a pod that has this machine's network: names become loopback, ports those of `port_of`."""
    words = list(argv)
    text = "\0".join(words)  # a flag and its value may be two words, or both in one word (a script)
    for flag, default in ENDPOINT_FLAGS.items():
        pattern = re.compile(rf"({_flag_pattern(flag)}[=\0\s]+[\"']?)({_HOST})(?::(\d{{1,5}}))?(?![\w.:])")

        def endpoint(match: re.Match[str], default: int = default) -> str:
            target = resolve(match[2])
            return f"{match[1]}{LOOPBACK}:{port_of(target, int(match[3] or default))}" if target else match[0]

        text = pattern.sub(endpoint, text, count=MOST_ADDRESSES)
    for flag, (port_flag, default) in HOST_FLAGS.items():
        text = _rewrite_host_flag(text, flag, (port_flag, default), (resolve, port_of))
    return text.split("\0") if words else []


def _rewrite_host_flag(
    text: str, flag: str, port_flag: tuple[str, int], context: tuple[PodResolver, PortLookup]
) -> str:
    found = re.search(rf"({_flag_pattern(flag)}([=\0\s])+[\"']?)({_HOST})([\"']?)(?![\w.:])", text)
    target = context[0](found[3]) if found else ""
    if found is None or not target:
        return text
    port_pattern = re.compile(rf"({_flag_pattern(port_flag[0])}[=\0\s]+[\"']?)(\d{{1,5}})(?![\w.])")
    port = port_pattern.search(text)
    number = context[1](target, int(port[2]) if port else port_flag[1])
    separator = "\0" if "\0" in found[1] or found.end() == len(text) or text[found.end()] == "\0" else " "
    added = "" if port else f"{separator}{port_flag[0].replace('-', '_').replace('__', '--', 1)}={number}"
    text = f"{text[: found.start()]}{found[1]}{LOOPBACK}{found[4]}{added}{text[found.end() :]}"
    return port_pattern.sub(lambda match: f"{match[1]}{number}", text)


def _flag_pattern(flag: str) -> str:
    """A pattern for the flag in either spelling, but not as the end of a longer one."""
    return rf"(?<![\w-])--{flag.removeprefix('--').replace('-', '[-_]')}"


def unknown_names(texts: Iterable[str], resolve: PodResolver) -> list[str]:
    """The addresses in these texts (words of commands, values of variables) that name a pod or service, as written."""
    found: dict[str, None] = {}
    left = MOST_CHARACTERS
    for text in texts:
        left -= len(text)
        if left < 0:  # only a hint for users: text this long is not written by hand
            break
        for match in _ADDRESS.finditer(text):
            if resolve(match[1] or match[3]):
                found[match[0]] = None
    return list(found)
