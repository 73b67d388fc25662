"""The part of the server's own environment that programs get: a small set, never the user's shell. Pure.

The variables of pods' programs start with it (`worker/environment.py`), and so do those of RUN steps of `rowlock build`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from rowlock.kubelet.mounts import machine_files

BASE_VARIABLES = (
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""Variables of the server's own environment that every program gets."""
HOST_VARIABLES = ("LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_HOME")
"""Further ones for images that stand for the host."""
PACKAGE_PARENT = Path(__file__).resolve().parents[3]
"""The directory of the package `rowlock`."""
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(server: Mapping[str, str], *, host: bool, first: str = "") -> dict[str, str]:
    """The base environment: `first` leads PATH; an image that stands for the host also gets the server's PATH."""
    env = {k: server[k] for k in BASE_VARIABLES + (HOST_VARIABLES if host else ()) if k in server}
    env.setdefault("LANG", "C.UTF-8")
    parts = [first, server.get("PATH", "") if host else "", STANDARD_PATH]
    path = [step for part in parts for step in part.split(":") if step]
    return {**env, "PATH": ":".join(dict.fromkeys(path))}


def image_environment(server: Mapping[str, str], *, is_root: bool, first: str = "") -> dict[str, str]:
    """The base environment in a root file system of its own, where directories of the server's shell may not exist. Root's home is
    /root, as in every container, wherever the home of the server's user is."""
    env = base_environment(server, host=False, first=first)
    env.pop("TMPDIR", None)
    return env | ({"HOME": "/root"} if is_root else {})


def interpreter_path() -> str:
    """The directory of programs of the environment that rowlock runs in."""
    return str(Path(sys.executable).parent)


def site_paths() -> list[str]:
    """The directories of packages of the environment that rowlock runs in."""
    return [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]


def interpreter_directories(data: str) -> list[tuple[str, str]]:
    """What a root file system shares (`RootfsSpec.shared`) so that it contains the interpreter: the directories of it, of its
    packages and of rowlock (perhaps a checkout), as far as they are in directories of the machine that containers do not see,
    such as `data`."""
    hidden = (*machine_files.TEMPORARY, data)
    wanted = {sys.prefix, sys.base_prefix, *site_paths(), str(PACKAGE_PARENT)}
    below = sorted(p for p in wanted if any(p == h or p.startswith(h + "/") for h in hidden))
    outer = [p for n, p in enumerate(below) if not any(p.startswith(q + "/") for q in below[:n])]
    return [(path, "ro") for path in outer]
