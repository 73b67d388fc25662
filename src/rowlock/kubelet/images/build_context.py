"""The build context: which of its files a build sees (its ignore file), and digests of what a copy would contain."""

import glob
import hashlib
import io
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rowlock.kubelet.images.dockerfile import Instruction

DOCKERFILE_ENTRY = ".rowlock.Dockerfile"
"""The Dockerfile's name in an archive of the context."""
Rules = Sequence[tuple[bool, re.Pattern[str]]]


class BuildFailed(Exception):
    """A step failed; the previous image still exists."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A request to build an image."""

    name: str
    context: Path
    file: Path
    args: dict[str, str] = field(default_factory=dict)
    target: str = ""
    """The stage to build, by name or number; "" = the last."""
    is_anew: bool = False
    """Whether every step is done again, ignoring layers of earlier builds."""
    is_pulled: bool = False
    """Whether images of FROM are requested from their registry even if they exist here."""


class BuildContext:
    """A directory, without the files that an ignore file excludes (`find_ignore_file`)."""

    def __init__(self, directory: Path, ignore_file: Path | None) -> None:
        self.directory, self._ignore_file = directory, ignore_file
        self.rules: Rules = parse_dockerignore(ignore_file.read_text()) if ignore_file else []

    def matches(self, step: Instruction, pattern: str) -> list[str]:
        """Paths of the context that a COPY pattern matches, relative to it. Raises BuildFailed."""
        inside = os.path.normpath(os.path.join("/", pattern))[1:]
        found = sorted(glob.glob(inside, root_dir=self.directory)) if inside else ["."]
        included = [path for path in found if path == "." or not is_excluded(path, self.rules)]
        if not included:
            reason = explain_absence(pattern, found, self.directory, self._ignore_file)
            raise BuildFailed(f"line {step.line}: {step.name}: {reason}")
        return included

    def digest(self, step: Instruction, source: str) -> list[Any]:
        """Name, mode and content hash of a file of the context, or of all files in a directory. Raises BuildFailed."""
        place = self.directory / source.lstrip("/")
        try:
            real = place.resolve(strict=True)
            if not real.is_relative_to(self.directory.resolve()):
                raise BuildFailed(
                    f"line {step.line}: {step.name}: {place} is outside of the build context: a link leads to {real};"
                    " name the place itself, or remove the link"
                )
            return [source, *(list(row) for row in _facts_of(real, os.path.normpath(source), self.rules))]
        except OSError as error:
            raise BuildFailed(f"line {step.line}: {step.name}: {error.filename}: {error.strerror}") from None

    def copy(self, source: str, target: Path) -> None:
        """Copies a file or directory of the context to `target`, for a step that may write there."""
        place = self.directory / source
        if place.is_file():
            shutil.copy2(place, target)
            return

        def ignore(directory: str, names: list[str]) -> list[str]:
            inside = os.path.relpath(directory, self.directory)
            return [name for name in names if is_excluded(os.path.normpath(f"{inside}/{name}"), self.rules)]

        shutil.copytree(place, target, symlinks=True, ignore=ignore)

    def write_archive(self, output: IO[bytes], dockerfile: Path) -> None:
        """Writes it as a tar for Docker's older builder, with the Dockerfile hidden from COPY as `DOCKERFILE_ENTRY`. Raises OSError."""
        with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for name, content in (
                (DOCKERFILE_ENTRY, dockerfile.read_bytes()),
                (".dockerignore", f"{DOCKERFILE_ENTRY}\n.dockerignore\n".encode()),
            ):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
            for directory, directories, files in os.walk(self.directory):
                directories.sort()
                for file in sorted([*directories, *files]):
                    path = os.path.relpath(f"{directory}/{file}", self.directory)
                    if not is_excluded(path, self.rules) and path != ".dockerignore":
                        tar.add(self.directory / path, path, recursive=False, filter=_owned_by_root)


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The entry with COPY's owner, root; None for sockets and pipes, which are left out."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry if entry.isreg() or entry.isdir() or entry.issym() or entry.islnk() else None


def _facts_of(place: Path, name: str, rules: Sequence[tuple[bool, Any]]) -> Iterator[tuple[Any, ...]]:
    """Name, mode and content of a file, or of all files below a directory."""
    if place.is_file():
        yield name, place.stat().st_mode, _sha256(place)
        return
    for directory, directories, files in os.walk(place):
        directories.sort()
        inside = os.path.normpath(f"{name}/{os.path.relpath(directory, place)}")
        yield inside, os.stat(directory).st_mode
        for file in sorted([*files, *(d for d in directories if os.path.islink(f"{directory}/{d}"))]):
            path = Path(directory, file)
            if is_excluded(os.path.normpath(f"{inside}/{file}"), rules):
                continue
            if path.is_symlink():
                yield f"{inside}/{file}", os.readlink(path)
            elif path.is_file():
                yield f"{inside}/{file}", path.stat().st_mode, _sha256(path)
            else:
                yield f"{inside}/{file}", path.lstat().st_mode  # a pipe or socket, which the step refuses


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_ignore_file(context: Path, dockerfile: Path) -> Path | None:
    """The ignore file of a build; None when there is none.

    One beside the Dockerfile that is named after it comes first, and the context's own is then not read
    (https://docs.docker.com/build/concepts/context/#filename-and-location)."""
    candidates = (dockerfile.with_name(f"{dockerfile.name}.dockerignore"), context / ".dockerignore")
    return next((path for path in candidates if path.exists()), None)


def explain_absence(pattern: str, found: Sequence[str], context: Path, ignore_file: Path | None) -> str:
    """Why a COPY of `pattern` finds nothing; `found` are the paths of the context that it matches, all left out."""
    if not found or ignore_file is None:
        return f"{pattern} is not in {context}"
    number, rule = 0, ""
    for line, text in enumerate(ignore_file.read_text().splitlines(), 1):
        if any(excludes and is_excluded(found[0], [(excludes, rule_)]) for excludes, rule_ in parse_dockerignore(text)):
            number, rule = line, text.strip()
    return (
        f"{pattern} is left out of the build by line {number} of {ignore_file}: {rule};"
        f" remove that line, or add !{found[0]} below it"
    )


def parse_dockerignore(patterns: str) -> list[tuple[bool, re.Pattern[str]]]:
    """A .dockerignore: (excludes?, pattern) in order; the last that matches a path decides."""
    rules = []
    for raw in patterns.splitlines():
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        excludes = not text.startswith("!")
        rules.append((excludes, _glob(text.lstrip("!").strip().strip("/"))))
    return rules


def _glob(text: str) -> re.Pattern[str]:
    text = re.sub(r"^(?:\./)+", "", text)
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|[^*?\[]+|\[", text)
    sets = {
        token: f"[{token[1:-1].replace(chr(92), chr(92) * 2)}]"
        for token in tokens
        if len(token) > 2 and token[0] == "["
    }
    return re.compile("".join(parts.get(t) or sets.get(t) or re.escape(t) for t in tokens) + r"(?:/.*)?$")


def is_excluded(path: str, rules: Sequence[tuple[bool, re.Pattern[str]]]) -> bool:
    """Whether a path of the context is excluded."""
    result = False
    for excludes, pattern in rules:
        if pattern.match(path):
            result = excludes
    return result
