"""`rowlock build -t NAME DIR`: an image from a Dockerfile, without Docker.

Where containers can have a root file system of their own, steps run in it and make layers (`layered_build.py`); elsewhere
an image is a directory beside the machine's files, and steps run on the machine (`copy_build.py`). The name refers to the new
image only after every step has succeeded.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rowlock.kubelet.images import copy_build, dockerfile, layered_build
from rowlock.kubelet.images.base_environment import STANDARD_PATH, interpreter_path
from rowlock.kubelet.images.build_context import BuildContext, BuildFailed, BuildRequest, find_ignore_file
from rowlock.kubelet.images.images import Image, Images, normalise
from rowlock.kubelet.images.layers import LayerStore, used_layers
from rowlock.kubelet.images.python_base import NoPip
from rowlock.kubelet.mounts import rootfs


def build(
    images: Images, request: BuildRequest, emit_line: Callable[[str], None], *, layered: bool | None = None
) -> Image:
    """Builds and names the image; `layered` chooses the kind of build, None = the best that this machine can do.

    Raises BuildFailed, BadDockerfile or ValueError (the name) with a sentence."""
    name = normalise(request.name)
    layered = not rootfs_problem(images.directory) if layered is None else layered
    path = layered_build.base_path(images.directory / ".python") if layered else f"{interpreter_path()}:{STANDARD_PATH}"

    def environment_of(base: str) -> Mapping[str, str]:
        image = images.find(base)
        return {"PATH": path, **image.env} if isinstance(image, Image) else {"PATH": path}

    def triggers_of(base: str) -> Sequence[str]:
        image = images.find(base)
        return image.triggers if isinstance(image, Image) else ()

    try:
        stages = dockerfile.parse(request.file.read_text(), request.args, environment_of, triggers_of)
        stages = dockerfile.stages_until(stages, request.target)
        ignore_file = find_ignore_file(request.context, request.file)
        if layered:
            context = BuildContext(request.context, ignore_file)
            builder = layered_build.LayeredBuild(images, images.directory, context, emit_line, anew=request.is_anew)
            made = builder.run(stages)
        else:
            steps = dockerfile.require_simple(stages)
            made = copy_build.build(images, name, request.context, steps, emit_line, ignore_file=ignore_file)
    except FileNotFoundError as error:
        if error.filename != str(request.file):
            raise
        raise BuildFailed(f"no Dockerfile at {request.file}; -f FILE names another one") from None
    except NoPip as error:
        raise BuildFailed(str(error)) from None
    image = replace(made, name=name, created=time.time(), source=str(request.context))
    images.add(image)
    copy_build.remove_older_builds(images, image)
    prune_layers(images)
    return image


def prune_layers(images: Images) -> None:
    """Removes layers that no image and no container uses and that no build has used for a week."""
    used = {layer for image in images.all() for layer in image.layers}
    LayerStore(images.directory).prune(used | used_layers(images.directory.parent / "pods"))


def rootfs_problem(directory: Path) -> str:
    """Why images built in `directory` cannot have root file systems of their own; "" when they can."""
    directory.mkdir(parents=True, exist_ok=True)
    return rootfs.probe_directory(str(directory))
