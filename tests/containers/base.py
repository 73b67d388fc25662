"""An image made from this machine's own Python and shell, for engines that cannot pull one.

python -m tests.containers.base NAME[:TAG] [PACKAGE…]      the packages (torch…) come from the interpreter's own environment
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

PROGRAMS = (
    "sh bash echo uname find xargs tee ls cat sleep hostname ps mkdir cp ln rm mv touch chmod chown kill tar grep sed pwd true false date dd df "
    "env id getent head tail wc tr cut sort seq test stat stty mount base64 printf nproc timeout setsid mktemp readlink ipcmk ipcs pkill"
).split()
LIBRARIES = (
    "libnss_dns.so.2 libnss_files.so.2 libresolv.so.2 "  # loaded by name
    "libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 libm.so.6 libstdc++.so.6 libgcc_s.so.1"  # wheels want these
).split()
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
LEFT_OUT = ("site-packages", "test", "tests", "__pycache__", "idlelib", "*.a")
NEVER_USED = ("triton",)
ALL_EXTRAS = ("cuda-toolkit",)
"""What torch wants with nearly all its extras."""
PREFIX = "opt/python"


def make(root: Path, packages: Sequence[str] = ()) -> None:
    """Fills `root` with a small system: a shell, its usual programs, Python (and some of its packages)."""
    for directory in ("bin", "usr/bin", "etc", "tmp", "root", "proc", "sys", "dev"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for path, text in FILES.items():
        (root / path).write_text(text)
    found = [Path(where) for name in PROGRAMS if (where := shutil.which(name, path="/bin:/usr/bin"))]
    for program in found:
        shutil.copy(program, root / "bin" / program.name)
    shutil.copytree(sys.base_prefix, root / PREFIX, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in ("libpython", "include", "share"):
        shutil.rmtree(root / PREFIX / name, ignore_errors=True)
    site = root / PREFIX / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    for package in needed(packages):
        copy_package(package, site)
    native = [p for p in (root / PREFIX).rglob("*.so*") if p.is_file() and "site-packages" not in p.parts]
    copy_libraries(root, [*found, Path(sys.executable).resolve(), *native])


def needed(names: Sequence[str]) -> list[str]:
    """These distributions and all that they need here, by name."""
    found: list[str] = []
    waiting = list(names)
    while waiting:
        name = re.split(r"[^A-Za-z0-9_.-]", waiting.pop(), maxsplit=1)[0]
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system, or an extra that is not installed
        found.append(name)
        waiting += [text for text in requires if "extra ==" not in text or name in ALL_EXTRAS]
    return found


def copy_package(name: str, site: Path) -> None:
    """An installed distribution with its scripts and metadata, so that pip knows of it. Of what is never imported on a
    machine without GPUs the metadata alone."""
    own = Path(sysconfig.get_paths()["purelib"]).resolve()
    for file in importlib.metadata.files(name) or ():
        source = (own / file).resolve()
        if (name in NEVER_USED and ".dist-info" not in str(file)) or not source.is_file() or source.suffix == ".pyc":
            continue
        if own in source.parents:
            _link(source, site / source.relative_to(own))
        elif source.parent.name == "bin":
            script = source.read_bytes()
            target = site.parents[2] / "bin" / source.name
            target.write_bytes(re.sub(rb"^#!\S*python\S*", f"#!/{PREFIX}/bin/python3".encode(), script))
            target.chmod(0o755)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def copy_libraries(root: Path, programs: Iterable[Path]) -> None:
    """What the dynamic linker would load for these, at the same places."""
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    words = {word for line in said.splitlines() for word in line.split() if word.startswith("/") and ":" not in word}
    beside = [Path(where).parent / name for where in sorted(words) if "libc.so" in where for name in LIBRARIES]
    for path in [*map(Path, sorted(words)), *beside]:
        if path.exists() and not str(path).startswith(str(root)):
            target = root / str(path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(path, target)


def load(name: str, packages: Sequence[str] = ()) -> None:
    """Makes the image and hands it to the engine that `DOCKER_HOST` names."""
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory), packages)
        words = ["-c", f"ENV PATH=/{PREFIX}/bin:/usr/bin:/bin"]
        with subprocess.Popen(["tar", "-C", directory, "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(["docker", "import", *words, "-", name], stdin=tar.stdout, check=True, capture_output=True)


if __name__ == "__main__":
    os.environ.setdefault("DOCKER_HOST", "unix:///var/run/docker.sock")
    load(sys.argv[1], sys.argv[2:])
