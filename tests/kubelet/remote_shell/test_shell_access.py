"""Which containers get a stand-in for sshd or ssh."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.kubelet.pod.spec import PodSpec, parse_pod_spec
from rowlock.kubelet.remote_shell import shell_access

SECRET = {"secretName": "t-mpi-ssh-auth", "items": [{"key": "ssh-privatekey", "path": "id_rsa"}]}
SSHD = ("/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config")


def pod(secret: dict[str, Any] = SECRET, **fields: Any) -> PodSpec:
    mounts = [{"name": "keys", "mountPath": "/home/mpiuser/.ssh/"}]
    container = {"name": "node", "image": "host", "volumeMounts": mounts, **fields}
    volumes = [{"name": "keys", "secret": secret}]
    return parse_pod_spec(
        {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [container], "volumes": volumes}}
    )


def test_the_key_is_where_the_secret_is_mounted() -> None:
    found = pod()
    assert shell_access.find_key(found, found.container("node")) == "/home/mpiuser/.ssh/id_rsa"


@pytest.mark.parametrize(
    "found",
    [
        pod({"secretName": "s"}),
        pod({"secretName": "s", "items": [{"key": "password", "path": "id_rsa"}]}),
        pod(volumeMounts=[]),
        pod(volumeMounts=[{"name": "keys", "mountPath": "/key", "subPath": "id_rsa"}]),
    ],
)
def test_other_pods_have_no_key(found: PodSpec) -> None:
    assert shell_access.find_key(found, found.container("node")) == ""


@pytest.mark.parametrize(
    ("command", "files", "port"),
    [
        (SSHD, (), 2222),
        (SSHD, ("/usr/sbin/sshd",), 2222),
        (SSHD, ("/usr/sbin/sshd", "/home/mpiuser/.sshd_config"), None),
        (("/usr/sbin/sshd", "-D"), ("/usr/sbin/sshd",), None),
        (("/usr/sbin/sshd", "-D", "-p", "2022"), (), 2022),
        (("/usr/sbin/sshd", "-Dep2022"), (), 2022),
        (("/usr/sbin/sshd", "--what"), (), 2222),
        (("sshd",), (), 2222),
        (("python", "sshd"), (), None),
        ((), (), None),
    ],
)
def test_an_sshd_that_is_not_there_is_replaced(
    command: tuple[str, ...], files: tuple[str, ...], port: int | None
) -> None:
    server = shell_access.server_command(pod().container("node"), command, "/k/id_rsa", files.__contains__)
    assert (server.port if server else None) == port
    assert server is None or server.command[-2:] == ["rowlock.kubelet.remote_shell.server", "/k/id_rsa"]


def test_the_port_is_that_of_the_readiness_probe_else_the_containers_own() -> None:
    probed = pod(readinessProbe={"tcpSocket": {"port": 2022}}, ports=[{"containerPort": 22}]).container("node")
    declared = pod(ports=[{"containerPort": 22}]).container("node")
    for container, port in ((probed, 2022), (declared, 22)):
        server = shell_access.server_command(container, SSHD, "/k", lambda _: False)
        assert server is not None
        assert server.port == port


def test_mpirun_finds_ssh_and_the_hosts_whatever_its_release() -> None:
    env = {"PATH": "/bin", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}
    assert shell_access.client_environment(env) == {
        "PATH": "/run/rowlock/shell:/bin",
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    }
    own = {**env, "PRTE_MCA_prte_default_hostfile": "/mine"}
    assert shell_access.client_environment(own) == {"PATH": "/run/rowlock/shell:/bin"}
