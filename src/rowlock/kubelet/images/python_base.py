"""The base of every image: a virtual environment that sees the packages of rowlock's own environment.

`pip install torch` is fast if torch is there; what an image installs itself is its own.
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
"""The format of shared environments: a new number makes all of them anew."""


class NoPip(Exception):
    """No pip is available; carries a sentence."""


def make_environment(directory: Path, packages: Sequence[str]) -> None:
    """Makes a virtual environment without pip at `directory` that also sees the packages in `packages`."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
    site_packages = min(directory.glob("lib/python3*/site-packages"))
    (site_packages / "_rowlock_base.py").write_text(_BASE_SITE_SCRIPT.format(paths=list(packages)))
    (site_packages / "_rowlock_base.pth").write_text("import _rowlock_base\n")
    for script in Path(interpreter_path()).iterdir():
        _adopt_script(script, directory / "bin")


def ensure_pip(environment: Path, wheels: Path) -> None:
    """Installs pip: that of the environment rowlock runs in, else Python's bundled one, unpacked in `wheels`. Raises NoPip."""
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
    """Python's bundled pip, unpacked once for all images (installing it takes seconds)."""
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
    """Copies a console script of this environment (torchrun, …) to run under the image's interpreter, so that it sees its packages."""
    if not script.is_file() or script.is_symlink() or script.name.startswith(("python", "pip", "activate")):
        return
    content = script.read_bytes()[: 1 << 16]
    if shebang := _SHEBANG.match(content):
        script_copy = target / script.name
        script_copy.write_bytes(f"#!{target}/python\n".encode() + content[shebang.end() :])
        script_copy.chmod(stat.S_IMODE(script.stat().st_mode))


def shared_environment(directory: Path) -> Path:
    """The environment that all images of one rowlock environment share, below `directory`; made if missing.

    It is never written to: an image's own packages are in its layers, at the same paths."""
    scripts = sorted(os.listdir(interpreter_path()))
    facts = repr((_FORMAT, str(directory), sys.prefix, sys.version, site_paths(), scripts))
    target = directory / hashlib.sha256(facts.encode()).hexdigest()[:12]
    if not target.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with _hold_lock(directory):
            if not target.exists():  # else another build has made it while this one waited
                claim = Path(f"{target}.new")
                beneath.remove_path(str(claim))  # left by a build that was killed
                make_environment(claim, site_paths())
                ensure_pip(claim, directory)
                _rename_environment(claim, target)
    return target


@contextlib.contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    """Admits one build at a time, of any process; the kernel releases the lock of one that was killed."""
    with open(directory / ".lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _rename_environment(made: Path, target: Path) -> None:
    """Renames an environment, and replaces its path in its programs."""
    for script in (made / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            content = script.read_bytes()
            script.write_bytes(content.replace(os.fsencode(made), os.fsencode(target)))
    made.rename(target)
