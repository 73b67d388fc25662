"""What is around a container's program, whoever starts it: variables, directory, user, mounts, root file system. Pure."""

import os
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from rowlock.kubelet.images import images
from rowlock.kubelet.mounts.rootfs import RootfsSpec
from rowlock.kubelet.worker import environment
from rowlock.kubelet.worker.security_context import EffectiveSecurityContext


@dataclass(frozen=True, slots=True)
class ImageCopy:
    """Every start gets its own copy of the image's files: what a program writes there must not change the image, and
    a restart begins afresh, as a container's does. Rewrites paths inside `find_image` to the same inside `copy`."""

    image: str
    copy: str

    def __call__(self, text: str) -> str:
        if not self.image or self.image not in text:
            return text
        parts = text.split(":")  # PATH and its like
        return ":".join(self.copy + p[len(self.image) :] if self._is_in_image(p) else p for p in parts)

    def original_path(self, path: str) -> str:
        """Where a file of the copy can be read before there is a copy."""
        return self.image + path[len(self.copy) :] if self.image and path.startswith(self.copy + "/") else path

    def _is_in_image(self, path: str) -> bool:
        return path == self.image or path.startswith(self.image + "/")


@dataclass(slots=True)
class RunContainerOptions:
    """What is around a container's program, whoever starts it; `expand_word` and `map_path` say what a text of the pod means here."""

    env: dict[str, str]
    cwd: str
    image_copy: ImageCopy
    security_context: EffectiveSecurityContext
    mount_targets: tuple[str, ...]
    mounts: list[dict[str, Any]]
    memory_volumes: list[dict[str, Any]] = dataclass_field(default_factory=list)
    root: RootfsSpec | None = None
    """Its own root file system; None = the machine's, beside a copy of the image's files."""

    def readable_path(self, path: str) -> str:
        """Where the server can read a file of the container before it runs."""
        if self.root is None:
            return self.image_copy.original_path(path)
        return next((found for layer in self.root["layers"] if os.path.isfile(found := layer + path)), path)

    def expand_word(self, text: str) -> str:
        """A word of a command line."""
        return self.map_path(environment.expand(text, self.env))

    def map_path(self, text: str) -> str:
        """A path, if it is one: of a volume, of the image's files, else of this machine."""
        if any(text == t or text.startswith(t + "/") for t in self.mount_targets):
            return text
        return self.image_copy(images.map_path(text, self.image_copy.image))
