"""The flags of `rowlock up`, from the table of settings: parses and checks them, and builds the server's command line from them.

Nodes and GPUs of the last start in a data directory apply to the next start unless the command line sets them, because the jobs
there were submitted for them. All other flags open access or change how pods run, so they apply to one start only; the command
names those that it drops.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from rowlock.cli.context import data_dir, data_dir_flag
from rowlock.cli.grammar import CommandError, CommandLine, Flag, is_digits
from rowlock.cli.output import parse_duration, parse_size
from rowlock.cli.server_json import read_server_json
from rowlock.server_settings import DEFAULTS, OPTIONAL_PARTS, SETTINGS, Setting, flag_name, typed_value

NODE_SETTINGS = ("nodes", "pretend_nodes", "simulated_gpus", "gpus_per_node", "cpus_per_node", "max_pods")
_POD_NETWORK_PORTS = (3128, 6443)
"""Ports of the pods' proxy and of the API server, at the address where pods reach this machine."""


def _flag(name: str, row: Setting) -> Flag:
    kind = "text" if row.kind in ("duration", "size", "file") else row.kind
    default = (
        typed_value(name, DEFAULTS[name]) if DEFAULTS[name] and row.kind in ("duration", "size") else DEFAULTS[name]
    )
    return Flag(flag_name(name), kind, row.help, default, row.value)


REAL_FLAGS = tuple(_flag(name, row) for name, row in SETTINGS.items() if row.cluster == "real")
"""The flags of `up` that only apply to a real cluster."""
FLAGS = tuple(_flag(name, row) for name, row in SETTINGS.items() if row.cluster != "real" and not row.internal)


# ---------------------------------------------------------------- the flags of one start


def given_settings(line: CommandLine) -> dict[str, Any]:
    """{setting: parsed value} of the flags on the command line. Raises CommandError with exit code 2 for invalid ones."""
    given = {name: row for name, row in SETTINGS.items() if name in line.given_flags and not row.internal}
    for name, row in given.items():
        if row.kind == "int":
            _check_bounds(name, getattr(line, name), str(getattr(line, name)))
    if "gpus_per_node" in given and "simulated_gpus" in given:
        raise CommandError(
            "--gpus-per-node counts real GPUs and --simulated-gpus simulated ones: give only one of them", 2
        )
    _check_host_ports(line.host_ports)
    if unknown := set(filter(None, line.without.split(","))) - {*OPTIONAL_PARTS}:
        raise CommandError(f"--without takes {' and '.join(OPTIONAL_PARTS)}, not {', '.join(sorted(unknown))}", 2)
    _check_cluster(line, given)
    return {name: _parse_value(name, row, getattr(line, name)) for name, row in given.items()}


def _check_host_ports(text: str) -> None:
    for word in filter(None, text.split(",")):
        if not is_digits(word) or not 0 < int(word) < 65536:
            raise CommandError(f"--host-ports takes port numbers with commas between them, not {word}", 2)
        if int(word) in _POD_NETWORK_PORTS:
            raise CommandError(
                f"--host-ports {word}: that port is rowlock's own in the pods' network; serve on another", 2
            )


def _check_cluster(line: CommandLine, given: Mapping[str, Setting]) -> None:
    """Refuse flags that have no effect on this cluster: a real one has its own nodes, users and scheduler."""
    if "kubeconfig" not in given:
        if real := next((name for name, row in given.items() if row.cluster == "real"), None):
            raise CommandError(f"{flag_name(real)} needs --kubeconfig FILE", 2)
        return
    path = _parse_value("kubeconfig", given["kubeconfig"], line.kubeconfig)
    if path != "in-cluster" and not os.path.isfile(path):
        raise CommandError(f"there is no kubeconfig {path}: name the file that `kubectl config view` reads", 2)
    if local_flags := [flag_name(name) for name, row in given.items() if row.cluster == "embedded"]:
        raise CommandError(
            f"{', '.join(local_flags)} {'is' if len(local_flags) == 1 else 'are'} for a cluster on this machine;"
            " with --kubeconfig leave it out",
            2,
        )


def _parse_value(name: str, row: Setting, value: Any) -> Any:
    if row.kind == "file":  # the server checks itself whether it runs in a pod
        return value if (name, value) == ("kubeconfig", "in-cluster") else os.path.abspath(os.path.expanduser(value))
    if row.kind not in ("duration", "size"):
        return value
    number = (parse_duration if row.kind == "duration" else parse_size)(value, flag_name(name))
    _check_bounds(name, number, value)
    return number


def _check_bounds(name: str, number: float, text: str) -> None:
    row = SETTINGS[name]
    for bound, words, is_beyond in (
        (row.minimum, "at least", row.minimum is not None and number < row.minimum),
        (row.maximum, "at most", row.maximum is not None and number > row.maximum),
    ):
        if is_beyond:
            raise CommandError(f"{flag_name(name)} must be {words} {typed_value(name, bound)}, but is {text}", 2)


def serve_argv(directory: str, settings: Mapping[str, Any]) -> list[str]:
    """The command line of the server's process."""
    argv = [sys.executable, "-P", "-m", "rowlock.serve", "--data-dir", directory]
    for name, value in settings.items():
        argv += [flag_name(name), *([] if value is True else [str(value)])]
    return argv


# ---------------------------------------------------------------- a start after another


class NextStart(NamedTuple):
    """The settings of a start, and sentences that tell which settings of the last start it keeps and which it drops."""

    settings: dict[str, Any]
    sentences: tuple[str, ...] = ()


def next_start(directory: str, settings: Mapping[str, Any]) -> NextStart:
    """The settings of the next start in this directory. `settings`: the values of the given flags, by setting name."""
    last = read_server_json(directory) or {}
    return continue_start(last.get("flags") if isinstance(last.get("flags"), dict) else {}, settings)


def continue_start(former: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> NextStart:
    """The settings of a start that comes after one with the flags `former`."""
    differing = _unusual_settings(former or {})
    is_silent = not any(name in settings for name in ("kubeconfig", *NODE_SETTINGS))
    kept = {n: int(value) for n, value in differing.items() if is_silent and n in NODE_SETTINGS and _is_count(value)}
    dropped = {name: value for name, value in differing.items() if name not in kept and name not in settings}
    sentences = []
    if kept:
        sentences.append(f"Nodes and GPUs are those of the last start: {_words(kept)} (say --nodes to change them).")
    if dropped:
        sentences.append(f"Other than the last start, this one is without {_words(dropped)}.")
    return NextStart({**kept, **settings}, tuple(sentences))


def restart_command(server_json: Mapping[str, Any] | None) -> str:
    """The command line that starts the server again with the same flags, so that it has the nodes and GPUs that its jobs
    need."""
    flags = (server_json or {}).get("flags") or {}
    words = ["rowlock up -d" + data_dir_flag(flags.get("data_dir") or data_dir(None)), _words(_unusual_settings(flags))]
    return " ".join(filter(None, [*words, "--system" if flags.get("system") else ""]))


def check_same_settings(directory: str, server_json: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise CommandError when the running server has other values for these settings."""
    current_settings = server_json.get("flags") or {}
    differs = [name for name, value in settings.items() if current_settings.get(name) != value]
    if differs:
        flags = ", ".join(_word(name, settings[name]) for name in differs)
        raise CommandError(
            f"a server is running for {directory} already (pid {server_json['pid']}), but without {flags}. "
            f"Stop it first: `rowlock down{data_dir_flag(directory)}`"
        )


def _unusual_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a start that differ from the defaults, without `once` and internal ones. Unknown flags are ignored."""
    return {
        name: flags[name]
        for name, row in SETTINGS.items()
        if not (row.once or row.internal) and flags.get(name) not in (DEFAULTS[name], None, "")
    }


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0


def _words(settings: Mapping[str, Any]) -> str:
    return " ".join(_word(name, value) for name, value in settings.items())


def _word(name: str, value: Any) -> str:
    import shlex

    return flag_name(name) if value is True else f"{flag_name(name)} {shlex.quote(typed_value(name, value))}"
