"""What a program gets of the server's own environment: a small set, never the user's shell. Pure.

Programs of pods begin with it (`worker/environment.py`), and the RUN lines of `rowlock build`.
"""

from collections.abc import Mapping

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
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(server: Mapping[str, str], *, host: bool, first: str = "") -> dict[str, str]:
    """The minimal environment: `first` leads PATH; an image that stands for the host gets the server's PATH too."""
    env = {k: server[k] for k in BASE_VARIABLES + (HOST_VARIABLES if host else ()) if k in server}
    env.setdefault("LANG", "C.UTF-8")
    parts = [first, server.get("PATH", "") if host else "", STANDARD_PATH]
    path = [step for part in parts for step in part.split(":") if step]
    return {**env, "PATH": ":".join(dict.fromkeys(path))}
