"""NFS exports of pods: directories where this machine has already mounted them. The kubelet mounts none itself.

The machine's administrator mounts exports (fstab, autofs), and pods that name one get that directory. If the kubelet ran as root and
mounted what pods name, every user who may run a pod could choose a file system that root mounts, with the machine's address as the
only credential. A dead NFS server would block every process that looks at the mount, and pods outlive the rowlock server, which could
not unmount then. Pod hosts also have mount namespaces of their own, which see later mounts only if the machine's propagate (systemd's do).
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rowlock.kubelet.pod.facts import ContainerConfigError

MOUNT_TABLE = Path("/proc/self/mountinfo")
MOUNT_HELPERS = tuple(Path(directory) / "mount.nfs" for directory in ("/sbin", "/usr/sbin", "/usr/bin"))
"""Paths of the program that mounts exports, on machines that have it."""
_TYPES = ("nfs", "nfs4")


def export_name(server: str, path: str) -> str:
    """`server:/path`, as the mount table names an export."""
    return f"{server.strip('[]').lower()}:{PurePosixPath(path)}"


def find_export(export: str, table: Path | None = None) -> Path:
    """The directory where this machine has mounted the export, the latest of several mounts. Raises ContainerConfigError that says what to
    do if there is none."""
    server, path = _split_export(export)
    if ".." in PurePosixPath(path).parts:
        raise ContainerConfigError(f"the NFS export {export} leads out of itself: name its directory without `..`")
    for source, root, target in reversed([*_nfs_mounts(table or MOUNT_TABLE)]):
        mounted_server, exported = _split_export(source)
        shown = PurePosixPath(exported) / root.lstrip("/")
        if mounted_server == server and PurePosixPath(path).is_relative_to(shown):
            return Path(target) / PurePosixPath(path).relative_to(shown)
    raise ContainerConfigError(
        f"this node has not mounted the NFS export {export}, and pods do not mount it themselves: as root,"
        f" `mount -t nfs {export} /mnt/NAME`; the pod starts then{missing_client()}"
    )


def missing_client() -> str:
    """A sentence if this machine lacks an NFS client; "" if it has one, or is not Linux."""
    if not MOUNT_TABLE.exists() or any(helper.exists() for helper in MOUNT_HELPERS):
        return ""
    return ". The node has no NFS client (mount.nfs): install the package nfs-common, or nfs-utils, first"


def _split_export(export: str) -> tuple[str, str]:
    """Server and path; addresses of IPv6 have colons, too."""
    server, _, path = export.partition(":/")
    return server.strip("[]").lower(), f"/{path}"


def _nfs_mounts(table: Path) -> Iterator[tuple[str, str, str]]:
    """Of each NFS mount: its source, the mounted part of it ("/" = all), and its mount point."""
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # macOS has no such table
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, what = before.split(" "), after.split(" ")
        if len(fields) >= 5 and len(what) >= 2 and what[0] in _TYPES:
            yield _unescape(what[1]), _unescape(fields[3]), _unescape(fields[4])


def _unescape(text: str) -> str:
    """Decodes a path of the mount table, which writes blanks and backslashes as octal numbers."""
    for number, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{number}", character)
    return text
