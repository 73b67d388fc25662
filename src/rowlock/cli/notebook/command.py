"""`rowlock notebook [NAME]`: starts JupyterLab in a pod of this machine, or finds the one of this name, and forwards a local port to it.

A notebook is a workspace: it is scheduled before trainings and never preempted. Its token is in a Secret and in the
printed address. Ctrl-C ends the forwarding; the notebook runs until it is deleted.
"""

from __future__ import annotations

import base64
import http.client
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.compute_flags import compute_request
from rowlock.cli.context import context_flags, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS
from rowlock.cli.output import show, tell
from rowlock.cli.run import shell_environment
from rowlock.cli.run.command import find_server
from rowlock.cli.run.following import wait_for_start
from rowlock.cli.run.request import HOST_IMAGE, environment_variables
from rowlock.cli.streams.exec_commands import forward_connections, subresource_path
from rowlock.cli.submit.sending import send_submit

TOKEN_VARIABLE, PORT_VARIABLE = "JUPYTER_TOKEN", "JUPYTER_PORT"
_NAME = "notebook"
_PATIENCE = 90.0
"""Seconds within which JupyterLab must answer."""
_LAST_LINES = 15
_ENDED = ("Completed", "Failed", "Stopped", "Deleted")


def notebook(line: CommandLine) -> int:
    """Start or find the notebook, and forward a port to it until Ctrl-C. Raises CommandError."""
    name = line.words[0] if line.words else _NAME
    python = find_interpreter(line.python)
    line.set_values(image=HOST_IMAGE, simulated_gpus=None, nproc_per_node=1)
    server = find_server(line, remedy="submit an image that has JupyterLab (`runai workspace submit NAME -i IMAGE`)")
    workload = _find_notebook(server, project(line), name)
    if workload is not None and workload["phase"] in _ENDED:
        server.delete(f"{WORKLOADS}/workspaces/{workload['id']}")
        workload = None
    if workload is None:
        identity = _submit(line, server, name, python)
        tell(f"Notebook {name} submitted to project {project(line)}; it runs {python}.")
    else:
        identity = str(workload["id"])
        tell(f"Notebook {name} is there already.")
    wait_for_start(server, name, identity)
    return _open_way(line, server, name, identity)


def find_interpreter(chosen: str | None) -> str:
    """The chosen interpreter, or the shell's, if it has JupyterLab. Raises CommandError."""
    python = shutil.which(chosen) if chosen else shutil.which("python") or shutil.which("python3")
    if python is None:
        raise CommandError(f"there is no interpreter {chosen or 'python'} on your PATH", 2)
    question = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('jupyterlab') else 3)"
    try:
        code = subprocess.run([python, "-c", question], capture_output=True, timeout=30, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{python} cannot be asked whether it has JupyterLab: {error}") from None
    if code:
        raise CommandError(
            f"{python} has no JupyterLab: `{python} -m pip install jupyterlab`, activate the environment that has it, or name "
            "its interpreter with --python"
        )
    return python


def _find_notebook(server: ServerClient, project_name: str, name: str) -> dict[str, Any] | None:
    """The notebook of this name; None when there is none. Raises CommandError when a job has the name."""
    found = server.get(WORKLOADS, filterBy=f"name=={name},projectName=={project_name}")["workloads"]
    if found and found[0]["type"] != "Workspace":
        raise CommandError(f"{name} is a job, not a notebook: give the notebook another name, `rowlock notebook NAME`")
    return dict(found[0]) if found else None


def _submit(line: CommandLine, server: ServerClient, name: str, python: str) -> str:
    """Submit the notebook and return the id of its workload. Raises CommandError."""
    import secrets

    port, directory = free_port(), os.path.abspath(line.working_dir or os.getcwd())
    if not os.path.isdir(directory):
        raise CommandError(f'the working directory "{directory}" does not exist on this machine', 2)
    shell = {} if line.clean_env else shell_environment.collect(shell_environment.of_shell(os.environ))
    if not line.clean_env and (sentence := shell_environment.describe_unsent(os.environ)):
        tell(sentence)
    shell[TOKEN_VARIABLE] = shell.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    variables = [*environment_variables(line.env), {"name": PORT_VARIABLE, "value": str(port)}]
    body = {
        "name": name,
        "projectId": project(line),
        "spec": {
            "image": HOST_IMAGE,
            "command": jupyter_command(python, port),
            "workingDir": directory,
            "compute": compute_request(line),
            "environmentVariables": variables,
        },
        "submitCommand": shlex.join([line.program, *line.argv]),
        "shellEnvironment": shell,
    }
    try:
        return str(send_submit(server, f"{WORKLOADS}/workspaces", body)["workloadId"])
    except client.StatusError as refusal:
        raise CommandError(refusal.message) from None


def jupyter_command(python: str, port: int) -> list[str]:
    """The command that starts JupyterLab. It reads its token from the environment, and is allowed to run as root."""
    command = [python, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=0.0.0.0", f"--ServerApp.port={port}"]
    command += ["--ServerApp.port_retries=0", "--ServerApp.allow_remote_access=True"]
    return command + (["--allow-root"] if os.geteuid() == 0 else [])


def free_port() -> int:
    """A port that is free now: pods without their own network share the ports of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# ---------------------------------------------------------------- forwarding


def _open_way(line: CommandLine, server: ServerClient, name: str, identity: str) -> int:
    """Forward a port until Ctrl-C (returns 0) or the notebook ends (returns 1). Connection errors are not shown until JupyterLab
    listens, which is a few seconds after its pod has started."""
    pod = _chief_pod(server, identity)
    port, token = read_access(server, pod)
    try:
        listener = socket.create_server(("127.0.0.1", line.port or 0))
    except OSError as error:
        raise CommandError(f"port {line.port} of 127.0.0.1 cannot be used: {error.strerror or error}") from None
    with listener:
        local = int(listener.getsockname()[1])
        is_open = threading.Event()
        way = (server, subresource_path(pod, "portforward"), {listener: port})
        said = {"tell_error": lambda sentence: tell(sentence) if is_open.is_set() else None}
        threading.Thread(target=forward_connections, args=way, kwargs=said, daemon=True).start()
        _wait_until_ready(server, name, identity, local)
        is_open.set()
        show(f"http://127.0.0.1:{local}/lab?token={token}")
        sys.stdout.flush()  # so that a reader of a pipe sees the address now
        flags = context_flags(line)
        tell(
            f"Ctrl-C closes this way; the notebook goes on: `rowlock notebook {name}{flags}` opens it again, "
            f"`rowlock delete {name}{flags}` ends it."
        )
        try:
            while (
                server.get(f"{WORKLOADS}/{identity}/wait", **{"for": ",".join(_ENDED), "timeout": 30})["phase"]
                not in _ENDED
            ):
                continue
        except KeyboardInterrupt:
            tell("")
            return 0
    tell(f"Notebook {name} has ended: `rowlock logs {name}{context_flags(line)}` shows why.")
    return 1


def _chief_pod(server: ServerClient, identity: str) -> dict[str, Any]:
    workload = server.get(f"{WORKLOADS}/{identity}")
    name = workload["additionalFields"]["chief"]
    if not name:
        raise CommandError(f"the notebook has no pod: {workload.get('phaseMessage') or workload['phase']}")
    return dict(server.get(f"/api/v1/namespaces/{workload['namespace']}/pods/{name}"))


def read_access(server: ServerClient, pod: dict[str, Any]) -> tuple[int, str]:
    """JupyterLab's port and token. Raises CommandError when the pod was not started by `rowlock notebook`."""
    container, namespace = pod["spec"]["containers"][0], pod["metadata"]["namespace"]
    port = next((e.get("value") for e in container.get("env") or () if e["name"] == PORT_VARIABLE), "")
    for source in container.get("envFrom") or ():
        secret = (source.get("secretRef") or {}).get("name")
        data = server.get(f"/api/v1/namespaces/{namespace}/secrets/{secret}").get("data") or {} if secret else {}
        if TOKEN_VARIABLE in data and port:
            return int(port), base64.b64decode(data[TOKEN_VARIABLE]).decode()
    raise CommandError(f"{pod['metadata']['name']} was not started by `rowlock notebook`: nobody knows its token")


def _wait_until_ready(server: ServerClient, name: str, identity: str, port: int) -> None:
    """Wait until JupyterLab answers. Raises CommandError with the end of its log when it ends first or does not answer
    in time."""
    end = time.monotonic() + _PATIENCE
    while not _is_ready(port):
        phase = server.get(f"{WORKLOADS}/{identity}")["phase"]
        if phase in _ENDED or time.monotonic() > end:
            words = b"".join(server.stream_lines(f"{WORKLOADS}/{identity}/logs", tail=_LAST_LINES)).decode(
                errors="replace"
            )
            why = f"it is {phase.lower()}" if phase in _ENDED else f"it did not answer within {_PATIENCE:.0f} s"
            raise CommandError(f"{words}\nNotebook {name} cannot be opened: {why}. Above are its last lines.")
        time.sleep(0.2)


def _is_ready(port: int) -> bool:
    """Asks directly: a proxy of the shell does not reach the port, and a program there that is no JupyterLab leads nowhere else."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/api")
        with connection.getresponse() as answer:
            return answer.status == 200
    except (
        OSError,
        ValueError,
        http.client.HTTPException,
    ):  # JupyterLab does not listen yet, or the forwarding is not ready
        return False
    finally:
        connection.close()
