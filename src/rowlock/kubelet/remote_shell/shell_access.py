"""Which containers get a stand-in for `sshd` or `ssh`: those of pods that mount the ssh key of an MPI job. Pure.

Kubeflow Trainer's MPI runtimes start `/usr/sbin/sshd` in the nodes, and `mpirun` in the launcher calls `ssh`. This machine's programs
rarely include an sshd with the expected configuration: `server.py` takes its place, and `ssh` in PATH is `client.py`. An image that
has both keeps its own.
"""

import getopt
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.kubelet.remote_shell import protocol
from rowlock.objects import is_digits

KEY = "ssh-privatekey"
"""The entry of a Secret with a key, of the type `kubernetes.io/ssh-auth`."""
_SETTINGS = (
    ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"),
    ("OMPI_MCA_orte_set_default_slots", "PRTE_MCA_prte_set_default_slots"),
)
"""Variables of Open MPI 4 and their names in Open MPI 5. (The one that keeps full host names is left out: with it Open MPI 5.0.11
does not recognise the launcher as `<pod>.<set>`, and waits for an sshd in it for ever.)"""
DIRECTORY = "/run/rowlock/shell"
"""The directory in which containers see the program `ssh`."""
_SSHD_OPTIONS = "46C:DE:GTVb:c:def:g:h:ik:o:p:qrtu:"
_PARENT = "rowlock.kubelet.remote_shell"


@dataclass(frozen=True, slots=True)
class ShellServer:
    """A stand-in for sshd."""

    command: list[str]
    """The command without its last arguments: the port, and the address unless it listens at all that the pod has."""
    port: int
    """The port of the pod on which it listens."""


def find_key(pod: PodSpec, container: ContainerSpec) -> str:
    """The path of the job's private key in the container; "" = it has none."""
    files = key_files(pod.volumes)
    mounts = (one for one in container.volume_mounts if one.get("name") in files and not one.get("subPath"))
    return next((f"{str(one['mountPath']).rstrip('/')}/{files[one['name']]}" for one in mounts), "")


def key_files(volumes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Name of each volume with a private key → the file in it."""
    return {
        volume["name"]: str(item.get("path") or KEY)
        for volume in volumes
        for item in (volume.get("secret") or {}).get("items") or ()
        if item.get("key") == KEY
    }


def server_command(
    container: ContainerSpec, command: Sequence[str], key: str, is_file: Callable[[str], bool]
) -> ShellServer | None:
    """The server to run in place of an `sshd` that is missing; None for any other command, and for an sshd that exists."""
    if not command or Path(command[0]).name != "sshd" or not key:
        return None
    settings = _value_of(command[1:], "f")
    if is_file(command[0]) and (not settings or is_file(settings)):
        return None
    return ShellServer([sys.executable, "-P", "-m", f"{_PARENT}.server", key], _port(container, command[1:]))


def client_program(key: str) -> str:
    """The text of the program `ssh`."""
    call = [sys.executable, "-P", "-m", f"{_PARENT}.client", key]
    return f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n'


def client_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables by which mpirun finds `ssh` and the hosts, for all its releases."""
    found = {newer: env[older] for older, newer in _SETTINGS if older in env and newer not in env}
    return {"PATH": f"{DIRECTORY}:{env.get('PATH', '')}".rstrip(":"), **found}


def _port(container: ContainerSpec, options: Sequence[str]) -> int:
    """The port that the command states, else that of the container's readiness probe or its ports."""
    probe = (container.readiness_probe or {}).get("tcpSocket") or {}
    declared = [port.get("containerPort") for port in container.ports]
    wanted = (str(one or "") for one in (_value_of(options, "p"), probe.get("port"), *declared))
    return next((int(one) for one in wanted if is_digits(one)), protocol.PORTS[0])


def _value_of(options: Sequence[str], letter: str) -> str:
    """The value of an option of sshd; "" = it is missing, or the options are not sshd's."""
    try:
        given, _ = getopt.getopt(list(options), _SSHD_OPTIONS)
    except getopt.GetoptError:
        return ""
    return next((value for option, value in given if option == f"-{letter}"), "")
