"""Images as programs: what an image name means to a node, with or without a container engine.

An image is `images/<mangled name>/image.json` (+ `rootfs/`, `venv/` when `rowlock build` made it): directory,
environment, entrypoint, command. `--host` images stand for the machine itself: the pod gives the command. A name that is
not in the table is refused with the command that adds it; nothing is guessed. `rowlock.dev/host` always is the host.
"""

import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rowlock.kubelet.files import beneath
from rowlock.kubelet.pod.facts import Problem
from rowlock.kubelet.pod.spec import ContainerSpec
from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.fact_files import write_fact
from rowlock.objects import is_digits
from rowlock.submit_fields import HOST_NAMES

KUBECTL_DELIVERY = "ghcr.io/kubeflow/training-v1/kubectl-delivery"
"""The operator's init image for an MPIJob's launcher; `kubectl_delivery.py` stands in for it."""
INITIALIZERS = {f"ghcr.io/kubeflow/trainer/{what}-initializer": what for what in ("dataset", "model")}
"""Images with which Trainer's runtimes fetch data and models; `kubelet/initializers/` stands in for them."""
OWN_PREFIX = "rowlock.dev"
"""Prefix of rowlock's own images in an engine."""
_REGISTRIES = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"(?:[a-z0-9.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-f]{32,}")


@dataclass(frozen=True, slots=True)
class Image:
    """How to run an image. Paths are absolute; `root` is the directory of the image's `/` ("" = this machine's)."""

    name: str
    host: bool = False
    root: str = ""
    path: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workdir: str = ""
    created: float = 0.0
    source: str = ""
    engine: str = ""
    """The image's id in the container engine that has it; "" = it runs as a process."""
    user: str = ""
    stop_signal: str = ""
    layers: tuple[str, ...] = ()
    """The layers of a root file system of its own: directories, the uppermost first."""
    python: str = ""
    """The directory of the Python environment below its layers."""
    account: tuple[Any, ...] = ()
    """The user of its programs: name, uid, gid and home; () = as the pod's security context says."""
    triggers: tuple[str, ...] = ()
    """Instructions with which a build on it begins (ONBUILD)."""
    replaces_packages: bool = False
    """Whether it has its own version of a package that the environment below has, too."""

    @property
    def id(self) -> str:
        """The name and a digest, as in a registry; different for every build."""
        if self.engine:
            return self.engine
        return f"rowlock://{self.name}@sha256:{hashlib.sha256(f'{self.name}@{self.created}'.encode()).hexdigest()}"


def normalise(reference: str) -> str:
    """Normalises an image's name: no default registry, no `library/`, lower case, a tag.

    Raises ValueError with a sentence for an invalid name."""
    text = reference.strip().lstrip("/")
    head, at, digest = text.partition("@")
    slash = head.rfind("/")
    colon = head.find(":", slash + 1)
    name, tag = (head, "latest") if colon < 0 else (head[:colon], head[colon + 1 :])
    name = name.lower()
    for registry in _REGISTRIES:
        name = name.removeprefix(registry)
    name = name.removeprefix("library/")
    digest = digest.lower()
    if not _NAME.fullmatch(name) or not _TAG.fullmatch(tag) or (at and not _DIGEST.fullmatch(digest)):
        raise ValueError(f'couldn\'t parse image name "{reference}": invalid reference format')
    return f"{name}@{digest}" if at else f"{name}:{tag}"


def mangle(name: str) -> str:
    """A normalised name as a single directory name that may occur in PATH."""
    return name.replace("/", "+").replace(":", "=")


def is_kubectl_delivery(name: str) -> bool:
    """Whether a normalised name is that of the image that gives an MPIJob's launcher its kubectl."""
    return name.rpartition(":")[0] == KUBECTL_DELIVERY


def with_stand_in(image: Image) -> Image:
    """The image; if it stands for the machine and is one of Trainer's initializers, with rowlock's program as its entrypoint."""
    what = INITIALIZERS.get(image.name.rpartition(":")[0], "")
    if not (image.host and what):
        return image
    return replace(image, entrypoint=(sys.executable, "-P", "-m", "rowlock.kubelet.initializers.initializer", what))


class Images:
    """The table of images, in a directory; an entry is read again when its file has changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._cache: dict[str, tuple[int, Image]] = {}
        self.engine_images: dict[str, Image | Problem] = {}
        """The engine's images as last seen, or why it could not be asked; see `container_runtime.py`."""

    def directory_of(self, name: str) -> Path:
        return self.directory / mangle(name)

    def find(self, reference: str) -> Image | Problem:
        """The image, or the problem that keeps its containers from starting."""
        try:
            name = normalise(reference)
        except ValueError as error:
            return Problem("InvalidImageName", f'Failed to apply default image tag "{reference}": {error}')
        if name.rpartition(":")[0] in HOST_NAMES:
            return Image(name, host=True)
        image = self._read_entry(name)
        if image is not None:
            return with_stand_in(image)
        if name in self.engine_images:
            return self.engine_images[name]
        if is_kubectl_delivery(name):
            program = (
                sys.executable,
                "-P",
                "-m",
                "rowlock.kubelet.images.kubectl_delivery",
                str(self.directory.parent),
            )
            return Image(name, entrypoint=program)
        if _has_upper_case(reference):
            sentence = "repository name must be lowercase, and no image of that name was built or added"
            return Problem(
                "InvalidImageName",
                f'Failed to apply default image tag "{reference}": {sentence}; {build_hint(reference)}',
            )
        return Problem("ErrImagePull", f'no image "{reference}" on this node: {unknown_image_hint(reference)}')

    def is_engine_image(self, reference: str) -> bool:
        """Whether a container engine runs this image."""
        return not self.is_local(reference) and normalise(reference) in self.engine_images

    def needs_pull(self, reference: str) -> bool:
        """Whether it is an image that a container engine lacks and a registry may have."""
        if self.is_local(reference) or _has_upper_case(reference):
            return False
        name = normalise(reference)
        return name not in self.engine_images and not is_kubectl_delivery(name)

    def is_local(self, reference: str) -> bool:
        """Whether no engine needs to be asked: it is the machine itself, a name in the table, or not a valid name."""
        try:
            name = normalise(reference)
        except ValueError:
            return True
        return name.rpartition(":")[0] in HOST_NAMES or self._read_entry(name) is not None

    def _read_entry(self, name: str) -> Image | None:
        path = self.directory_of(name) / "image.json"
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return None
        if name not in self._cache or self._cache[name][0] != stamp:
            self._cache[name] = (stamp, _from_json(json.loads(path.read_bytes())))
        return self._cache[name][1]

    def all(self) -> list[Image]:
        try:
            names = sorted(os.listdir(self.directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        rows = [self._read_entry(n.replace("+", "/").replace("=", ":")) for n in names]
        return [row for row in rows if row is not None]

    def add(self, image: Image) -> None:
        """Writes the entry, atomically."""
        directory = self.directory_of(image.name)
        directory.mkdir(parents=True, exist_ok=True)
        write_fact(str(directory / "image.json"), asdict(image), durable=True)

    def remove(self, reference: str) -> bool:
        """Removes an image; False when there was none. Running pods keep what they have open."""
        directory = self.directory_of(normalise(reference))
        if not (directory / "image.json").exists():
            return False
        (directory / "image.json").unlink()
        beneath.remove_path(str(directory))
        return True


def _has_upper_case(reference: str) -> bool:
    """Whether the repository part has upper case, which a container engine would refuse."""
    path, _, last = reference.partition("@")[0].rpartition("/")
    repository = f"{path}/{last.partition(':')[0]}"
    return repository != repository.lower()


def unknown_image_hint(reference: str) -> str:
    """What to do about an unknown image, with the commands."""
    return f"images are not pulled on a node without a container runtime; {build_hint(reference)}"


def build_hint(reference: str) -> str:
    """What to do about an image that a registry does not provide."""
    return (
        f"build it with `rowlock build -t {reference} DIR`, "
        f"or run its command with this machine's programs: `rowlock image add {reference} --host`"
    )


def _from_json(data: Mapping[str, Any]) -> Image:
    fields = {
        **data,
        **{k: tuple(data.get(k) or ()) for k in ("path", "entrypoint", "command", "layers", "account", "triggers")},
    }
    return Image(**fields)


def map_path(word: str, root: str) -> str:
    """Maps a word of a command line: an absolute path becomes the image's if at least as much of it exists there as on the host."""
    if not root or not word.startswith("/"):
        return word
    image_depth = _existing_depth(root, word)
    return root + word if image_depth and image_depth >= _existing_depth("", word) else word


def _existing_depth(root: str, path: str) -> int:
    """How many components of `path` exist below `root`."""
    steps = [step for step in path.split("/") if step]
    for number in range(len(steps), 0, -1):
        if os.path.lexists(f"{root}/{'/'.join(steps[:number])}"):
            return number
    return 0


def command_line(image: Image, container: ContainerSpec) -> list[str] | Problem:
    """The words to exec, by Docker's rules, unexpanded; or the problem that there are none."""
    command, args = list(container.command), list(container.args)
    if not command:
        command = list(image.entrypoint)
        args = args or list(image.command)
    if words := [*command, *args]:
        return words
    sentence = f'no command: the image "{image.name}" names none, so the pod must give `command` or `args`'
    if image.name.rpartition(":")[0] not in HOST_NAMES:
        sentence = f"{sentence}, or build the image with a CMD: `rowlock build -t {image.name} DIR`"
    return Problem("CreateContainerError", sentence)


def working_directory(image: Image, container: ContainerSpec, pod_directory: str) -> str:
    """The program's working directory: the pod's, unexpanded; else the image's, else the pod's own empty directory."""
    return container.working_dir or image.workdir or image.root or pod_directory


def list_engine_images(env: Mapping[str, str]) -> list[Image]:
    """The container engine's images, by name; [] without an engine."""
    container_engine, _ = engine_client.find_engine(env) if engine_client.has_socket(env) else (None, "")
    try:
        rows = container_engine.request("GET", "/images/json") if container_engine else []
    except engine_client.EngineError:
        return []
    names = [(tag, str(row["Id"])) for row in rows for tag in row.get("RepoTags") or ()]
    tagged = sorted(
        (normalise(tag), id_) for tag, id_ in names if tag[0] != "<" and not tag.startswith(f"{OWN_PREFIX}/")
    )
    return [Image(name, engine=f"{container_engine.name}://{id_}") for name, id_ in tagged if container_engine]


_REAL_TIME = (("SIGRTMIN", "+"), ("SIGRTMAX", "-"))
"""Signals that are named only by their distance from the first or the last of them."""


def signal_number(text: str) -> int | None:
    """The number of a STOPSIGNAL: `SIGINT`, `INT`, `2`, `SIGRTMIN+3`; None for an unknown signal."""
    if is_digits(text):
        return int(text) if 0 < int(text) < signal.NSIG else None
    name, sign, offset = re.fullmatch(r"(.*?)(?:([+-])([0-9]{1,2}))?", text.upper(), re.DOTALL).groups()  # type: ignore[union-attr]
    found = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    if not isinstance(found, signal.Signals) or (sign and (found.name, sign) not in _REAL_TIME):
        return None
    number = int(found) + int(f"{sign or ''}{offset or 0}")
    return number if 0 < number < signal.NSIG else None


def stop_signal(image: Image, wanted: str) -> int:
    """The signal that asks a container's program to end: the pod's (`wanted`), else the image's, else SIGTERM."""
    return signal_number(wanted or image.stop_signal) or int(signal.SIGTERM)


def kind_of(image: Image) -> str:
    if image.engine:
        return image.engine.partition(":")[0]
    return "host" if image.host else "built" if image.created and image.source else "added"
