"""What a real cluster is made of: pinned versions, and how each program is built from its published Go module.

The result lies in `${XDG_CACHE_HOME:-~/.cache}/rowlock/real-cluster/<digest>`, where the digest covers this recipe:
another pin is another directory, and a directory that is complete is never built again.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rowlock import KUBERNETES

ETCD = "3.6.8"
OPERATOR = "1.9.4"

COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
STAGING = """
    api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap
    code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib
    dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy
    kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin
    sample-controller
""".split()
"""Modules that k8s.io/kubernetes carries itself under version 0: each must be pointed at its published twin."""

OPERATOR_MODULE = "github.com/kubeflow/training-operator"
OPERATOR_BINARY = "training-operator.v1"
MANIFESTS = "training-operator.yaml"
COMPLETE = (*COMMANDS, "etcd", OPERATOR_BINARY, MANIFESTS)
COREDNS = "1.12.4"
HELM = "3.18.6"
"""Names for the pods of a real node, and who renders the chart: no part of the digest either, and tests do without them."""
KWOK = "0.8.0"
"""Plays the kubelets of pretend nodes. Benchmarks alone want it, so it is built when asked for and no part of the digest."""


_NO_NETWORK = (
    "dial tcp", "no such host", "i/o timeout", "connection refused", "proxyconnect", "TLS handshake timeout",
    "network is unreachable", "GOPROXY list is not the empty string, but contains no entries", "GOPROXY=off",
    "502 Bad Gateway", "503 Service Unavailable", "504 Gateway",
)  # fmt: skip
"""What Go says when modules cannot be fetched, as opposed to a recipe that is wrong."""


class Missing(Exception):
    """Something this machine does not have; the message says what."""


def directory() -> Path:
    """Where the binaries are or would be."""
    given = os.environ.get("ROWLOCK_REAL_CLUSTER_BIN")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rowlock" / "real-cluster" / digest()


def digest() -> str:
    parts = [KUBERNETES, ETCD, OPERATOR, _kubernetes_module(), _linker_flags(), *COMMANDS, *STAGING]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def complete(out: Path) -> bool:
    return all((out / name).exists() for name in COMPLETE)


def build(within: float | None = None, *, kwok: bool = False, extras: bool = False) -> Path:
    """The directory with everything in it, built if need be, in at most `within` seconds. `extras`: CoreDNS and helm, too.

    Raises Missing without Go, without a network, and when the time is over: what is finished by then is kept."""
    out = directory()
    wanted = [*(["kwok"] if kwok else []), *(["coredns", "helm"] if extras else [])]
    if complete(out) and all((out / name).exists() for name in wanted):
        return out
    if os.environ.get("ROWLOCK_REAL_CLUSTER_BIN"):
        absent = ", ".join(name for name in COMPLETE if not (out / name).exists())
        raise Missing(f"ROWLOCK_REAL_CLUSTER_BIN names {out}, which lacks {absent}: unset it to build them")
    if not shutil.which("go"):
        raise Missing("Go is not installed, and the binaries are not built: install Go 1.24 or newer")
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        until = Deadline(within)
        for what, make in (("kubernetes", _kubernetes), ("etcd", _etcd), ("operator", _operator)):
            print(f"real-cluster: {what} into {out}", file=sys.stderr)
            make(out, until)
        for name in wanted:
            print(f"real-cluster: {name} into {out}", file=sys.stderr)
            _install(out, name, until)
    return out


class Deadline:
    """How long the whole build may still take; None = as long as it wants."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two builds at once wait for each other; the second finds the first one's files."""
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go(*args: str, cwd: Path, until: Deadline, gobin: Path | None = None) -> str:
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    if gobin:
        env["GOBIN"] = str(gobin)
    said = f"go {' '.join(args[:3])}"
    with subprocess.Popen(
        ["go", *args], cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            out, errors = running.communicate(timeout=until.left())
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # the compilers it started as well
            if isinstance(error, subprocess.TimeoutExpired):
                raise Missing(f"the time was over during `{said}`: what is compiled is kept, run it again") from None
            raise
    if running.returncode:
        if any(sign in errors for sign in _NO_NETWORK):
            last = errors.strip().splitlines()[-1]
            raise Missing(f"`{said}` could not fetch Go modules, there is no way to the module proxy: {last[-300:]}")
        raise RuntimeError(f"{said} failed: {errors.strip()[-2000:]}")
    return out


def _put(made: Path, out: Path) -> None:
    """Only what is complete gets its name: a build may be killed at any moment."""
    for path in sorted(made.iterdir()):
        path.replace(out / path.name)


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A directory on the same disk, for what is not complete yet."""
    with tempfile.TemporaryDirectory(dir=out, prefix=".new-") as place:
        yield Path(place)


def _kubernetes_module() -> str:
    twins = [f"\tk8s.io/{name} => k8s.io/{name} v0{KUBERNETES[1:]}" for name in STAGING]
    return "\n".join(
        ["module rowlock.dev/realcluster", "go 1.24.0", f"require k8s.io/kubernetes v{KUBERNETES}", "replace (", *twins, ")"]
    )  # fmt: skip


def _linker_flags() -> str:
    major, minor, _ = KUBERNETES.split(".")
    stamps = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in (("gitVersion", f"v{KUBERNETES}"), ("gitMajor", major), ("gitMinor", minor))
    ]
    return " ".join(["-s", "-w", *stamps])


def _kubernetes(out: Path, until: Deadline) -> None:
    if all((out / name).exists() for name in COMMANDS):
        return
    with tempfile.TemporaryDirectory() as scratch, _scratch(out) as made:
        here = Path(scratch)
        (here / "go.mod").write_text(_kubernetes_module())
        wanted = "\n".join(f'import _ "k8s.io/kubernetes/cmd/{name}"' for name in COMMANDS)
        (here / "wanted.go").write_text(f"//go:build wanted\n\npackage wanted\n\n{wanted}\n")
        _go("mod", "tidy", cwd=here, until=until)
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in COMMANDS]
        _go("build", "-ldflags", _linker_flags(), "-o", f"{made}/", *packages, cwd=here, until=until)
        _put(made, out)


def run_program(source: Path, *args: str) -> str:
    """What a Go program prints that is built with the modules of this release. Raises Missing without Go or a network."""
    if not shutil.which("go"):
        raise Missing("Go is not installed: install Go 1.24 or newer")
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        (here / "go.mod").write_text(_kubernetes_module())
        shutil.copy(source, here)
        _go("mod", "tidy", cwd=here, until=Deadline(None))
        return _go("run", ".", *args, cwd=here, until=Deadline(None))


def _etcd(out: Path, until: Deadline) -> None:
    if (out / "etcd").exists():
        return
    with tempfile.TemporaryDirectory() as scratch, _scratch(out) as made:
        here = Path(scratch)
        (here / "go.mod").write_text(f"module rowlock.dev/etcd\ngo 1.24.0\nrequire go.etcd.io/etcd/server/v3 v{ETCD}\n")
        (here / "main.go").write_text(
            'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\n'
            "func main() { etcdmain.Main(os.Args) }\n"
        )
        _go("mod", "tidy", cwd=here, until=until)
        _go("build", "-ldflags", "-s -w", "-o", str(made / "etcd"), ".", cwd=here, until=until)
        _put(made, out)


def _operator(out: Path, until: Deadline) -> None:
    """The program, and its CRDs, rights and webhooks as the module's own kustomization renders them."""
    target = f"{OPERATOR_MODULE}@v{OPERATOR}"
    with _scratch(out) as made:
        if not (out / OPERATOR_BINARY).exists():
            command = f"{OPERATOR_MODULE}/cmd/{OPERATOR_BINARY}@v{OPERATOR}"
            _go("install", "-ldflags", "-s -w", command, cwd=made, until=until, gobin=made)
        if not (out / MANIFESTS).exists():
            source = json.loads(_go("mod", "download", "-json", target, cwd=made, until=until))["Dir"]
            rendered = subprocess.run(
                [str(out / "kubectl"), "kustomize", f"{source}/manifests/overlays/standalone"],
                text=True, capture_output=True, check=True,
            )  # fmt: skip
            (made / MANIFESTS).write_text(rendered.stdout)
        _put(made, out)


_COMMANDS = {
    "kwok": f"sigs.k8s.io/kwok/cmd/kwok@v{KWOK}",
    "coredns": f"github.com/coredns/coredns@v{COREDNS}",
    "helm": f"helm.sh/helm/v3/cmd/helm@v{HELM}",
}


def _install(out: Path, name: str, until: Deadline) -> None:
    if (out / name).exists():
        return
    with _scratch(out) as made:
        _go("install", "-ldflags", "-s -w", _COMMANDS[name], cwd=made, until=until, gobin=made)
        _put(made, out)
