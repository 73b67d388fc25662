"""The environment of the submitting shell: which variables are sent with a job.

A job runs with the variables that its submitter has exported (keys, caches, switches), not with the server's. Variables
of the terminal, of the login session or of a rank are not sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_STAYS = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM|TERMCAP|TERM_PROGRAM.*|COLORTERM|COLUMNS|LINES|WINDOWID|PS[0-9]|LS_COLORS|HOSTNAME|MAIL"
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|SESSION_MANAGER|STY|TMUX.*|XDG_.*|DBUS_.*|SSH_.*|GPG_.*|VSCODE_.*|GNOME_.*|SUDO_.*"
)
"""Variables of the terminal and the login session: not sent."""
_RANKS_OWN = re.compile(
    r"RANK|LOCAL_RANK|GROUP_RANK|ROLE_.*|(LOCAL_|GROUP_|)WORLD_SIZE|MASTER_ADDR|MASTER_PORT|TF_CONFIG|PET_.*|OMPI_.*|PMIX?_.*"
    r"|TORCHELASTIC_.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NVIDIA_VISIBLE_DEVICES|ROWLOCK_.*|RUNAI_.*|KUBERNETES_.*"
)
"""Variables that the platform sets for a rank: not sent, because this shell may itself run in a job."""
_EVERYBODYS = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR EDITOR VISUAL PAGER LESS LESSOPEN LESSCLOSE MANPATH INFOPATH KUBECONFIG".split()
)
"""Variables that are sent and not mentioned."""
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_SHOWN = 5


def collect(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to send. Exported shell functions and values that are no UTF-8 are left out, because a Secret cannot hold
    them unchanged."""
    return {
        name: value
        for name, value in environ.items()
        if not _STAYS.fullmatch(name)
        and not _RANKS_OWN.fullmatch(name)
        and _SECRET_KEY.fullmatch(name)
        and _is_text(value)
    }


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # the value is no UTF-8
        return False
    return True


def describe(shell: Mapping[str, str], earlier: Mapping[str, str]) -> str:
    """One line about the variables that are sent; "" when they are only the usual ones. It names those that are not in
    `earlier`, the environment in which the shell was started: variables set on this command line or exported since."""
    names = [name for name in shell if name not in _EVERYBODYS and not name.startswith("LC_")]
    if not names:
        return ""
    new = sorted(name for name in names if earlier.get(name) != shell[name])[:_SHOWN]
    left = len(names) - len(new)
    others = f"{left} {'variable' if left == 1 else 'variables'}" if not new else f"{left} more" if left else ""
    shown = " and ".join(filter(None, (", ".join(new), others)))
    return f"Your environment goes along, as a Secret: {shown} (--clean-env leaves it here)."


def of_parent() -> dict[str, str]:
    """The environment in which the shell was started; {} when it cannot be read."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            pairs = os.fsdecode(file.read()).split("\0")
    except OSError:
        return {}
    return {name: value for name, equals, value in (pair.partition("=") for pair in pairs) if equals}
