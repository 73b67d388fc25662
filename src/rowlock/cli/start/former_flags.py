"""Which flags of a data directory's last start hold for the next one, and the sentence that says so.

Nodes and GPUs do, where the command line says nothing of them: the jobs of the directory were submitted for them. All others are
flags that open doors or change what pods are, so they count for one start only; those that are dropped are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rowlock.cli import client

NODE_FLAGS = ("nodes", "pretend_nodes", "simulated_gpus", "gpus_per_node", "cpus_per_node", "max_pods")


class NextStart(NamedTuple):
    """The settings of a start, and the sentences that say what it has of the last one and what not."""

    settings: dict[str, Any]
    sentences: tuple[str, ...] = ()


def next_start(directory: str, settings: Mapping[str, Any]) -> NextStart:
    """The settings of the next start in this directory. `settings`: the flags that were given, by name."""
    last = client.read_server_json(directory) or {}
    return continue_start(last.get("flags") if isinstance(last.get("flags"), dict) else {}, settings)


def continue_start(former: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> NextStart:
    """The settings of a start that comes after one with the flags `former`."""
    differing = client.unusual_flags(former or {})
    is_silent = not any(name in settings for name in ("kubeconfig", *NODE_FLAGS))
    kept = {name: value for name, value in differing.items() if is_silent and name in NODE_FLAGS and _is_number(value)}
    dropped = {name: value for name, value in differing.items() if name not in kept and name not in settings}
    sentences = []
    if kept:
        sentences.append(f"Nodes and GPUs are those of the last start: {_words(kept)} (say --nodes to change them).")
    if dropped:
        sentences.append(f"Other than the last start, this one is without {_words(dropped)}.")
    return NextStart({**kept, **settings}, tuple(sentences))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(flags: Mapping[str, Any]) -> str:
    return " ".join(client.flag_words(flags))
