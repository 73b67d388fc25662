"""A build where containers cannot have root file systems of their own: the image is a directory beside the machine's files.

COPY fills `rootfs`; RUN steps run on this machine, in the image's working directory, with a virtual environment first in PATH that
sees all packages of the environment rowlock runs in, so `pip install torch` is fast if torch is installed there.
Each build has its own directory and is named in `image.json` only after every step has succeeded.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rowlock.kubelet.files import beneath
from rowlock.kubelet.images import dockerfile, python_base
from rowlock.kubelet.images.base_environment import base_environment, interpreter_path, site_paths
from rowlock.kubelet.images.build_context import BuildFailed, explain_absence, is_excluded, parse_dockerignore
from rowlock.kubelet.images.dockerfile import BadDockerfile, Instruction
from rowlock.kubelet.images.images import Image, Images, map_path

_ABSOLUTE_PATH = re.compile(r"(?<![\w./:@-])/[\w.@+-]+(?:/[\w.@+-]+)*/?")
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


@dataclass(slots=True)
class Build:
    """One build: its directory, and what is known of the image so far."""

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
    has_own_command: bool = False
    ignore_file: Path | None = None
    """The file that says which files of the context are ignored."""
    args: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return str(self.directory / "rootfs")

    def host_path(self, path: str) -> Path:
        """A path of the image on this machine; relative ones start in the working directory."""
        inside = os.path.normpath(os.path.join("/", self.workdir, path))
        return Path(self.root + inside)

    def run(self, steps: Sequence[Instruction]) -> Image:
        """Runs all steps. Raises BuildFailed or BadDockerfile; the caller then removes the directory."""
        Path(self.root).mkdir(parents=True)
        for number, step in enumerate(steps, 1):
            self.emit_line(f"Step {number}/{len(steps)} : {step}")
            if step.name in dockerfile.RECORDED_INSTRUCTIONS or step.name in ("USER", "STOPSIGNAL", "VOLUME"):
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
        """Maps paths in a shell's text. Words of the exec form are mapped when they run."""
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
        """Makes a virtual environment that sees this interpreter's packages and those of the base image."""
        self.path.insert(0, str(self.directory / "venv" / "bin"))
        packages = site_paths()
        if base is not None:
            packages[:0] = [p for b in base.path for p in glob.glob(f"{Path(b).parent}/lib/python3*/site-packages")]
        python_base.make_environment(self.directory / "venv", packages)

    def _run(self, step: Instruction) -> None:
        if re.search(r"\bpip3?\b", step.text):
            python_base.ensure_pip(self.directory / "venv", self.directory.parents[1])
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
        included = [Path(f) for f in matches if not is_excluded(os.path.relpath(f, self.context), rules)]
        for path in included:
            self._verify_inside(step, path, str(self.context))
        if not included:
            found = [os.path.relpath(path, self.context) for path in matches]
            reason = explain_absence(source, found, self.context, self.ignore_file)
            raise BuildFailed(f"line {step.line}: {step.name}: {reason}")
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
        return parse_dockerignore(self.ignore_file.read_text()) if self.ignore_file else []

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
                return [n for n in names if is_excluded(os.path.normpath(f"{relative}/{n}"), rules)]

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
        self.args |= dict(word.split("=", 1) for word in step.words if "=" in word)

    def _shell(self, step: Instruction) -> None:
        self.shell = step.words

    def _cmd(self, step: Instruction) -> None:
        self.command = (*self.shell, step.text) if step.shell else step.words
        self.has_own_command = True

    def _entrypoint(self, step: Instruction) -> None:
        self.entrypoint = (*self.shell, step.text) if step.shell else step.words
        if not self.has_own_command:  # else it is the base's
            self.command = ()


def _replace_file(source: str | Path, target: str | Path) -> str:
    """Copies a file and its metadata; a link in its place is removed, not written through."""
    if os.path.islink(target):
        os.unlink(target)
    return str(shutil.copy2(source, target))


def build(
    images: Images,
    name: str,
    context: Path,
    steps: Sequence[Instruction],
    emit_line: Callable[[str], None],
    *,
    ignore_file: Path | None,
) -> Image:
    """Builds the image in a directory of its own. Raises BuildFailed, BadDockerfile or NoPip with a sentence."""
    home = images.directory_of(name)
    home.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="build-", dir=home))
    directory.chmod(0o755)
    try:
        return Build(images, context, directory, emit_line, ignore_file=ignore_file).run(steps)
    except BaseException:
        beneath.remove_path(str(directory))
        raise


def remove_older_builds(images: Images, image: Image) -> None:
    """Removes all builds of the image's name except its own and the one before it, which may still be running."""
    older = [p for p in images.directory_of(image.name).glob("build-*") if not image.root.startswith(f"{p}/")]
    for old in sorted(older, key=lambda p: p.stat().st_mtime)[: None if image.layers else -1]:
        beneath.remove_path(str(old))
