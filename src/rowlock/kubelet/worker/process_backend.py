"""Containers as processes of this machine: who the program is, what it sees of the file system, how it may start warm."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.kubelet.images import images
from rowlock.kubelet.images.base_environment import base_environment, interpreter_directories, interpreter_path
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.mounts.rootfs import RootfsSpec
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import ContainerSpec, shim_limits
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.volumes import checkpoints
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.warm import eligibility
from rowlock.kubelet.worker import environment, error_files
from rowlock.kubelet.worker import security_context as security
from rowlock.kubelet.worker.container_paths import ContainerPaths, ImageCopy
from rowlock.kubelet.worker.environment import CHECKPOINT_DIR_VARIABLE, SHELL_ENVIRONMENT_ANNOTATION
from rowlock.kubelet.worker.security_context import EffectiveSecurityContext
from rowlock.kubelet.worker.starting import ContainerStart, Program

MESSAGE_PATH = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class ProcessBackend:
    """Runs programs as processes, in namespaces and mounts of their own where this machine allows it."""

    node: NodeContext
    network: PodNetwork
    directories: PodDirectories
    volume_directories: VolumeDirectories
    warm_start: bool = True
    """May programs start warm?"""

    def resolve_user(self, start: ContainerStart, image: Image) -> EffectiveSecurityContext:
        """Who the program is: the pod says so, else the image."""
        of_image = security.Account(*image.account) if image.account else None
        return security.effective_security_context(start.pod, start.container, of_image=of_image)

    def base_environment(
        self, start: ContainerStart, image: Image, user: EffectiveSecurityContext, checkpoints: str
    ) -> dict[str, str]:
        """A small set of the server's own variables, and who the program is."""
        path_prefix = ":".join((*image.path, interpreter_path()))
        # what belongs to the shell that started the server is no part of another shell's environment
        has_own_shell = SHELL_ENVIRONMENT_ANNOTATION in start.pod.annotations
        env = base_environment(self.node.server_env, host=image.host and not has_own_shell, first=path_prefix)
        env |= user.environment()
        env |= {"TERM": "xterm"} if start.container.tty else {}
        return env | {CHECKPOINT_DIR_VARIABLE: self._visible_checkpoints(user, checkpoints)}

    def complete_request(self, request: ShimRequest, start: ContainerStart, program: Program) -> ShimRequest:
        """The process, its mounts and its root file system."""
        image, container, user = program.image, start.container, program.user
        image_copy = ImageCopy(image.root, str(start.directory / "rootfs"))
        paths = ContainerPaths(image_copy, tuple(mount.target for mount in program.mounts), image.layers)
        mounts = self._shim_mounts(start, program, image_copy)
        rootfs = self._root_spec(start, program) if image.layers else None
        work = self._work_directory(start.card.uid, user)
        cwd = paths.map_path(images.working_directory(image, container, work))
        env = {name: image_copy(value) for name, value in program.env.items()}
        if start.pod.owner_uid and not container.is_ephemeral and error_files.VARIABLE not in env:
            mount, variables = self._offer_error_file(start, user)
            mounts, env = [*mounts, *mount], env | variables
        argv = [paths.map_path(environment.expand(word, env)) for word in program.command]
        may_start_warm = self.warm_start and not image.replaces_packages and not request.console
        warm_start = None
        if may_start_warm and start.pod.annotations.get(eligibility.WARM_START_ANNOTATION) != "false":
            warm_start = eligibility.plan_warm_start(argv, env, cwd, paths.readable_path)
        return request._replace(
            argv=argv,
            env=env,
            cwd=cwd,
            stop_signal=images.signal_number(image.stop_signal) or signal.SIGTERM,
            network=self.network.namespace_request(start.pod, start.card.ip),
            mounts=mounts,
            memory_volumes=[
                {"path": str(self.volume_directories.volume_path(start.card.uid, v)), "size": v.limit or 0}
                for v in start.volumes
                if v.kind == "memory"
            ],
            rootfs=rootfs,
            image_copy=(image_copy.image, image_copy.copy) if image_copy.image else (),
            user=user.user_spec(),
            limits={**shim_limits(container), "how": self.node.limits_mode},
            message_path=self._message_path(container, argv, env),
            warm=warm_start.spec() if warm_start else None,
        )

    def _visible_checkpoints(self, user: EffectiveSecurityContext, directory: str) -> str:
        """Where the program sees its job's checkpoints: another user cannot enter the data directory, so what the
        program is to see of it is mounted."""
        return checkpoints.MOUNT_PATH if user.account is not None and not self.node.mount_problem else directory

    def _shim_mounts(self, start: ContainerStart, program: Program, image_copy: ImageCopy) -> list[dict[str, Any]]:
        """What the shim mounts. Raises ContainerConfigError where nothing can be mounted."""
        if program.mounts and self.node.mount_problem:
            first = program.mounts[0]
            raise ContainerConfigError(
                f"container {start.container.name} mounts {first.volume} at {first.target}: {self.node.mount_problem}"
            )
        mounts = self.volume_directories.mount_specs(start.card.uid, start.volumes, program.mounts)
        if image_copy.image:  # the image's own `/` is elsewhere: what it names by relative paths is there
            mounts += [{**m, "target": image_copy.copy + m["target"]} for m in mounts]
        if self._visible_checkpoints(program.user, program.checkpoints) == checkpoints.MOUNT_PATH:
            mounts.append(checkpoints.open_to_others(program.checkpoints))
        return mounts

    def _root_spec(self, start: ContainerStart, program: Program) -> RootfsSpec:
        """The container's own root file system. Raises ContainerConfigError where there can be none."""
        if self.node.rootfs_problem:
            raise ContainerConfigError(
                f"container {start.container.name}: image {program.image.name} has a root file system of its own, and here there"
                f" can be none ({self.node.rootfs_problem}): build it again with `rowlock build`"
            )
        scratch, data = start.directory / "rootfs", str(self.node.data_dir)
        if any(images.is_kubectl_delivery(images.normalise(c.image)) for c in start.pod.init_containers):
            # mpirun's way into the workers leads through the pod host's socket (`images/kubectl_delivery.py`)
            shared = [(data, "rw")]
        else:
            shared = [(str(start.directory.parent), "rw"), (program.checkpoints, "rw")]
        return RootfsSpec(
            layers=program.image.layers,
            upper=str(scratch / "upper"),
            scratch=str(scratch),
            hidden=[data],
            overlaid=[program.image.python],
            shared=shared + interpreter_directories(data),
        )

    def _work_directory(self, uid: str, user: EffectiveSecurityContext) -> str:
        """The pod's own empty directory."""
        work = self.directories.work_directory(uid)
        if not work.exists():
            work.mkdir()
            if user.account is not None:
                os.chown(work, user.account.uid, user.account.gid)
        return str(work)

    def _offer_error_file(
        self, start: ContainerStart, user: EffectiveSecurityContext
    ) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """For torch's own account of a failure, of programs under `@record` and of torchrun: a mount, and the variable
        that names the file."""
        if user.account is None:
            return [], {error_files.VARIABLE: str(start.directory / f"error.{start.number}.json")}
        if self.node.mount_problem:
            return [], {}
        source = error_files.make_directory(start.directory, start.number, user.account)
        mount = {"source": source, "target": error_files.MOUNT_PATH, "volume": "errors", "read_only": False}
        return [mount], {error_files.VARIABLE: error_files.VISIBLE_PATH}

    def _message_path(self, container: ContainerSpec, argv: Sequence[str], env: Mapping[str, str]) -> str:
        """Where the program leaves its last words (`terminationMessagePath`); "" = nowhere.

        The machine has no such file, so it costs a mount: the default path is given to who names it."""
        path = container.termination_message_path or MESSAGE_PATH
        is_named = path != MESSAGE_PATH or any(path in text for text in (*argv, *env.values()))
        return path if is_named and not self.node.mount_problem else ""
