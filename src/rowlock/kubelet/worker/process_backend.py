"""Containers as processes of this machine: the program's user, its view of the file system, its warm start."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.kubelet.images import images
from rowlock.kubelet.images.base_environment import (
    base_environment,
    image_environment,
    interpreter_directories,
    interpreter_path,
)
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.images.layers import note_use
from rowlock.kubelet.mounts.rootfs import RootfsSpec
from rowlock.kubelet.network.env_rewrite import LOOPBACK
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.directory import WORK_DIRECTORY
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import ContainerSpec, Fields, shim_limits
from rowlock.kubelet.remote_shell import shell_access
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.shim.stdio import BREAKPOINT_WITHOUT_TERMINAL
from rowlock.kubelet.volumes.checkpoints import MOUNT_PATH, give_to_user
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.warm import eligibility
from rowlock.kubelet.worker import error_files
from rowlock.kubelet.worker import security_context as security
from rowlock.kubelet.worker.container_paths import ContainerPaths, ImageCopy, outermost
from rowlock.kubelet.worker.environment import CHECKPOINT_DIR_VARIABLE, SHELL_ENVIRONMENT_ANNOTATION
from rowlock.kubelet.worker.security_context import EffectiveSecurityContext
from rowlock.kubelet.worker.starting import ContainerStart, Program, shared_memory_limit

MESSAGE_PATH = "/dev/termination-log"
SHARED_MEMORY_PATH = "/dev/shm"


@dataclass(frozen=True, slots=True)
class ProcessBackend:
    """Runs programs as processes, in namespaces and mounts of their own where this machine allows it."""

    node: NodeContext
    network: PodNetwork
    volume_directories: VolumeDirectories
    warm_start: bool = True
    """Whether programs may start warm."""

    def prepare_program(
        self, start: ContainerStart, image: Image, checkpoints: str
    ) -> tuple[EffectiveSecurityContext, dict[str, str]]:
        """The program's user (the pod's choice, else the image's), and its base environment: a few of the server's own variables."""
        of_image = security.Account(*image.account) if image.account else None
        user = security.effective_security_context(start.pod, start.container, of_image=of_image)
        path_prefix = ":".join((*image.path, interpreter_path()))
        # a pod that brings another shell's environment must not see the variables of the server's shell
        has_own_shell = SHELL_ENVIRONMENT_ANNOTATION in start.pod.annotations
        server_env = self.node.server_env
        if image.layers:
            env = image_environment(server_env, is_root=os.geteuid() == 0, first=path_prefix)
        else:
            env = base_environment(server_env, host=image.host and not has_own_shell, first=path_prefix)
        env |= user.environment()
        env |= (
            {"TERM": "xterm"} if start.container.tty else {} if start.container.stdin else BREAKPOINT_WITHOUT_TERMINAL
        )
        is_mounted = self._mounts_own_files(user, self._hiding_mount(start))
        visible = MOUNT_PATH if is_mounted else checkpoints
        return user, env | {CHECKPOINT_DIR_VARIABLE: visible}

    def complete_request(self, request: ShimRequest, start: ContainerStart, program: Program) -> ShimRequest:
        """Adds the command, its mounts, namespaces and root file system. Raises ContainerConfigError."""
        image, container, user = program.image, start.container, program.user
        image_copy = ImageCopy(image.root, str(start.directory / "rootfs"))
        rootfs = self._root_spec(start, program) if image.layers else None
        work = self._work_directory(start, user)
        memory_volumes = self.volume_directories.memory_specs(start.card.uid, start.volumes)
        hiding = self._hiding_mount(start)
        has_own_files = self._mounts_own_files(user, hiding)
        mounts = self._shim_mounts(start, program, image_copy)
        mounts += [self._checkpoints_mount(program, start.pod.fs_group)] if has_own_files else []
        namespaces = self._namespaces(start, program)
        has_own = "ipc" in namespaces or "pod-ipc" in namespaces
        shared_memory = self._shared_memory(start, program) if has_own else 0
        has_volume_inside = any(mount.target.startswith(f"{SHARED_MEMORY_PATH}/") for mount in program.mounts)
        if shared_memory and ("pod-ipc" in namespaces or has_volume_inside):
            volume = self.volume_directories.shared_memory(start.card.uid, shared_memory)
            memory_volumes.append(volume)
            mounts.insert(0, {"source": volume["path"], "target": SHARED_MEMORY_PATH, "volume": "shared memory"})
            shared_memory = 0
        env = {name: image_copy(value) for name, value in program.env.items()}
        wants_error_file = start.pod.owner_uid and not container.is_ephemeral and error_files.VARIABLE not in env
        if wants_error_file and (user.account is None or not self.node.mount_problem):
            source, env[error_files.VARIABLE] = error_files.offer_error_file(
                start.directory, start.number, user.account, is_mounted=has_own_files
            )
            mount = {"source": source, "target": error_files.MOUNT_PATH, "volume": "errors", "read_only": False}
            mounts += [mount] if source else []
        paths = ContainerPaths(image_copy, outermost(mount.target for mount in program.mounts), image.layers)
        directory = images.working_directory(image, container, hiding or work)
        cwd = paths.map_path(directory)
        own_directory = work if directory == cwd == work else image_copy.copy if image_copy.contains(cwd) else ""
        words = [program.space.argument(word, env) for word in program.command]
        if key := shell_access.find_key(start.pod, container):
            words = self._give_shell(start, key, (words, env, paths), mounts)
        argv = [paths.map_path(word) for word in words]
        argv = argv if start.context.has_own_address else self.network.rewrite_command(start.pod.namespace, argv)
        return request._replace(
            argv=argv,
            env=env,
            cwd=cwd,
            own_directory=own_directory,
            stop_signal=images.stop_signal(image, container.stop_signal),
            network=self.network.namespace_request(start.pod, start.card.ip),
            namespaces=namespaces,
            joined_run=self._joined_run(start) if container.is_ephemeral else "",
            shared_memory=shared_memory,
            mounts=mounts,
            memory_volumes=memory_volumes,
            rootfs=rootfs,
            image_copy=(image_copy.image, image_copy.copy) if image_copy.image else (),
            user=user.user_spec(),
            limits={**shim_limits(container, self.node.pids_limit), "how": self.node.limits_mode},
            message_path=self._message_path(container, argv, env),
            warm=self._warm_spec(start, program, paths, (argv, env, cwd)),
        )

    def _give_shell(
        self,
        start: ContainerStart,
        key: str,
        line: tuple[list[str], dict[str, str], ContainerPaths],
        mounts: list[dict[str, Any]],
    ) -> list[str]:
        """Where the key of an MPI job is mounted: puts a program `ssh` for mpirun into PATH. Returns the command, which is rowlock's own
        server if the container's is an sshd that is not installed."""
        words, env, paths = line
        source = start.directory / "shell"
        source.mkdir(parents=True, exist_ok=True)
        program = source / "ssh"
        program.write_text(shell_access.client_program(key))
        program.chmod(0o755)
        mounts.append({"source": str(source), "target": shell_access.DIRECTORY, "volume": "ssh", "read_only": True})
        env |= shell_access.client_environment(env)
        server = shell_access.server_command(
            start.container, words, key, lambda path: os.path.isfile(paths.readable_path(paths.map_path(path)))
        )
        if server is None:
            return words
        port = self.network.claim_port(start.card.key, server.port)
        return [*server.command, str(port), *(() if start.context.has_own_address else (LOOPBACK,))]

    def _namespaces(self, start: ContainerStart, program: Program) -> tuple[str, ...]:
        """The PID and IPC namespaces that the program gets.

        Programs with real GPUs keep the machine's IPC namespace: NCCL compares it and /dev/shm, and unless both are shared it uses
        sockets between ranks of one machine."""
        pod = start.pod
        if self.node.process_problem:
            return ()
        sees_others = pod.host_pid or (start.container.is_ephemeral and bool(self._joined_run(start)))
        own = "pod-pid" if pod.is_process_namespace_shared and pod.shares_processes_of_several else "pid"
        processes = () if sees_others else (own,)
        if pod.host_ipc or program.gpus.devices:
            return processes
        return (*processes, "pod-ipc" if len(pod.real_containers) > 1 else "ipc")

    def _joined_run(self, start: ContainerStart) -> str:
        """The run whose processes an ephemeral container sees: its target's, or that of the pod's only container; "" = none."""
        pod, target = start.pod, start.pod.process_target(start.container)
        if not target or target not in start.running or pod.host_pid or pod.shares_processes_of_several:
            return ""
        return (
            "" if self.node.process_problem else str(start.directory.parent / target / f"start.{start.running[target]}")
        )

    def _shared_memory(self, start: ContainerStart, program: Program) -> int:
        """Size limit of the pod's /dev/shm in bytes; 0 = a volume is mounted there."""
        if any(mount.target.rstrip("/") == SHARED_MEMORY_PATH for mount in program.mounts):
            return 0
        return shared_memory_limit(start.pod.annotations)

    def _warm_spec(
        self,
        start: ContainerStart,
        program: Program,
        paths: ContainerPaths,
        line: tuple[list[str], dict[str, str], str],
    ) -> dict[str, Any] | None:
        """How the program may start warm, given its arguments, environment and directory (`line`); None = it starts cold."""
        is_wanted = start.pod.annotations.get(eligibility.WARM_START_ANNOTATION) != "false"
        # A warm parent would execute another user's interpreter and packages as our user.
        is_own = program.user.account is None
        if not (self.warm_start and is_wanted and is_own):
            return None
        if program.image.replaces_packages or start.container.console:
            return None
        plan = eligibility.plan_warm_start(*line, paths.readable_path)
        return plan.spec() if plan else None

    def _hiding_mount(self, start: ContainerStart) -> str:
        """The mount path of a volume that hides the data directory, for example /tmp or a home; "" = none does."""
        data = f"{self.node.data_dir}/"
        mount_paths = _mount_paths(start.container.volume_mounts, start.pod.volumes)
        return next((path for path in mount_paths if path != "/" and data.startswith(path.rstrip("/") + "/")), "")

    def _mounts_own_files(self, user: EffectiveSecurityContext, hiding: str) -> bool:
        """Whether checkpoints and error files are mounted elsewhere: another user cannot enter the data directory, and a volume mounted
        above it hides it."""
        return (user.account is not None or bool(hiding)) and not self.node.mount_problem

    def _checkpoints_mount(self, program: Program, group: int | None) -> dict[str, Any]:
        """Mounts the checkpoint directory at MOUNT_PATH, writable for the program's user. `group`: the pod's fsGroup."""
        account = program.user.account
        if account is None:
            return {"source": program.checkpoints, "target": MOUNT_PATH, "volume": "checkpoints", "read_only": False}
        return give_to_user(program.checkpoints, account.uid, None if group == account.gid else group)

    def _shim_mounts(self, start: ContainerStart, program: Program, image_copy: ImageCopy) -> list[dict[str, Any]]:
        """The volume mounts for the shim. Raises ContainerConfigError where nothing can be mounted."""
        if program.mounts and self.node.mount_problem:
            first = program.mounts[0]
            raise ContainerConfigError(
                f"container {start.container.name} mounts {first.volume} at {first.target}: {self.node.mount_problem}"
            )
        mounts = self.volume_directories.mount_specs(start.card.uid, start.volumes, program.mounts)
        if image_copy.image:  # relative paths of the image lead into its copy: mount there, too
            mounts += [{**m, "target": image_copy.copy + m["target"]} for m in mounts]
        return mounts

    def _root_spec(self, start: ContainerStart, program: Program) -> RootfsSpec:
        """The container's own root file system. Raises ContainerConfigError where this machine cannot make one."""
        if self.node.rootfs_problem:
            raise ContainerConfigError(
                f"container {start.container.name}: image {program.image.name} has a root file system of its own, and here there"
                f" can be none ({self.node.rootfs_problem}): build it again with `rowlock build`"
            )
        note_use(start.directory, program.image.layers)
        scratch, data = start.directory / "rootfs", str(self.node.data_dir)
        own, shared = [(str(start.directory.parent), "rw"), (program.checkpoints, "rw")], interpreter_directories(data)
        if any(images.is_kubectl_delivery(images.normalise(c.image)) for c in start.pod.init_containers):
            # mpirun reaches the workers through the pod host's socket (`images/kubectl_delivery.py`)
            own, shared = [], [(data, "rw"), *shared]
        return RootfsSpec(
            layers=program.image.layers,
            upper=str(scratch / "upper"),
            scratch=str(scratch),
            hidden=[data],
            overlaid=[program.image.python],
            shared=shared,
            own=own,
            entry=str(self.node.data_dir / "images" / images.mangle(program.image.name) / "image.json"),
            is_kept=False,
        )

    def _work_directory(self, start: ContainerStart, user: EffectiveSecurityContext) -> str:
        """Makes the pod's working directory, owned by the program's user, unless it exists."""
        work = start.directory.parent / WORK_DIRECTORY
        try:
            os.mkdir(work)
        except FileExistsError:
            return str(work)
        if user.account is not None:
            os.chown(work, user.account.uid, user.account.gid)
        return str(work)

    def _message_path(self, container: ContainerSpec, argv: Sequence[str], env: Mapping[str, str]) -> str:
        """The path of the termination message file (`terminationMessagePath`); "" = none.

        The file costs a mount, so the default path is provided only if the command or the environment mentions it."""
        path = container.termination_message_path or MESSAGE_PATH
        is_named = path != MESSAGE_PATH or any(path in text for text in (*argv, *env.values()))
        return path if is_named and not self.node.mount_problem else ""


def _mount_paths(volume_mounts: Iterable[Fields], pod_volumes: Iterable[Fields]) -> list[str]:
    """Mount paths of a container's volumes, except directories of this machine that are mounted at their own path."""
    sources = {volume["name"]: (volume.get("hostPath") or {}).get("path") for volume in pod_volumes}
    paths = [(str(mount.get("mountPath") or ""), sources.get(mount.get("name"))) for mount in volume_mounts]
    return [path for path, source in paths if path != source]
