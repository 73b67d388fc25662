"""`rowlock build` where a container engine answers: its own command builds, with every feature it has.

The name leaves rowlock's own table, so that the newest build is what a pod gets.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rowlock.kubelet.images.images import Images, normalise
from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.engine_client import Engine

RUNTIMES = ("auto", "process", "container")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Variables that steps of a build may need to reach the world."""


class BuildFailed(Exception):
    """A step did not succeed; the image of before is still there."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build."""

    name: str
    context: Path
    file: Path
    args: dict[str, str] = field(default_factory=dict)
    target: str = ""
    """The stage that is built, by its name or number; "" = the last."""
    is_anew: bool = False
    """No step counts as done before."""
    is_pulled: bool = False
    """Images of FROM are asked for at their registry, also those that are here."""


def choose_engine(runtime: str, env: Mapping[str, str]) -> Engine | None:
    """The engine to build in; None = build for processes. Raises BuildFailed when one is demanded and none answers."""
    if runtime == "process" or (runtime == "auto" and not engine_client.has_socket(env)):
        return None
    builder, reason = engine_client.find_engine(env)
    if builder is None and runtime == "container":
        raise BuildFailed(f"--runtime container needs Docker or Podman: {reason}")
    return builder


def build(builder: Engine, images: Images, request: BuildRequest) -> str:
    """Builds and names the image there; its name. Raises BuildFailed or ValueError (the name) with a sentence."""
    name = normalise(request.name)
    program = shutil.which(builder.name)
    if program is None:
        text = f"{builder} answers, but there is no `{builder.name}` command to build with"
        raise BuildFailed(f"{text}: install it, or build for processes with --runtime process")
    if not request.file.exists():
        raise BuildFailed(f"no Dockerfile at {request.file}; -f FILE names another one")
    words = [program, "build", "-t", name, "-f", str(request.file)]
    build_args = {**{key: os.environ[key] for key in _PROXY_VARIABLES if key in os.environ}, **request.args}
    words += [word for key, value in build_args.items() for word in ("--build-arg", f"{key}={value}")]
    words += ["--target", request.target] if request.target else []
    words += ["--no-cache"] if request.is_anew else []
    words += ["--pull"] if request.is_pulled else []
    if subprocess.run([*words, str(request.context)], env=_environment(builder, program), check=False).returncode:
        text = f"{builder.name} could not build the image; its output above says why"
        raise BuildFailed(f"{text}; `rowlock build --runtime process …` builds without it, for processes")
    images.remove(name)
    return name


def _environment(builder: Engine, program: str) -> dict[str, str]:
    """Docker's newer builder is a part that may not be installed; the older one is always there."""
    env = {**os.environ, "DOCKER_HOST": f"unix://{builder.path}", "CONTAINER_HOST": f"unix://{builder.path}"}
    if builder.name == "docker" and "DOCKER_BUILDKIT" not in env:
        newer = subprocess.run([program, "buildx", "version"], capture_output=True, check=False).returncode == 0
        env |= {} if newer else {"DOCKER_BUILDKIT": "0"}
    return env
