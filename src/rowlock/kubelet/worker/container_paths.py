"""Maps paths that a pod names to this machine: a volume's path, a file of the image, or a path of the machine itself."""

import os
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from rowlock.kubelet.images import images


@dataclass(frozen=True, slots=True)
class ImageCopy:
    """Rewrites paths inside `image` to the same paths inside `copy`. Every start gets its own copy of the image's files:
    programs must not change the image, and a restart begins with fresh files, as a container's does."""

    image: str
    """The directory of the image's files; "" = it has none."""
    copy: str

    def __call__(self, text: str) -> str:
        if not self.image or self.image not in text:
            return text
        parts = text.split(":")  # PATH and similar lists
        return ":".join(self.copy + p[len(self.image) :] if self._is_in_image(p) else p for p in parts)

    def original_path(self, path: str) -> str:
        """The path where a file of the copy can be read before the copy is made."""
        return self.image + path[len(self.copy) :] if self.image and path.startswith(self.copy + "/") else path

    def contains(self, path: str) -> bool:
        """Whether the path lies in the run's copy."""
        return bool(self.image) and (path == self.copy or path.startswith(self.copy + "/"))

    def _is_in_image(self, path: str) -> bool:
        return path == self.image or path.startswith(self.image + "/")


@dataclass(frozen=True, slots=True)
class ContainerPaths:
    """The paths of one container, before it runs."""

    image_copy: ImageCopy
    volume_paths: tuple[str, ...]
    """The mount paths of its volumes, as `outermost` returns them."""
    layers: tuple[str, ...] = ()
    """The layers of the container's own root file system; () = the machine's root, beside a copy of the image's files."""

    def readable_path(self, path: str) -> str:
        """The path where the server can read a file of the container before it runs."""
        if not self.layers:
            return self.image_copy.original_path(path)
        return next((found for layer in self.layers if os.path.isfile(found := layer + path)), path)

    def map_path(self, text: str) -> str:
        """Maps `text` if it is an absolute path: a volume's stays, one that the image knows leads to its copy, others stay."""
        if self._is_in_volume(text):
            return text
        return self.image_copy(images.map_path(text, self.image_copy.image))

    def _is_in_volume(self, text: str) -> bool:
        """No entry of `volume_paths` is a prefix of another, so only the last that does not sort after the text can match. Bisecting
        matters: a pod may have thousands of volumes and a hundred thousand arguments."""
        place = bisect_right(self.volume_paths, text + "/")
        return place > 0 and (text + "/").startswith(self.volume_paths[place - 1])


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """These paths with a slash at the end, without those below another one, sorted."""
    found = list[str]()
    for path in sorted(path.rstrip("/") + "/" for path in paths):
        if not found or not path.startswith(found[-1]):
            found.append(path)
    return tuple(found)
