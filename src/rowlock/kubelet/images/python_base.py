"""What every image has below its own files: a virtual environment that sees what rowlock's own environment has.

`pip install torch` is quick where torch is there, and what an image installs beside it is its own.
"""

import contextlib
import ensurepip
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from rowlock.kubelet.files import beneath
from rowlock.kubelet.images.base_environment import interpreter_path, site_paths

_SHEBANG = re.compile(rb"#!(\S*python[\d.]*)\s*\n")
_PIP_SCRIPT = "import sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
_BASE_SITE_SCRIPT = """import os, site
for path in {paths!r}:
    if os.path.isdir(path):
        site.addsitedir(path)
"""
_FORMAT = 1
"""Of a shared environment: another number makes all of them anew."""


class NoPip(Exception):
    """There is no pip to be had; a sentence."""


def make_environment(directory: Path, packages: Sequence[str]) -> None:
    """A virtual environment without pip at `directory` that sees the packages in `packages`, too."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
    site_packages = min(directory.glob("lib/python3*/site-packages"))
    (site_packages / "_rowlock_base.py").write_text(_BASE_SITE_SCRIPT.format(paths=list(packages)))
    (site_packages / "_rowlock_base.pth").write_text("import _rowlock_base\n")
    for script in Path(interpreter_path()).iterdir():
        _adopt_script(script, directory / "bin")


def ensure_pip(environment: Path, wheels: Path) -> None:
    """pip of the environment rowlock runs in, else the one that comes with Python, unpacked in `wheels`. Raises NoPip."""
    bin_directory = environment / "bin"
    python = str(bin_directory / "python")
    if (bin_directory / "pip").exists():
        return
    if subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode != 0:
        site_packages = min(environment.glob("lib/python3*/site-packages"))
        (site_packages / "_rowlock_pip.pth").write_text(f"{_unpack_pip(wheels)}\n")
    for name in ("pip", "pip3"):
        (bin_directory / name).write_text(f"#!{python}\n{_PIP_SCRIPT}")
        (bin_directory / name).chmod(0o755)


def _unpack_pip(directory: Path) -> Path:
    """The pip that comes with Python, unpacked once for all images (installing it takes seconds)."""
    wheels = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
    if not wheels:
        raise NoPip("there is no pip in this Python: install it into the environment rowlock runs in")
    target = directory / f".{wheels[-1].stem}"
    if not target.exists():
        fresh = Path(tempfile.mkdtemp(dir=directory))
        shutil.unpack_archive(wheels[-1], fresh, "zip")
        fresh.chmod(0o755)
        try:
            fresh.rename(target)
        except OSError:
            beneath.remove_path(str(fresh))
            if not target.is_dir():  # else another build has unpacked it meanwhile
                raise
    return target


def _adopt_script(script: Path, target: Path) -> None:
    """A console script of this environment (torchrun, …), run by the image's interpreter so that it sees its packages."""
    if not script.is_file() or script.is_symlink() or script.name.startswith(("python", "pip", "activate")):
        return
    content = script.read_bytes()[: 1 << 16]
    if shebang := _SHEBANG.match(content):
        script_copy = target / script.name
        script_copy.write_bytes(f"#!{target}/python\n".encode() + content[shebang.end() :])
        script_copy.chmod(stat.S_IMODE(script.stat().st_mode))


def shared_environment(directory: Path) -> Path:
    """The one that all images of one environment of rowlock share, below `directory`; made when it is missing.

    It is never written to: an image's own packages are in its layers, at the same paths."""
    scripts = sorted(os.listdir(interpreter_path()))
    facts = repr((_FORMAT, str(directory), sys.prefix, sys.version, site_paths(), scripts))
    target = directory / hashlib.sha256(facts.encode()).hexdigest()[:12]
    if not target.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with _hold_lock(directory):
            if not target.exists():  # else another build has made it while this one waited
                claim = Path(f"{target}.new")
                beneath.remove_path(str(claim))  # of a build that was killed
                make_environment(claim, site_paths())
                ensure_pip(claim, directory)
                _rename_environment(claim, target)
    return target


@contextlib.contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    """One build at a time, of this process or another; the kernel takes the lock from one that was killed."""
    with open(directory / ".lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _rename_environment(made: Path, target: Path) -> None:
    """Its programs name it by its path."""
    for script in (made / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            content = script.read_bytes()
            script.write_bytes(content.replace(os.fsencode(made), os.fsencode(target)))
    made.rename(target)
