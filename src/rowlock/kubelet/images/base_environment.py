"""What a program gets of the server's own environment: a small set, never the user's shell. Pure.

Programs of pods begin with it (`worker/environment.py`), and the RUN lines of `rowlock build`.
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
"""What a program gets of the server's own environment without asking."""
HOST_VARIABLES = ("LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_HOME")
"""And with an image that stands for the host."""
PACKAGE_PARENT = Path(__file__).resolve().parents[3]
"""Where the package `rowlock` lies."""
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(server: Mapping[str, str], *, host: bool, first: str = "") -> dict[str, str]:
    """The minimal environment: `first` leads PATH; an image that stands for the host gets the server's PATH too."""
    env = {k: server[k] for k in BASE_VARIABLES + (HOST_VARIABLES if host else ()) if k in server}
    env.setdefault("LANG", "C.UTF-8")
    parts = [first, server.get("PATH", "") if host else "", STANDARD_PATH]
    path = [step for part in parts for step in part.split(":") if step]
    return {**env, "PATH": ":".join(dict.fromkeys(path))}


def image_environment(server: Mapping[str, str], *, is_root: bool, first: str = "") -> dict[str, str]:
    """The same in a root file system of its own: directories of the server's shell may not be there, and root's home is
    root's, as in every container, wherever the home of the server's user is."""
    env = base_environment(server, host=False, first=first)
    env.pop("TMPDIR", None)
    return env | ({"HOME": "/root"} if is_root else {})


def interpreter_path() -> str:
    """Where the programs of the environment rowlock runs in lie."""
    return str(Path(sys.executable).parent)


def site_paths() -> list[str]:
    """Where the packages of the environment rowlock runs in lie."""
    return [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]


def interpreter_directories(data: str) -> list[tuple[str, str]]:
    """What a root file system shares (`RootfsSpec.shared`) so that the interpreter is seen in it: where it and its
    packages lie (rowlock's own, too, which may be a checkout), as far as they lie in directories of the machine that no
    container sees, `data` among them."""
    hidden = (*machine_files.TEMPORARY, data)
    wanted = {sys.prefix, sys.base_prefix, *site_paths(), str(PACKAGE_PARENT)}
    below = sorted(p for p in wanted if any(p == h or p.startswith(h + "/") for h in hidden))
    outer = [p for n, p in enumerate(below) if not any(p.startswith(q + "/") for q in below[:n])]
    return [(path, "ro") for path in outer]
