"""Start order of a control plane on loopback: etcd, kube-apiserver, custom kinds, controller-manager, the rest.

Everything a run leaves is in one directory: data, keys, logs, `kubeconfig`. Ports are ten in a row.
"""

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from identities import write_identities

from processes import launch, until

TOKEN = "rowlock-test-admin"


@dataclass
class Plane:
    """One control plane: its state, its binaries, its ports (API server's first)."""

    dir: Path
    bin: Path
    port: int
    scheduler_qps: int = 0
    """Requests a second that kube-scheduler may make; 0 = its own default."""
    audit: bool = False
    """Every request is written to `audit.jsonl`."""

    @property
    def kubeconfig(self) -> Path:
        return self.dir / "kubeconfig"

    def kubectl(self, *args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / "kubectl"), "--kubeconfig", str(self.kubeconfig), *args]
        return subprocess.run(command, text=True, capture_output=True, input=text)

    def insist(self, *args: str, text: str | None = None) -> str:
        """kubectl that must work. Raises RuntimeError with what it said."""
        done = self.kubectl(*args, text=text)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout


def start(plane: Plane) -> None:
    """etcd and kube-apiserver, answering."""
    plane.dir.mkdir(parents=True, exist_ok=True)
    write_identities(plane.dir / "keys")
    (plane.dir / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    with _one_at_a_time(plane.bin):
        plane.port = plane.port or _free_ports(10)
        _write_kubeconfig(plane)
        _etcd(plane)
        _apiserver(plane)


@contextmanager
def _one_at_a_time(programs: Path) -> Iterator[None]:
    """Ports that are free belong to nobody until somebody listens: who starts beside, with the same programs, waits until then."""
    lock = os.open(programs, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody listens on now."""
    for first in range(21000, 30000, count):
        if all(_free(first + offset) for offset in range(count)):
            return first
    raise RuntimeError(f"no {count} free ports in a row between 21000 and 30000")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _write_kubeconfig(plane: Plane) -> None:
    keys = plane.dir / "keys"
    cluster = {"server": f"https://127.0.0.1:{plane.port}", "certificate-authority": str(keys / "ca.crt")}
    certificate = {"client-certificate": str(keys / "admin.crt"), "client-key": str(keys / "admin.key")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "token",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "token", "user": {"token": TOKEN}}, {"name": "certificate", "user": certificate}],
        "contexts": [{"name": n, "context": {"cluster": "real", "user": n}} for n in ("token", "certificate")],
    }
    plane.kubeconfig.touch(mode=0o600)
    plane.kubeconfig.write_text(json.dumps(config, indent=1))


def _etcd(plane: Plane) -> None:
    client, peer = (f"http://127.0.0.1:{plane.port + n}" for n in (1, 2))
    command: Sequence[object] = [
        plane.bin / "etcd", "--data-dir", plane.dir / "etcd",
        "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
    ]  # fmt: skip
    launch(plane.dir, "etcd", command)


def _apiserver(plane: Plane) -> None:
    """An advertised loopback address is refused, hence one that nobody uses and no endpoint reconciler."""
    keys = plane.dir / "keys"
    flags = {
        "etcd-servers": f"http://127.0.0.1:{plane.port + 1}",
        "secure-port": plane.port,
        "bind-address": "127.0.0.1",
        "advertise-address": "10.254.0.1",
        "endpoint-reconciler-type": "none",
        "tls-cert-file": keys / "server.crt",
        "tls-private-key-file": keys / "server.key",
        "client-ca-file": keys / "ca.crt",
        "token-auth-file": plane.dir / "tokens.csv",
        "authorization-mode": "Node,RBAC",
        "service-cluster-ip-range": "10.96.0.0/16",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": keys / "accounts.key",
        "service-account-signing-key-file": keys / "accounts.key",
        "kubelet-preferred-address-types": "InternalIP,Hostname",
        "allow-privileged": "true",
        "max-requests-inflight": 3000,
        "max-mutating-requests-inflight": 1500,
        **(_audit_flags(plane) if plane.audit else {}),
    }
    launch(plane.dir, "kube-apiserver", [plane.bin / "kube-apiserver", *_spelled(flags)])
    log = plane.dir / "kube-apiserver.log"
    until("kube-apiserver", lambda: plane.kubectl("get", "--raw", "/readyz").returncode == 0, log=log)


def _audit_flags(plane: Plane) -> dict[str, object]:
    """Who asked for what, and what he was answered, without bodies."""
    policy = plane.dir / "audit-policy.json"
    rule = {"level": "Metadata", "omitStages": ["RequestReceived", "ResponseStarted"]}
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule]}))
    return {"audit-policy-file": policy, "audit-log-path": plane.dir / "audit.jsonl", "audit-log-mode": "blocking"}


def start_controllers(plane: Plane) -> None:
    """Namespaces, garbage collection, service accounts: a pod needs the `default` account to be admitted.

    Custom kinds should be there already: the collector looks for new ones every thirty seconds only."""
    keys = plane.dir / "keys"
    flags = {
        "kubeconfig": plane.kubeconfig,
        "service-account-private-key-file": keys / "accounts.key",
        "root-ca-file": keys / "ca.crt",
        "cluster-signing-cert-file": keys / "ca.crt",
        "cluster-signing-key-file": keys / "ca.key",
        "use-service-account-credentials": "false",
        # It looks for pods to fail every twenty seconds: when a test meets it would be chance.
        "controllers": "*,-pod-garbage-collector-controller",
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "secure-port": plane.port + 3,
        "kube-api-qps": 500,
        "kube-api-burst": 1000,
    }
    launch(plane.dir, "kube-controller-manager", [plane.bin / "kube-controller-manager", *_spelled(flags)])
    account = ("get", "serviceaccount", "default", "-n", "default")
    log = plane.dir / "kube-controller-manager.log"
    until("controller-manager", lambda: plane.kubectl(*account).returncode == 0, log=log)


def start_scheduler(plane: Plane) -> None:
    """Its client's limit is 50 requests a second unless `plane.scheduler_qps` says otherwise, as in production."""
    connection: dict[str, object] = {"kubeconfig": str(plane.kubeconfig)}
    if plane.scheduler_qps:
        connection |= {"qps": plane.scheduler_qps, "burst": 2 * plane.scheduler_qps}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": {"leaderElect": False},
    }
    path = plane.dir / "kube-scheduler.json"
    path.write_text(json.dumps(config))
    flags = {"config": path, "bind-address": "127.0.0.1", "secure-port": plane.port + 4}
    launch(plane.dir, "kube-scheduler", [plane.bin / "kube-scheduler", *_spelled(flags)])


def _spelled(flags: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
