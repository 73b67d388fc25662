"""A base image for an engine that cannot pull one: this machine's own Debian, as far as its essential packages go, and its Python.

What `debootstrap` would fetch is taken from where it is installed: files of the packages by dpkg's own lists, and dpkg's
database with these packages alone, so that `apt-get` and `dpkg` work.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.containers import base

BASE_PATH = "/opt/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LEFT_OUT = tuple(f"/usr/share/{name}/" for name in ("doc", "man", "locale", "info", "i18n", "zoneinfo"))
"""What no program needs."""
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nshadow:x:42:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
    "etc/gshadow": "root:*::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
}


def make(root: Path) -> None:
    """Fills `root`. Raises OSError or CalledProcessError where this machine is no Debian."""
    packages = essential_packages()
    names = subprocess.run(["dpkg-query", "-L", *packages], capture_output=True, text=True, check=True).stdout
    for name in sorted({line for line in names.splitlines() if line.startswith("/") and line != "/."}):
        if not name.startswith(_LEFT_OUT):
            _copy(Path(name), root)
    for link in ("bin", "sbin", "lib", "lib64"):
        if not (root / link).exists():
            (root / link).symlink_to(f"usr/{link}")
    for directory in (
        "tmp",
        "proc",
        "sys",
        "dev",
        "root",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
    ):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name, text in _ACCOUNTS.items():
        (root / name).write_text(text)
    _write_database(root, packages)
    _copy_python(root)
    subprocess.run(["ldconfig", "-r", str(root)], check=True, capture_output=True)


def essential_packages() -> list[str]:
    """What Debian's smallest system has, and apt, with all that these need."""
    query = [
        "dpkg-query",
        "-W",
        "-f",
        "${binary:Package}\t${Package}\t${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\n",
    ]
    rows = [
        line.split("\t")
        for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    by_name = {row[1]: row for row in rows}
    waiting = [row[1] for row in rows if row[2] == "yes" or row[3] == "required"] + [
        "apt",
        "libstdc++6",
        "zlib1g",
        "libffi8",
    ]
    found: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name not in by_name or name in found:
            continue  # one of several that would do
        found[name] = by_name[name][0]
        waiting += re.findall(r"(?:^|[,|])\s*([a-z0-9.+-]+)", by_name[name][4])
    return sorted(found.values())


def _copy(path: Path, root: Path) -> None:
    target = root / str(path.parent.resolve() / path.name).lstrip("/")
    if path.is_symlink() and not target.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path.readlink())
    elif path.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif path.is_file() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _write_database(root: Path, packages: list[str]) -> None:
    """dpkg's, with these packages alone."""
    names = {package.partition(":")[0] for package in packages}
    entries = Path("/var/lib/dpkg/status").read_text().split("\n\n")
    own = [entry for entry in entries if (match := re.match(r"Package: (\S+)", entry.lstrip())) and match[1] in names]
    database = root / "var/lib/dpkg"
    for directory in ("info", "updates", "triggers", "alternatives"):
        (database / directory).mkdir(parents=True, exist_ok=True)
    (database / "status").write_text("\n\n".join(own) + "\n\n")
    for package in packages:
        for path in Path("/var/lib/dpkg/info").glob(f"{package}.*"):
            shutil.copy2(path, database / "info")


def _copy_python(root: Path) -> None:
    """The interpreter that runs this, with pip, at /opt/python, and what it links with."""
    shutil.copytree(
        sys.base_prefix, root / base.PREFIX, symlinks=True, ignore=shutil.ignore_patterns(*base.LEFT_OUT), dirs_exist_ok=True
    )  # fmt: skip
    site = root / base.PREFIX / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    base.copy_package("pip", site)
    for script in ("pip", "pip3"):
        path = root / base.PREFIX / "bin" / script
        path.unlink(missing_ok=True)
        path.write_text(
            f"#!/{base.PREFIX}/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
        )
        path.chmod(0o755)
    native = [p for p in (root / base.PREFIX).rglob("*.so*") if p.is_file()]
    base.copy_libraries(root, [Path(sys.executable).resolve(), *native])
