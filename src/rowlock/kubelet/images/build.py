"""`rowlock build -t NAME DIR`: a process image from a Dockerfile, without Docker.

COPY fills `rootfs`; RUN steps run on this machine, in the image's working directory, with a virtual environment first in
PATH that sees all packages of the environment rowlock runs in, so `pip install torch` is quick where torch is there.
Each build has its own directory and is named in `image.json` only when every step has succeeded.
"""

import ensurepip
import glob
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock.kubelet.images import dockerfile
from rowlock.kubelet.images.base_environment import base_environment
from rowlock.kubelet.images.dockerfile import BadDockerfile, Instruction
from rowlock.kubelet.images.engine_build import BuildFailed, BuildRequest
from rowlock.kubelet.images.images import Image, Images, interpreter_path, map_path, normalise

_ABSOLUTE_PATH = re.compile(r"(?<![\w./:@-])/[\w.@+-]+(?:/[\w.@+-]+)*/?")
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_SHEBANG = re.compile(rb"#!(\S*python[\d.]*)\s*\n")
_PIP_SCRIPT = "import sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
_BASE_SITE_SCRIPT = """import os, site
for path in {paths!r}:
    if os.path.isdir(path):
        site.addsitedir(path)
"""


@dataclass(slots=True)
class Build:
    """One build: a directory that fills up, and what the image will say."""

    images: Images
    context: Path
    directory: Path
    emit_line: Callable[[str], None]
    env: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    workdir: str = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    args: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return str(self.directory / "rootfs")

    def host_path(self, path: str) -> Path:
        """A path of the image on this machine; relative ones start in the working directory."""
        inside = os.path.normpath(os.path.join("/", self.workdir, path))
        return Path(self.root + inside)

    def run(self, steps: list[Instruction]) -> Image:
        """All steps. Raises BuildFailed or BadDockerfile; leaves nothing half done behind."""
        Path(self.root).mkdir(parents=True)
        for number, step in enumerate(steps, 1):
            self.emit_line(f"Step {number}/{len(steps)} : {step}")
            if step.name in dockerfile.IGNORED_INSTRUCTIONS:
                self.emit_line(f" ---> {step.name} has no effect on a process")
            else:
                getattr(self, f"_{step.name.lower()}")(step)
        bins = [
            p for p in (f"{self.root}/usr/local/bin", f"{self.root}/usr/bin", f"{self.root}/bin") if os.path.isdir(p)
        ]
        workdir = str(self.host_path("."))
        entry, command = self._map_words(self.entrypoint), self._map_words(self.command)
        return Image("", False, self.root, (*self.path, *bins), self.env, entry, command, workdir)

    def _map_words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Exec words map by themselves when they run; text for a shell is mapped here."""
        if words[: len(self.shell)] == self.shell:
            return (*self.shell, *(self._map_text(w) for w in words[len(self.shell) :]))
        return words

    def _map_text(self, text: str) -> str:
        return _ABSOLUTE_PATH.sub(lambda m: map_path(m[0], self.root), text)

    # ------------------------------------------------------------ steps, by name

    def _from(self, step: Instruction) -> None:
        name = step.words[0]
        base = None if name == "scratch" else self.images.find(name)
        self._make_venv(base if isinstance(base, Image) and base.root else None)
        if not isinstance(base, Image) or not base.root:
            self.emit_line(f" ---> {name} is not pulled: the environment rowlock runs in ({sys.prefix}) stands for it")
            return
        shutil.copytree(base.root, self.root, symlinks=True, dirs_exist_ok=True)
        self.env |= base.env
        self.path += [p for p in base.path if not p.startswith(base.root)]
        self.entrypoint, self.command = base.entrypoint, base.command
        self.workdir = base.workdir.removeprefix(base.root) or "/"
        self.emit_line(f" ---> {base.id}")

    def _make_venv(self, base: Image | None) -> None:
        """A virtual environment that sees what this interpreter sees (and what the base image had installed)."""
        venv_directory = self.directory / "venv"
        venv.EnvBuilder(with_pip=False, symlinks=True).create(venv_directory)
        self.path.insert(0, str(venv_directory / "bin"))
        site_paths = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
        if base is not None:
            site_paths[:0] = [p for b in base.path for p in glob.glob(f"{Path(b).parent}/lib/python3*/site-packages")]
        site_packages = min(venv_directory.glob("lib/python3*/site-packages"))
        (site_packages / "_rowlock_base.py").write_text(_BASE_SITE_SCRIPT.format(paths=site_paths))
        (site_packages / "_rowlock_base.pth").write_text("import _rowlock_base\n")
        for script in Path(interpreter_path()).iterdir():
            _adopt_script(script, venv_directory / "bin")

    def _run(self, step: Instruction) -> None:
        if re.search(r"\bpip3?\b", step.text):
            self._ensure_pip()
        words = list(step.words) or [*self.shell, self._map_text(step.text)]
        working_directory = self.host_path(".")
        working_directory.mkdir(parents=True, exist_ok=True)
        with subprocess.Popen(
            [map_path(w, self.root) for w in words],
            cwd=working_directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                self.emit_line(line.rstrip("\n"))
        if code := process.wait():
            raise BuildFailed(f"line {step.line}: `{step}` ended with exit code {code}; the output above says why")

    def _environment(self) -> dict[str, str]:
        first = ":".join([*self.path, interpreter_path()])
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "VIRTUAL_ENV": ""}
        return {
            **os.environ,
            **base_environment(os.environ, host=True, first=first),
            **quiet,
            **self.args,
            **self.env,
        }

    def _ensure_pip(self) -> None:
        """pip of the environment rowlock runs in, else the one that comes with Python."""
        bin_directory = self.directory / "venv" / "bin"
        python = str(bin_directory / "python")
        if (bin_directory / "pip").exists():
            return
        if subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode != 0:
            site_packages = min((self.directory / "venv").glob("lib/python3*/site-packages"))
            (site_packages / "_rowlock_pip.pth").write_text(f"{self._unpack_pip()}\n")
        for name in ("pip", "pip3"):
            (bin_directory / name).write_text(f"#!{python}\n{_PIP_SCRIPT}")
            (bin_directory / name).chmod(0o755)

    def _unpack_pip(self) -> Path:
        """The pip that comes with Python, unpacked once for all images (installing it takes seconds)."""
        wheels = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
        if not wheels:
            raise BuildFailed("there is no pip in this Python: install it into the environment rowlock runs in")
        target = self.directory.parents[1] / f".{wheels[-1].stem}"
        if not target.exists():
            fresh = Path(tempfile.mkdtemp(dir=target.parent))
            shutil.unpack_archive(wheels[-1], fresh, "zip")
            fresh.chmod(0o755)
            fresh.rename(target)
        return target

    def _workdir(self, step: Instruction) -> None:
        self.workdir = os.path.normpath(os.path.join("/", self.workdir, step.words[0]))
        self._verify_inside(step, self.host_path("."), self.root)
        self.host_path(".").mkdir(parents=True, exist_ok=True)

    def _copy(self, step: Instruction) -> None:
        *sources, target = step.words
        files = [path for source in sources for path in self._sources(step, source)]
        destination = self.host_path(target)
        self._verify_inside(step, destination, self.root)
        if target.endswith("/") or target in (".", "..") or len(files) > 1 or destination.is_dir():
            destination.mkdir(parents=True, exist_ok=True)
        try:
            for source in files:
                self._copy_one(step, source, destination)
        except (OSError, tarfile.TarError) as error:  # shutil.Error is one
            raise BuildFailed(f"line {step.line}: {step.name} of {' '.join(sources)} failed: {error}") from None

    _add = _copy

    def _sources(self, step: Instruction, source: str) -> list[Path]:
        if "://" in source:
            raise BadDockerfile(f"line {step.line}: ADD does not fetch {source}; use RUN with the host's tools")
        inside = os.path.normpath(os.path.join("/", source))[1:]
        matches = sorted(glob.glob(str(self.context / inside))) if inside else [str(self.context)]
        rules = self._dockerignore_rules()
        included = [Path(f) for f in matches if not dockerfile.is_excluded(os.path.relpath(f, self.context), rules)]
        for path in included:
            self._verify_inside(step, path, str(self.context))
        if not included:
            raise BuildFailed(f"line {step.line}: {step.name}: {source} is not in {self.context} (or is ignored)")
        return included

    def _verify_inside(self, step: Instruction, path: Path, root: str) -> None:
        """Raises BuildFailed when a link on the way leads out of the build context or out of the image."""
        real, base = os.path.realpath(path), os.path.realpath(root)
        if real != base and not real.startswith(base.rstrip("/") + "/"):
            where = "the image" if root == self.root else "the build context"
            raise BuildFailed(
                f"line {step.line}: {step.name}: {path} is outside of {where}: a link leads to {real};"
                " name the place itself, or remove the link"
            )

    def _dockerignore_rules(self) -> list[tuple[bool, re.Pattern[str]]]:
        path = self.context / ".dockerignore"
        return dockerfile.parse_dockerignore(path.read_text()) if path.exists() else []

    def _copy_one(self, step: Instruction, source: Path, target: Path) -> None:
        if step.name == "ADD" and source.name.endswith(_ARCHIVES) and source.is_file():
            target.mkdir(parents=True, exist_ok=True)
            shutil.unpack_archive(source, target, filter="data")
            return
        if source.is_dir():
            rules = self._dockerignore_rules()

            def excluded_names(directory: str, names: list[str]) -> list[str]:
                self._verify_inside(step, target / os.path.relpath(directory, source), self.root)
                relative = os.path.relpath(directory, self.context)
                return [n for n in names if dockerfile.is_excluded(os.path.normpath(f"{relative}/{n}"), rules)]

            shutil.copytree(
                source, target, symlinks=True, dirs_exist_ok=True, ignore=excluded_names, copy_function=_replace_file
            )
            return
        self._verify_inside(step, target.parent, self.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_path = _replace_file(source, target / source.name if target.is_dir() else target)
        if mode := step.flags.get("chmod"):
            os.chmod(copy_path, int(mode, 8))

    def _env(self, step: Instruction) -> None:
        self.env |= dict(word.split("=", 1) for word in step.words)

    def _arg(self, step: Instruction) -> None:
        self.args[step.words[0]] = step.words[1]

    def _shell(self, step: Instruction) -> None:
        self.shell = step.words

    def _cmd(self, step: Instruction) -> None:
        self.command = (*self.shell, step.text) if step.shell else step.words

    def _entrypoint(self, step: Instruction) -> None:
        self.entrypoint = (*self.shell, step.text) if step.shell else step.words
        self.command = ()


def _replace_file(source: str | Path, target: str | Path) -> str:
    """Copies a file and what is known of it; a link in its place goes, and is not written through."""
    if os.path.islink(target):
        os.unlink(target)
    return str(shutil.copy2(source, target))


def _adopt_script(script: Path, target: Path) -> None:
    """A console script of this environment (torchrun, …), run by the image's interpreter so that it sees its packages."""
    if not script.is_file() or script.is_symlink() or script.name.startswith(("python", "pip", "activate")):
        return
    content = script.read_bytes()[: 1 << 16]
    if shebang := _SHEBANG.match(content):
        script_copy = target / script.name
        script_copy.write_bytes(f"#!{target}/python\n".encode() + content[shebang.end() :])
        script_copy.chmod(stat.S_IMODE(script.stat().st_mode))


def build(images: Images, request: BuildRequest, emit_line: Callable[[str], None]) -> Image:
    """Builds and names the image. Raises BuildFailed, BadDockerfile or ValueError (the name) with a sentence."""
    name = normalise(request.name)
    try:
        steps = dockerfile.parse(request.file.read_text(), request.args)
    except FileNotFoundError:
        raise BuildFailed(f"no Dockerfile at {request.file}; -f FILE names another one") from None
    home = images.directory_of(name)
    home.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="build-", dir=home))
    directory.chmod(0o755)
    older_builds = [p for p in home.glob("build-*") if p != directory]
    try:
        result = Build(images, request.context, directory, emit_line).run(steps)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    facts: dict[str, Any] = {"created": time.time(), "source": str(request.context)}
    image = Image(
        name, False, result.root, result.path, result.env, result.entrypoint, result.command, result.workdir, **facts
    )
    images.add(image)
    for old in sorted(older_builds, key=lambda p: p.stat().st_mtime)[:-1]:  # the last one may still be running
        shutil.rmtree(old, ignore_errors=True)
    return image
