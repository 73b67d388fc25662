"""`rowlock build` where a container engine answers: the engine's own command builds, with all its features.

The name is removed from rowlock's own table, so that pods get the newest build.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping

from rowlock.kubelet.images.build_context import (
    DOCKERFILE_ENTRY,
    BuildContext,
    BuildFailed,
    BuildRequest,
    find_ignore_file,
)
from rowlock.kubelet.images.images import Images, normalise
from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.engine_client import Engine

RUNTIMES = ("auto", "process", "container")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Variables that build steps may need to reach the internet."""


def choose_engine(runtime: str, env: Mapping[str, str]) -> Engine | None:
    """The engine to build in; None = build for processes. Raises BuildFailed when one is required and none answers."""
    if runtime == "process" or (runtime == "auto" and not engine_client.has_socket(env)):
        return None
    builder, reason = engine_client.find_engine(env)
    if builder is None and runtime == "container":
        raise BuildFailed(f"--runtime container needs Docker or Podman: {reason}")
    return builder


def build(builder: Engine, images: Images, request: BuildRequest) -> str:
    """Builds and names the image in the engine; returns its name. Raises BuildFailed or ValueError (the name) with a sentence."""
    name = normalise(request.name)
    program = shutil.which(builder.name)
    if program is None:
        text = f"{builder} answers, but there is no `{builder.name}` command to build with"
        raise BuildFailed(f"{text}: install it, or build for processes with --runtime process")
    if not request.file.exists():
        raise BuildFailed(f"no Dockerfile at {request.file}; -f FILE names another one")
    words = [program, "build", "-t", name]
    build_args = {**{key: os.environ[key] for key in _PROXY_VARIABLES if key in os.environ}, **request.args}
    words += [word for key, value in build_args.items() for word in ("--build-arg", f"{key}={value}")]
    words += ["--target", request.target] if request.target else []
    words += ["--no-cache"] if request.is_anew else []
    words += ["--pull"] if request.is_pulled else []
    if _run_build(words, request, _environment(builder, program), builder.name):
        text = f"{builder.name} could not build the image; its output above says why"
        raise BuildFailed(f"{text}; `rowlock build --runtime process …` builds without it, for processes")
    images.remove(name)
    return name


def _run_build(words: list[str], request: BuildRequest, env: Mapping[str, str], engine: str) -> int:
    """Runs the build; returns its exit code. An ignore file named after the Dockerfile must apply in every builder, or a secret could
    enter the image: Podman gets a flag for it; Docker's older builder, which does not read it, gets an archive without what it excludes."""
    ignore_file = find_ignore_file(request.context, request.file)
    has_own = ignore_file not in (None, request.context / ".dockerignore")
    if has_own and engine == "docker" and env.get("DOCKER_BUILDKIT") == "0":
        command = [*words, "-f", DOCKERFILE_ENTRY, "-"]
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # the builder prints why it has ended
                BuildContext(request.context, ignore_file).write_archive(pipe, request.file)
        return process.returncode
    words += ["--ignorefile", str(ignore_file)] if has_own and engine == "podman" else []
    return subprocess.run([*words, "-f", str(request.file), str(request.context)], env=env, check=False).returncode


def _environment(builder: Engine, program: str) -> dict[str, str]:
    """The builder's environment: selects Docker's older builder if BuildKit's plugin is not installed."""
    env = {**os.environ, "DOCKER_HOST": f"unix://{builder.path}", "CONTAINER_HOST": f"unix://{builder.path}"}
    if builder.name == "docker" and "DOCKER_BUILDKIT" not in env:
        newer = subprocess.run([program, "buildx", "version"], capture_output=True, check=False).returncode == 0
        env |= {} if newer else {"DOCKER_BUILDKIT": "0"}
    return env
