"""The image that stands for the programs of a machine, `rowlock.dev/host`: only rowlock's own nodes know it.

On a real cluster a kubelet would pull that name from the internet and run whatever is there, so a job that names it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rowlock.errors import BadRequest, Cause
from rowlock.objects import Object
from rowlock.submit_fields import HOST_NAMES
from rowlock.workloads.inventory.nodes import is_rowlock_node

_CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")
_REGISTRIES = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")


def host_image_cause(obj: Object, nodes: Iterable[Object]) -> Cause | None:
    """Why this job (or another object with pod templates) cannot run on a cluster of these nodes: it names the image of a machine's
    programs, and no node is one of rowlock's. None if it can."""
    image = next(filter(is_host_image, _images(obj.get("spec"))), None)
    if image is None or any(map(is_rowlock_node, nodes)):
        return None
    message = (
        f"the image {image!r} means the programs of one machine, and nodes of this cluster do not have them: their kubelets"
        " would pull whatever has that name on the internet. Name an image that holds the program (`--image NAME`, or `image` of a request)"
    )
    return Cause("unsupported", message, "spec.image")


def require_images(obj: Object, nodes: Iterable[Object]) -> None:
    """Raises BadRequest where `host_image_cause` finds a cause."""
    if cause := host_image_cause(obj, nodes):
        raise BadRequest(f"{cause.field}: {cause.message}", causes=[cause])


def is_host_image(reference: str) -> bool:
    """Whether a node of rowlock takes this name, with any tag, for its machine's own programs."""
    name = reference.strip().lstrip("/").lower()
    for registry in _REGISTRIES:
        name = name.removeprefix(registry)
    name = name.removeprefix("library/")
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0] in HOST_NAMES


def _images(root: Any) -> Iterator[str]:
    """The image of each container below a value, and of a TrainJob's trainer. However deep it is: a manifest may be hostile."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            owners = [value.get("trainer")]
            for field in _CONTAINER_FIELDS:
                owners += value[field] if isinstance(value.get(field), list) else []
            images = (one.get("image") for one in owners if isinstance(one, dict))
            yield from (image for image in images if isinstance(image, str))
        if isinstance(value, (dict, list)):
            waiting += value.values() if isinstance(value, dict) else value
