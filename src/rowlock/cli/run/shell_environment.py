"""The environment of the submitting shell: which variables are sent with a job.

A job runs with the variables that its submitter has exported (keys, caches, switches), not with the server's. Variables
of the terminal, of the login session or of a rank are not sent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from rowlock.cli.grammar import CommandError
from rowlock.cli.output import shorten_names
from rowlock.submit_fields import MAX_SHELL_ENVIRONMENT

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
_SHOWN, _LARGEST = 5, 3


def collect(environ: Mapping[str, str], *, has_clean_env: bool = True) -> dict[str, str]:
    """The variables to send. Exported shell functions and values that are not UTF-8 are left out, because a Secret cannot hold
    them unchanged. Raises CommandError above `MAX_SHELL_ENVIRONMENT` bytes. `has_clean_env`: the command has --clean-env."""
    shell = {name: value for name, value in environ.items() if _is_sent(name) and _is_text(value)}
    sizes = {name: len(name) + len(value.encode()) for name, value in shell.items()}
    if (total := sum(sizes.values())) > MAX_SHELL_ENVIRONMENT:
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:_LARGEST]
        else_all = ", or leave all here with --clean-env (-e NAME takes one along)" if has_clean_env else ""
        raise CommandError(
            f"your environment has {total:,} bytes, and {MAX_SHELL_ENVIRONMENT:,} go along with a job. The largest variables are"
            f" {', '.join(f'{name} ({sizes[name]:,})' for name in largest)}: unset what the job does not need{else_all}"
        )
    return shell


def of_shell(environ: Mapping[str, str]) -> dict[str, str]:
    """The shell's environment, with the directory of rowlock's interpreter appended to PATH: a job then finds `python` even when
    the user ran `venv/bin/python -m rowlock` without activating the virtual environment."""
    own, path = os.path.dirname(sys.executable), environ.get("PATH", os.defpath)
    return {**environ, "PATH": path if own in path.split(os.pathsep) else f"{path}{os.pathsep}{own}"}


def describe_unsent(environ: Mapping[str, str]) -> str:
    """One line about the variables that are not sent because their values are not text; "" when there are none."""
    names = sorted(name for name, value in environ.items() if _is_sent(name) and not _is_text(value))
    if not names:
        return ""
    return f"Not sent, because the value is no UTF-8: {shorten_names(names, _SHOWN)}."


def _is_sent(name: str) -> bool:
    return not _STAYS.fullmatch(name) and not _RANKS_OWN.fullmatch(name) and bool(_SECRET_KEY.fullmatch(name))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # the value is not UTF-8
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
