"""Dockerfiles as people write them (`tests/data/dockerfiles/cases.yaml`), and what a build and its runs are compared by."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parents[1] / "data" / "dockerfiles"
RECORD = DATA / "recorded.json"
BASES = ("python:3.11-slim", "debian:bookworm-slim", "pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime")
"""Names of images that the cases begin with. For Docker each of them is made of this machine's own files."""

SCRATCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What BuildKit sets where the base says nothing."""


@dataclass(frozen=True, slots=True)
class Run:
    """One container of a built image: words after its name, or in place of its entrypoint, too."""

    words: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    grep: str = ""
    """Only lines with this text count."""

    def lines(self, output: str) -> str:
        return "".join(line for line in output.splitlines(keepends=True) if self.grep in line)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    files: Mapping[str, Any]
    args: Mapping[str, str]
    runs: Mapping[str, Run]
    fails: bool

    def write(self, place: Path) -> None:
        """The build context."""
        for name, content in self.files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content)
            elif "wheel" in content:
                _write_wheel(path, content["wheel"], content["version"], content["module"])
            elif "target" in content:
                path.symlink_to(content["target"])
            else:
                path.write_text(content["text"])
                path.chmod(0o755 if content["executable"] else 0o644)


def load() -> list[Case]:
    """All cases, in the order of the file."""
    cases = yaml.safe_load((DATA / "cases.yaml").read_text())
    return [
        Case(
            name, case["files"], case.get("args", {}), {n: _run(r) for n, r in case.get("runs", {}).items()},
            case.get("fails", False),
        )
        for name, case in cases.items()
    ]  # fmt: skip


def _run(case: Any) -> Run:
    if isinstance(case, list):
        return Run(tuple(case))
    return Run(tuple(case.get("words", ())), tuple(case.get("entrypoint", ())), case.get("grep", ""))


def _write_wheel(path: Path, name: str, version: str, module: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", module)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def settings(
    env: Mapping[str, str], base_path: str, entrypoint: Sequence[str], command: Sequence[str], workdir: str, signal: str
) -> dict[str, Any]:
    """What an image says, as it is recorded: PATH of the base is `BASE`, whatever it is."""
    path = env.get("PATH", base_path).replace(base_path, "BASE")
    env = {**env, "PATH": "BASE" if path == SCRATCH_PATH else path}
    return {
        "env": dict(sorted(env.items())), "entrypoint": list(entrypoint), "command": list(command),
        "workdir": workdir or "/", "stopSignal": signal,
    }  # fmt: skip
