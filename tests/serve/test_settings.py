"""Every flag of `rowlock up`, on its way: what the command line refuses, what the server is told, how it is started again.

`python -m tests.serve.test_settings` records `up_settings.json` anew; its difference is what a change of the settings means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from rowlock import serve
from rowlock.cli.commands import cluster
from rowlock.cli.commands.tree import UP
from rowlock.cli.grammar import CommandError, CommandLine, flags_of, parse
from rowlock.cli.start.settings import restart_command
from rowlock.server_settings import SETTINGS

RECORD = Path(__file__).with_name("up_settings.json")
REAL = "--kubeconfig in-cluster"
COMMAND_LINE_ONLY = {"detach", "data_dir", "json", "unit", "system", "help"}
VALUES = {
    "int": ("3", "1", "0", "-1", "99999", "2.5", "x"),
    "DURATION": ("90", "30m", "1h30m", "0.5s", "0", "x"),
    "SIZE": ("64Mi", "2G", "1", "x"),
    "FILE": ("/some/file", "~/file"),
    "PORT,...": ("8080,9090", "8080,x", "0", "6443"),
    "LIST": ("kubelet", "kubelet,scheduler", "etcd"),
}


def lines() -> Iterator[str]:
    """Command lines of `rowlock up`: each flag with values that are good and bad, alone and with a real cluster."""
    yield ""
    yield REAL
    yield "--kubeconfig /nowhere/kubeconfig"
    yield "--gpus-per-node 1 --simulated-gpus 1"
    yield "--nodes 2 --simulated-gpus 4 --bind 0.0.0.0 --users /etc/users --keep-runs 30d"
    for flag in flags_of(UP):
        if flag.dest in COMMAND_LINE_ONLY | {"kubeconfig"}:
            continue
        name = max(flag.names.split(), key=len)
        if not flag.takes_value:
            given = [name]
        elif "|" in flag.kind:
            given = [f"{name} {word}" for word in (*flag.kind.split("|"), "other")]
        else:
            given = [f"{name} {word}" for word in VALUES.get(flag.value, VALUES.get(flag.kind, ("text",)))]
        for line in given:
            yield line
            yield f"{REAL} {line}"


def outcome(line: str, directory: Path) -> dict[str, Any]:
    """The refusal of a line; or the server's settings that are not the usual ones, and the command that starts it again."""
    started = list[list[str]]()

    def start_server(_: str, argv: list[str]) -> dict[str, Any]:
        started.append(argv)
        return {"url": "", "pid": 1}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROWLOCK_DATA_DIR", str(directory))
        patch.setenv("HOME", "/home/somebody")
        patch.setattr(cluster, "start_server", start_server)
        try:
            with redirect_stdout(StringIO()):
                cluster.up(parse(CommandLine("rowlock", "up", []), UP, ["-d", *line.split()]))
        except CommandError as refusal:
            return {"refusal": refusal.message, "code": refusal.code}
        settings = as_flags(started[0][4:])
        usual = as_flags(["--data-dir", str(directory)])
        return {
            "settings": {name: value for name, value in sorted(settings.items()) if value != usual[name]},
            "again": restart_command({"flags": settings}),
        }


def as_flags(argv: list[str]) -> dict[str, Any]:
    """The flags as `server.json` has them."""
    settings = serve.parse_arguments(argv)._asdict()
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}


def record(directory: Path) -> dict[str, Any]:
    defaults = as_flags(["--data-dir", "/data"])
    return {"defaults": dict(sorted(defaults.items())), "lines": {line: outcome(line, directory) for line in lines()}}


def test_every_flag_means_what_it_meant(tmp_path: Path) -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    now = record(tmp_path)
    assert now["defaults"] == recorded["defaults"]
    for line in lines():
        assert now["lines"][line] == recorded["lines"].get(line), line
    assert now["lines"].keys() == recorded["lines"].keys()


def test_the_command_that_starts_a_server_again_gives_the_same_settings(tmp_path: Path) -> None:
    for line in lines():
        first = outcome(line, tmp_path)
        if "settings" in first:
            lasting = {name: value for name, value in first["settings"].items() if not SETTINGS[name].once}
            again = outcome(first["again"].removeprefix("rowlock up -d"), tmp_path)
            assert again == {"settings": lasting, "again": first["again"]}, line


def test_values_with_blanks_are_quoted_in_what_is_printed() -> None:
    assert restart_command({"flags": {"oidc_name": "our company"}}) == "rowlock up -d --oidc-name 'our company'"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        RECORD.write_text(json.dumps(record(Path(temporary)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
