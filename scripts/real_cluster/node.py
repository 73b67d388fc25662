"""One real node: containerd, runc, a bridge, CoreDNS and a kubelet. Needs root and Debian's packages.

Images need no registry: each has a few files of its own, and every container sees this machine's programs, and the
directory `ROWLOCK_REAL_NODE_MOUNT` names, read-only. CoreDNS gives job services their names; they are headless, so that
nobody needs kube-proxy.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path

from control_plane import Plane
from recipe import Missing

from processes import launch, stop, until

NODE = "real-node"
_IPV6 = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
_NAMESPACES = Path("/run/netns")
PACKAGES = "containerd runc containernetworking-plugins busybox-static iptables bind9-dnsutils"
PLUGINS = Path("/usr/lib/cni")
_PROGRAMS = ("containerd", "ctr", "runc", "ip")
_HOST_DIRECTORIES = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/alternatives", "/etc/ssl")
SOCKET, BRIDGE = "containerd.address", "bridge.name"
REGISTRIES = "registries"
"""The directory of `hosts.toml` files, by which a test stands in for a registry: containerd reads them at each pull."""
PAUSE, HOST = "localhost/pause:1", "localhost/host:1"
INIT_IMAGE = "docker.io/library/alpine:3.10"
"""What the training operator's init container of a worker runs nslookup in."""


def require_node(programs: Path) -> None:
    """Raises Missing with what this machine lacks."""
    if os.geteuid() != 0:
        raise Missing("a real node needs root")
    absent = [program for program in _PROGRAMS if not shutil.which(program)]
    absent += [str(path) for path in (PLUGINS / "bridge", Path("/bin/busybox")) if not path.exists()]
    absent += [] if (programs / "coredns").exists() else ["CoreDNS (`make real-cluster` builds it)"]
    if absent:
        raise Missing(f"a real node needs {', '.join(absent)}: `apt-get install {PACKAGES}`")


def start_node(plane: Plane) -> None:
    """Returns when the node is Ready."""
    require_node(plane.bin)
    _keep_browsers_calm(plane.dir)
    _bridge(plane)
    socket = _containerd(plane)
    _images(plane)
    _names(plane)
    _kubelet(plane, socket)


def _keep_browsers_calm(directory: Path) -> None:
    """Let new interfaces of this machine have no IPv6 address while the node is up: a browser takes each new address, as a pod's end of
    the bridge gets one, for a change of the network, and aborts what it has asked for (ERR_NETWORK_CHANGED)."""
    with suppress(OSError):  # no IPv6, or no right to change it
        (directory / "ipv6").write_text(_IPV6.read_text())
        _IPV6.write_text("1")


def bridge_of(plane: Plane) -> str:
    """The bridge of the node's pods. Each node has its own, with a subnet of its own: two on one bridge gave the same addresses twice."""
    return f"rowlock-{plane.port}"


def address_of(plane: Plane) -> str:
    """The node's address on its bridge, the first of a /24. No other plane that lives has a port with the same ten."""
    number = plane.port // 10
    return f"10.{64 + number // 256}.{number % 256}.1"


def _bridge(plane: Plane) -> None:
    bridge = bridge_of(plane)
    _remove_bridge(bridge)  # of a plane that had this port and was killed
    for command in (
        ["ip", "link", "add", bridge, "type", "bridge"],
        ["ip", "addr", "add", f"{address_of(plane)}/24", "dev", bridge],
        ["ip", "link", "set", bridge, "up"],
    ):
        done = subprocess.run(command, text=True, capture_output=True)
        if done.returncode:
            raise Missing(f"`{' '.join(command)}` is refused here: {done.stderr.strip()}")
    (plane.dir / BRIDGE).write_text(bridge)
    _let_pods_talk(bridge)


def _remove_bridge(bridge: str) -> None:
    """Remove a bridge, and the network namespaces of the pods on it; nothing where there is none."""
    shown = subprocess.run(["ip", "-json", "addr", "show", "dev", bridge], text=True, capture_output=True)
    if shown.returncode:
        return
    addresses = [each["local"] for link in json.loads(shown.stdout) for each in link.get("addr_info", ())]
    subnet = next((address.rpartition(".")[0] + "." for address in addresses if "." in address), "none")
    for namespace in _NAMESPACES.glob("cni-*"):
        inside = ["ip", "-netns", namespace.name, "-4", "-brief", "addr", "show"]
        if f" {subnet}" in subprocess.run(inside, text=True, capture_output=True).stdout:
            subprocess.run(["ip", "netns", "delete", namespace.name], capture_output=True)
    subprocess.run(["ip", "link", "delete", bridge], capture_output=True)
    if shutil.which("iptables") is not None:
        subprocess.run(["iptables", "-w", "-D", *_rule(bridge)], capture_output=True)


def _rule(bridge: str) -> list[str]:
    return ["FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"]


def _let_pods_talk(bridge: str) -> None:
    """Whatever the machine's firewall says of what is forwarded: a dockerd that ran here leaves "drop", and with `br_netfilter` that
    holds between the pods of one bridge, too. Without iptables there is no such rule."""
    if shutil.which("iptables") is None:
        return
    if subprocess.run(["iptables", "-w", "-C", *_rule(bridge)], capture_output=True).returncode:
        subprocess.run(
            ["iptables", "-w", "-I", *_rule(bridge)], capture_output=True
        )  # refused: pods talk if they may anyway


def _containerd(plane: Plane) -> Path:
    """Its socket. A Unix socket's path is short, so that it does not lie in the cluster's directory."""
    state = Path(f"/run/rowlock-real-{plane.port}")
    state.mkdir(mode=0o700, exist_ok=True)
    socket, networks = state / "containerd.sock", plane.dir / "cni"
    (plane.dir / SOCKET).write_text(str(socket))
    networks.mkdir(exist_ok=True)
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": f"{address_of(plane).rpartition('.')[0]}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(plane.dir / "addresses"),
    }
    bridge = {"type": "bridge", "bridge": bridge_of(plane), "isGateway": True, "hairpinMode": True, "ipam": addresses}
    network = {"cniVersion": "1.0.0", "name": "real", "plugins": [bridge]}
    (networks / "10-real.conflist").write_text(json.dumps(network))
    (plane.dir / "container.json").write_text(json.dumps(_container_defaults()))
    (plane.dir / "containerd.toml").write_text(
        f'''version = 2
root = "{plane.dir}/containerd"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{plane.dir}/{REGISTRIES}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{plane.dir}/container.json"
'''
    )
    launch(plane.dir, "containerd", ["containerd", "-c", plane.dir / "containerd.toml"])
    asked = ["ctr", "-a", str(socket), "version"]
    until(
        "containerd",
        lambda: subprocess.run(asked, capture_output=True).returncode == 0,
        log=plane.dir / "containerd.log",
    )
    return socket


def _container_defaults() -> dict[str, object]:
    """containerd's own, with this machine's programs."""
    made = subprocess.run(["ctr", "oci", "spec"], check=True, text=True, capture_output=True)
    defaults: dict[str, object] = json.loads(made.stdout)
    mounts = defaults["mounts"]
    assert isinstance(mounts, list)
    for path in (*_HOST_DIRECTORIES, *filter(None, os.environ.get("ROWLOCK_REAL_NODE_MOUNT", "").split(":"))):
        if Path(path).exists():
            mounts.append({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
    return defaults


def _images(plane: Plane) -> None:
    busybox = Path("/bin/busybox").read_bytes()
    images = {
        PAUSE: ({"bin/busybox": busybox}, {"Entrypoint": ["/bin/busybox", "sleep", "2147483647"]}),
        HOST: ({"tmp/.here": b""}, {"Cmd": ["/bin/sh"]}),
        INIT_IMAGE: ({"tmp/.here": b""}, {"Cmd": ["/bin/sh"]}),
    }
    for name, (files, program) in images.items():
        _import_image(plane.dir, name, files, program)


def add_image(directory: Path, name: str, program: list[str], path: str) -> None:
    """On the node of the cluster in this directory; `path` is its PATH. Raises Missing."""
    _import_image(directory, name, {"tmp/.here": b""}, {"Entrypoint": program, "Env": [f"PATH={path}"]})


def _import_image(directory: Path, name: str, files: dict[str, bytes], program: dict[str, list[str]]) -> None:
    archive, socket = directory / "image.tar", (directory / SOCKET).read_text()
    archive.write_bytes(docker_archive(name, files, program))
    command = ["ctr", "-a", socket, "-n", "k8s.io", "image", "import", str(archive)]
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        raise Missing(f"containerd takes no images here: {done.stderr.strip()[-300:]}")


def stop_node(directory: Path) -> None:
    """End what runs on the node of the cluster in this directory; nothing where it has none."""
    if not (directory / SOCKET).exists():
        return
    socket = (directory / SOCKET).read_text()
    stop(directory, "kubelet")  # else it would start again what ends
    ctr = ["ctr", "-a", socket, "-n", "k8s.io", "tasks"]
    listed = subprocess.run([*ctr, "ls", "-q"], text=True, capture_output=True)
    for task in listed.stdout.split():
        subprocess.run([*ctr, "rm", "-f", task], capture_output=True, timeout=30)
    stop(directory, "containerd")
    state = str(Path(socket).parent)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if mount.startswith((f"{directory}/", f"{state}/")):
            subprocess.run(["umount", "-l", mount], capture_output=True)
    shutil.rmtree(state, ignore_errors=True)
    with suppress(OSError):
        _remove_bridge((directory / BRIDGE).read_text())
    with suppress(OSError):
        _IPV6.write_text((directory / "ipv6").read_text())


def docker_archive(name: str, files: dict[str, bytes], program: dict[str, list[str]]) -> bytes:
    """An image of one layer, as `docker save` writes it."""
    layer = _tar(files)
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Env": [f"PATH={os.defpath}"], **program},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {
        "layer.tar": layer,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    return _tar(parts)


def _tar(files: dict[str, bytes]) -> bytes:
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return text.getvalue()


def _names(plane: Plane) -> None:
    corefile = plane.dir / "Corefile"
    corefile.write_text(
        f"cluster.local:53 {{\n bind {address_of(plane)}\n kubernetes cluster.local in-addr.arpa {{\n"
        f"  kubeconfig {plane.kubeconfig} token\n  pods insecure\n  ttl 1\n }}\n cache 1\n}}\n"
    )
    launch(plane.dir, "coredns", [plane.bin / "coredns", "-conf", corefile])


def _kubelet(plane: Plane, socket: Path) -> None:
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address_of(plane),
        "port": plane.port + 8,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "clusterDNS": [address_of(plane)],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{socket}",
    }
    path = plane.dir / "kubelet.json"
    path.write_text(json.dumps(config))
    flags = {
        "config": path,
        "kubeconfig": plane.kubeconfig,
        "root-dir": plane.dir / "kubelet",
        "hostname-override": NODE,
        "node-ip": address_of(plane),
    }
    launch(plane.dir, "kubelet", [plane.bin / "kubelet", *(f"--{name}={value}" for name, value in flags.items())])
    asked = ("get", "node", NODE, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}")
    until("the node", lambda: plane.kubectl(*asked).stdout == "True", seconds=90, log=plane.dir / "kubelet.log")
