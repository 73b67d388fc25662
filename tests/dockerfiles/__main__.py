"""Records what Docker does with the cases, or compares: `python -m tests.dockerfiles record|check [CASE…]`.

Needs root, dockerd and runc (`apt-get install docker.io`), and Go once. BuildKit builds (its published Go module, built in
the user's cache), dockerd runs; both are started here, in directories of their own, and reach no registry: the base images
are made of this machine's files (`base.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.containers.conftest import Engine
from tests.dockerfiles import base, cases
from tests.dockerfiles.cases import Case, Run

BUILDKIT = "0.20.2"
_PATIENCE = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("record", "check"))
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    known = json.loads(cases.RECORD.read_text()) if cases.RECORD.exists() else {}
    wanted = [case for case in cases.load() if not options.cases or case.name in options.cases]
    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="rowlock-docker-") as place, _engines(Path(place)) as docker:
        for case in wanted:
            seen[case.name] = docker.observe(case)
            if options.action == "record":
                _write({**known, **seen})
    if options.action == "check":
        different = [name for name in seen if seen[name] != known.get(name)]
        print("\n".join(f"{name}: {json.dumps(seen[name], indent=1)}" for name in different) or "as it is recorded")
        return 1 if different else 0
    print(f"{len(seen)} cases are in {cases.RECORD}")
    return 0


def _write(observed: Mapping[str, Any]) -> None:
    """In the order of the cases, after each: a record takes minutes."""
    made = {case.name: observed[case.name] for case in cases.load() if case.name in observed}
    cases.RECORD.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


class Docker:
    """BuildKit and dockerd, and the base image in BuildKit's reach."""

    def __init__(self, place: Path, programs: Path, engine: Engine) -> None:
        self._place, self._programs, self._engine = place, programs, engine
        self._digest = ""

    def make_base(self) -> None:
        """All names of `cases.BASES` stand for it."""
        root, context = self._place / "root", self._place / "base-context"
        base.make(root)
        context.mkdir()
        subprocess.run(["tar", "-C", str(root), "-cf", str(context / "root.tar"), "."], check=True)
        (context / "Dockerfile").write_text(f"FROM scratch\nADD root.tar /\nENV PATH={base.BASE_PATH}\n")
        layout = self._place / "layout"
        done = self._build(context, "--output", f"type=oci,tar=false,dest={layout}")
        if done.returncode:
            raise SystemExit(f"the base image could not be made: {done.stderr}")
        self._digest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]

    def _build(self, context: Path, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [
            str(self._programs / "buildctl"), "--addr", f"unix://{self._place}/buildkit.sock", "build", "--progress", "plain",
            "--frontend", "dockerfile.v0", "--local", f"context={context}", "--local", f"dockerfile={context}", *words,
        ]  # fmt: skip
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def observe(self, case: Case) -> dict[str, Any]:
        """What is recorded of a case."""
        print(f"… {case.name}", file=sys.stderr, flush=True)
        context, archive = self._place / case.name, self._place / f"{case.name}.tar"
        case.write(context)
        words = [f"--opt=build-arg:{key}={value}" for key, value in case.args.items()]
        words += [f"--opt=context:{name}=oci-layout://base@{self._digest}" for name in cases.BASES]
        tag = f"case/{case.name}"
        output = f"type=docker,name={tag},dest={archive}"
        done = self._build(context, f"--oci-layout=base={self._place / 'layout'}", *words, "--output", output)
        if done.returncode:
            if not case.fails:
                raise SystemExit(f"{case.name}: {done.stderr}")
            return {"builds": False}
        self._docker("load", "-i", str(archive))
        config = json.loads(self._docker("inspect", tag))[0]["Config"]
        env = dict(word.split("=", 1) for word in config["Env"] or ())
        runs = {name: self._run(tag, run) for name, run in case.runs.items()}
        return {
            "builds": True,
            "settings": cases.settings(
                env, base.BASE_PATH, config["Entrypoint"] or (), config["Cmd"] or (), config["WorkingDir"],
                config.get("StopSignal") or "",
            ),
            "runs": runs,
        }  # fmt: skip

    def _run(self, tag: str, run: Run) -> dict[str, Any]:
        words = ["run", "--rm", "--network", "none"]
        words += [
            *(("--entrypoint", run.entrypoint[0]) if run.entrypoint else ()),
            tag,
            *run.entrypoint[1:],
            *run.words,
        ]
        done = subprocess.run(["docker", *words], env=self._env(), capture_output=True, text=True, check=False)
        return {"exit": done.returncode, "output": run.lines(done.stdout)}

    def _docker(self, *words: str) -> str:
        return subprocess.run(["docker", *words], env=self._env(), capture_output=True, text=True, check=True).stdout

    def _env(self) -> Mapping[str, str]:
        return {**os.environ, "DOCKER_HOST": f"unix://{self._engine.socket}"}


@contextmanager
def _engines(place: Path) -> Iterator[Docker]:
    programs = build_programs()
    home = place / "engine"
    home.mkdir()
    words = [
        str(programs / "buildkitd"), "--root", str(place / "buildkit"), "--addr", f"unix://{place}/buildkit.sock",
        "--oci-worker=true", "--containerd-worker=false", "--oci-worker-snapshotter=auto",
    ]  # fmt: skip
    with Engine(home) as engine, (place / "buildkit.log").open("wb") as log:
        with subprocess.Popen(["unshare", "--net", *words], stdout=log, stderr=log) as daemon:
            try:
                deadline = time.monotonic() + _PATIENCE
                while not (place / "buildkit.sock").exists():
                    if daemon.poll() is not None or time.monotonic() > deadline:
                        raise SystemExit(f"buildkitd does not start: {(place / 'buildkit.log').read_text()[-2000:]}")
                    time.sleep(0.05)
                docker = Docker(place, programs, engine)
                docker.make_base()
                yield docker
            finally:
                daemon.terminate()


def build_programs() -> Path:
    """`buildkitd` and `buildctl` of BUILDKIT, from Go's module proxy; what is there is never built again."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rowlock" / "buildkit" / BUILDKIT
    if (cache / "buildctl").exists():
        return cache
    cache.mkdir(parents=True, exist_ok=True)
    packages = [f"github.com/moby/buildkit/cmd/{name}" for name in ("buildkitd", "buildctl")]
    with tempfile.TemporaryDirectory() as place:
        module = Path(place)
        (module / "go.mod").write_text("module recorder\n\ngo 1.23\n")
        imports = "".join(f'\t_ "{package}"\n' for package in packages)
        (module / "tools.go").write_text(f"//go:build tools\n\npackage recorder\n\nimport (\n{imports})\n")
        env = {**os.environ, "CGO_ENABLED": "0"}
        for words in (
            ["go", "get", *(f"{package}@v{BUILDKIT}" for package in packages)],
            ["go", "mod", "tidy"],
            ["go", "build", "-o", str(cache), *packages],
        ):
            subprocess.run(words, cwd=module, env=env, check=True)
    return cache


if __name__ == "__main__":
    sys.exit(main())
