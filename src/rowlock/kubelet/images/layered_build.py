"""A build in a root file system: `rowlock build` where containers can have one of their own (`mounts/rootfs.py`).

Every step that writes makes a layer, named by what it depends on; a step that was done before is not done again. RUN sees
the image's files at their places over this machine's, and changes neither.
"""

import fnmatch
import glob
import hashlib
import os
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rowlock.kubelet.images import base_images, build_step, dockerfile, python_base
from rowlock.kubelet.images.base_environment import (
    STANDARD_PATH,
    image_environment,
    interpreter_directories,
    interpreter_path,
    site_paths,
)
from rowlock.kubelet.images.build_context import BuildContext, BuildFailed, parse_dockerignore
from rowlock.kubelet.images.build_step import CopyStep, ImageUser, RunStep
from rowlock.kubelet.images.dockerfile import BadDockerfile, Instruction, Stage
from rowlock.kubelet.images.images import Image, Images, signal_number
from rowlock.kubelet.images.layers import LayerStore, layer_key
from rowlock.kubelet.images.word_expansion import expand_text, parse_heredoc
from rowlock.kubelet.mounts import rootfs
from rowlock.kubelet.mounts.rootfs import RootfsSpec

_PASSED_VARIABLES = ("PIP_*", "UV_*", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables of the builder's own environment that steps get: they say where packages are fetched from."""
_SCRIPT = "/tmp/.rowlock-step"


@dataclass(frozen=True, slots=True)
class BuildState:
    """The state of an image during its build."""

    layers: tuple[str, ...] = ()
    """Directories, the uppermost first."""
    key: str = ""
    """The digest of everything that the image depends on so far."""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    user: ImageUser = field(default_factory=ImageUser)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    has_own_command: bool = False
    """Whether CMD occurred in this stage: ENTRYPOINT resets the base's command, but not the stage's own."""
    stop_signal: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    triggers: tuple[str, ...] = ()


class LayeredBuild:
    """One build. Raises BuildFailed, BadDockerfile or NoPip with a sentence."""

    def __init__(
        self, images: Images, directory: Path, context: BuildContext, emit_line: Callable[[str], None], *, anew: bool
    ) -> None:
        """`anew`: every step is done, even if its layer exists."""
        self._images, self._emit_line, self._anew = images, emit_line, anew
        self._context = context
        self._directory = directory
        self._store = LayerStore(directory)
        self._python = directory / ".python"
        self._states: dict[str, BuildState] = {}

    def run(self, stages: Sequence[Stage]) -> Image:
        """Builds the last stage and those that it needs."""
        needed = dockerfile.needed_stages(stages)
        total, number, state = sum(len(stages[n].steps) for n in needed), 0, BuildState()
        for index in needed:
            stage = stages[index]
            for step in stage.steps:
                number += 1
                self._emit_line(f"Step {number}/{total} : {step}")
                state = self._step(step, state, stage)
            self._states[str(index)] = state
            self._states[stage.name or str(index)] = state
        # an image without files also has a root file system, and can be a base
        return self._image(state if state.layers else replace(state, layers=(self._empty_layer(),)))

    def _empty_layer(self) -> str:
        key = layer_key("empty")
        if not self._store.has(key):
            with self._store.new(key):
                pass
        return str(self._store.path(key))

    def _image(self, state: BuildState) -> Image:
        user = state.user
        image = Image(
            "",
            layers=state.layers,
            python=str(self._python),
            env=state.env,
            entrypoint=state.entrypoint,
            command=state.command,
            workdir=state.workdir,
            account=() if user == ImageUser() else (user.name, user.uid, user.gid, user.home),
            stop_signal=state.stop_signal,
            triggers=state.triggers,
        )
        return replace(image, replaces_packages=_replaces_packages(image))

    def _step(self, step: Instruction, state: BuildState, stage: Stage) -> BuildState:
        if step.name in dockerfile.RECORDED_INSTRUCTIONS:
            self._emit_line(f" ---> {step.name} has no effect on a pod")
            return state
        return getattr(self, f"_{step.name.lower()}")(step, stage if step.name == "FROM" else state)  # type: ignore[no-any-return]

    # ------------------------------------------------------------ steps, by name

    def _from(self, step: Instruction, stage: Stage) -> BuildState:
        if stage.base.lower() in self._states:
            return replace(
                self._states[stage.base.lower()], args={}, shell=BuildState().shell, triggers=(), has_own_command=False
            )
        environment = python_base.shared_environment(self._python)
        state = BuildState(key=layer_key("base", str(environment)), env={"PATH": base_path(self._python)})
        image = None if stage.base == "scratch" else self._images.find(stage.base)
        if isinstance(image, Image) and (image.layers or image.root):
            self._emit_line(f" ---> {image.id}")
            return self._from_image(image, state)
        if stage.base != "scratch":
            self._emit_line(
                f" ---> {stage.base} is not pulled: this machine and the environment rowlock runs in ({sys.prefix}) stand for it"
            )
            for note in base_images.missing_promises(stage.base):
                self._emit_line(f" ---> {note}")
        return state

    def _from_image(self, image: Image, state: BuildState) -> BuildState:
        if not image.layers:  # made by a copy build: one directory
            workdir = image.workdir.removeprefix(image.root) or "/"
            key = layer_key(state.key, image.id)
            env = {**state.env, **image.env}
            return replace(
                state, layers=(image.root,), key=key, env=env, workdir=workdir, entrypoint=image.entrypoint, command=image.command
            )  # fmt: skip
        account = image.account
        user = ImageUser(account[0], account[1], account[2], account[3]) if account else ImageUser()
        return replace(
            state,
            layers=image.layers,
            key=layer_key(state.key, image.layers),
            env=dict(image.env),
            workdir=image.workdir,
            user=user,
            entrypoint=image.entrypoint,
            command=image.command,
            stop_signal=image.stop_signal,
        )

    def _run(self, step: Instruction, state: BuildState) -> BuildState:
        argv, script = _run_words(step, state)
        command = RunStep(argv, self._environment(state), state.workdir, state.user, script)
        origins = [self._origin(step, mount["from"]) if "from" in mount else None for mount in step.mounts]
        facts = (
            "RUN",
            asdict(replace(command, env={**state.env, **state.args})),
            step.mounts,
            self._mount_digests(step, origins),
        )

        def run(spec: RootfsSpec, place: Path) -> int:
            mounts = [
                self._step_mount(mount, origin, place / f"mount-{number}")
                for number, (mount, origin) in enumerate(zip(step.mounts, origins, strict=True))
            ]

            def mount_origins() -> None:
                for mount in mounts:
                    if origin := mount.pop("origin", None):
                        rootfs.mount_root(origin)
                        build_step.require_in_root(mount["root"], mount["sub_path"])

            action = partial(build_step.run_command, command)
            code = build_step.run_in_root(spec, action, self._emit_line, mounts, mount_origins)
            build_step.remove_mount_points([mount["target"] for mount in mounts], Path(spec["upper"]), state.layers)
            return code

        return self._layer(step, state, facts, run)

    def _environment(self, state: BuildState) -> dict[str, str]:
        passed = {k: v for k, v in os.environ.items() if any(fnmatch.fnmatchcase(k, p) for p in _PASSED_VARIABLES)}
        passed |= {name: os.environ[name] for name in dockerfile.PROXY_ARGS if name in os.environ}
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        user = {"HOME": state.user.home} if state.user != ImageUser() else {}
        base = image_environment(os.environ, is_root=os.geteuid() == 0)
        return {**base, **passed, **quiet, **user, **state.env, **state.args}

    def _mount_digests(self, step: Instruction, origins: Sequence[BuildState | None]) -> list[Any]:
        """Digests of what the step can read of the build context, of other stages and images."""
        return [
            origin.key if origin else self._context.digest(step, mount.get("source", "."))
            for mount, origin in zip(step.mounts, origins, strict=True)
            if origin or mount["type"] == "bind"
        ]

    def _step_mount(self, mount: Mapping[str, str], origin: BuildState | None, place: Path) -> dict[str, Any]:
        """A `RUN --mount` as `volume_mounts.mount_volumes` takes it; `origin` is a root file system to mount before.

        Whatever a step writes to anything but a cache is discarded after it."""
        target, is_writable = mount["target"], mount.get("rw") == "true"
        made = {"target": target, "volume": target, "read_only": not is_writable}
        if mount["type"] == "cache":
            place = self._directory / ".cache" / hashlib.sha256(mount.get("id", target).encode()).hexdigest()[:20]
        if mount["type"] != "bind":
            place.mkdir(parents=True, exist_ok=True)
            return {**made, "source": str(place), "read_only": mount.get("ro") == "true"}
        source = os.path.normpath(f"/{mount.get('source', '')}").lstrip("/") or "."
        if origin is not None:
            spec = self._spec(origin.layers, place)
            return {**made, "root": rootfs.root_path(spec), "sub_path": source, "origin": spec}
        if is_writable or self._context.rules:
            self._context.copy(source, place)
            return {**made, "source": str(place)}
        directory = str(self._context.directory)
        return {**made, "source": directory, "root": directory, "sub_path": source}

    def _workdir(self, step: Instruction, state: BuildState) -> BuildState:
        path = os.path.normpath(os.path.join("/", state.workdir, step.words[0]))
        return replace(self._make_directories(step, state, [path]), workdir=path)

    def _volume(self, step: Instruction, state: BuildState) -> BuildState:
        """Makes the directories of a VOLUME, empty; in a pod they are the container's own, like all else."""
        self._emit_line(
            " ---> VOLUME has no effect on a pod but a directory: what is written there goes with its container"
        )
        return self._make_directories(step, state, [os.path.join("/", path) for path in step.words])

    def _make_directories(self, step: Instruction, state: BuildState, paths: Sequence[str]) -> BuildState:
        action = partial(build_step.make_directories, paths)
        return self._layer(
            step, state, ("directories", *paths), lambda spec, _: build_step.run_in_root(spec, action, self._emit_line)
        )

    def _copy(self, step: Instruction, state: BuildState) -> BuildState:
        *words, target = step.words
        names = {f"<<{dash}{doc.name}": doc for doc in step.heredocs for dash in ("", "-")}
        texts = {
            names[word].name: expand_text(names[word].text, {**state.env, **state.args})
            if names[word].expand
            else names[word].text
            for word in words
            if word in names
        }
        patterns = [word for word in words if word not in names]
        origin = self._origin(step, step.flags["from"]) if "from" in step.flags else None
        is_url = [step.name == "ADD" and re.match(r"https?://", word) is not None for word in patterns]
        if origin is None:
            sources = [
                s
                for p, url in zip(patterns, is_url, strict=True)
                for s in ([p] if url else self._context.matches(step, p))
            ]
            digests: list[Any] = [None if "://" in source else self._context.digest(step, source) for source in sources]
        else:
            sources, digests = patterns, [origin.key]
        absolute = os.path.join("/", state.workdir, target)
        absolute = os.path.normpath(absolute) + ("/" if target.endswith(("/", "/.")) or target in (".", "..") else "")
        rules = [*self._context.rules, *parse_dockerignore(step.flags.get("exclude", ""))] if origin is None else []
        copy = CopyStep(
            sources, absolute, step.flags.get("chown", ""), _mode(step), step.name == "ADD", "parents" in step.flags, rules, texts
        )  # fmt: skip
        facts = (step.name, digests, sources, absolute, sorted(step.flags.items()), texts)

        def run(spec: RootfsSpec, place: Path) -> int:
            if origin is not None:
                return self._copy_from(spec, self._spec(origin.layers, place / "origin"), copy)
            root = os.open(self._context.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return build_step.run_in_root(spec, partial(build_step.copy_files, copy, root), self._emit_line)
            finally:
                os.close(root)

        return self._layer(step, state, facts, run, is_cached=not any(is_url))

    _add = _copy

    def _copy_from(self, spec: RootfsSpec, origin: RootfsSpec, copy: CopyStep) -> int:
        """Copies from the root file system of another stage or image."""
        root = -1

        def look() -> None:
            nonlocal root
            root = rootfs.open_root(origin)

        def act() -> int:
            sources = [s for pattern in copy.sources for s in _expand_in_root(root, pattern)]
            return build_step.copy_files(replace(copy, sources=sources), root)

        return build_step.run_in_root(spec, act, self._emit_line, before=look)

    def _origin(self, step: Instruction, name: str) -> BuildState:
        """The stage (by name or number) or built image that `--from` or `from=` names. Raises BuildFailed."""
        name = name.lower()
        if name in self._states:
            return self._states[name]
        image = self._images.find(name)
        if isinstance(image, Image) and (image.layers or image.root):
            return self._from_image(image, BuildState())
        raise BuildFailed(
            f"line {step.line}: {step.name} from={name}: there is no such stage before it, and no image of that name"
            " was built here (images are not pulled)"
        )

    def _env(self, step: Instruction, state: BuildState) -> BuildState:
        """The later of ARG and ENV wins."""
        env = dict(word.split("=", 1) for word in step.words)
        args = {name: value for name, value in state.args.items() if name not in env}
        return replace(state, env={**state.env, **env}, args=args)

    def _arg(self, step: Instruction, state: BuildState) -> BuildState:
        return replace(state, args={**state.args, **dict(w.split("=", 1) for w in step.words if "=" in w)})

    def _shell(self, step: Instruction, state: BuildState) -> BuildState:
        return replace(state, shell=step.words)

    def _user(self, step: Instruction, state: BuildState) -> BuildState:
        """Looks up the user's number inside the image, by its own users."""
        rows: list[str] = []

        def look() -> int:
            user = build_step.lookup_user(step.words[0])
            print("\t".join((user.name, str(user.uid), str(user.gid), user.home, *map(str, user.groups))))
            return 0

        with self._store.new(layer_key("look", state.key, step.words)) as place:
            code = build_step.run_in_root(self._spec(state.layers, place), look, rows.append)
        if code:
            raise BuildFailed(f"line {step.line}: {step}: {rows[-1] if rows else 'the user could not be looked up'}")
        name, uid, gid, home, *groups = rows[-1].split("\t")
        if os.geteuid() != 0 and int(uid) != os.geteuid():
            self._emit_line(" ---> programs run as you: only root can become another user")
            return state
        return replace(state, user=ImageUser(name, int(uid), int(gid), home, tuple(map(int, groups))))

    def _stopsignal(self, step: Instruction, state: BuildState) -> BuildState:
        if signal_number(step.words[0]) is None:
            raise BadDockerfile(f"line {step.line}: {step}: there is no such signal here; SIGINT or SIGUSR1 is one")
        return replace(state, stop_signal=step.words[0])

    def _cmd(self, step: Instruction, state: BuildState) -> BuildState:
        words = (*state.shell, step.text) if step.shell else step.words
        return replace(state, command=words, has_own_command=True)

    def _entrypoint(self, step: Instruction, state: BuildState) -> BuildState:
        words = (*state.shell, step.text) if step.shell else step.words
        return replace(state, entrypoint=words, command=state.command if state.has_own_command else ())

    def _onbuild(self, step: Instruction, state: BuildState) -> BuildState:
        return replace(state, triggers=(*state.triggers, step.text))

    # ------------------------------------------------------------ layers

    def _spec(self, layers: Sequence[str], place: Path) -> RootfsSpec:
        place.mkdir(exist_ok=True)
        return RootfsSpec(
            layers=layers,
            upper=str(place / "layer"),
            scratch=str(place / "scratch"),
            hidden=[str(self._directory.parent)],
            overlaid=[str(self._python)],
            shared=interpreter_directories(str(self._directory.parent)),
            own=(),
            entry="",
            is_kept=True,
        )

    def _layer(
        self,
        step: Instruction,
        state: BuildState,
        facts: Any,
        run: Callable[[RootfsSpec, Path], int],
        *,
        is_cached: bool = True,
    ) -> BuildState:
        """The state plus the layer that `run` makes, or made when the same step was done before."""
        wanted = layer_key(state.key, facts)
        is_anew = self._anew or not is_cached
        key = layer_key(wanted, uuid.uuid4().hex) if is_anew else self._store.newest(wanted)
        if not is_anew and self._store.has(key):
            self._emit_line(" ---> CACHED")
        else:
            with self._store.new(key) as place:
                if code := run(self._spec(state.layers, place), place):
                    raise BuildFailed(
                        f"line {step.line}: `{step}` ended with exit code {code}; the output above says why"
                    )
            if not is_cached:
                key = self._store.rename_by_content(key, wanted)
            elif self._anew:
                self._store.note_newest(wanted, key)
        return replace(state, layers=(str(self._store.path(key)), *state.layers), key=key)


def base_path(python: Path) -> str:
    """The default PATH of an image: the shared environment in `python`, then this machine's programs."""
    return ":".join((str(python_base.shared_environment(python) / "bin"), interpreter_path(), STANDARD_PATH))


def _run_words(step: Instruction, state: BuildState) -> tuple[list[str], str]:
    """The words to exec, and a script to write to a file first ("" = none)."""
    if step.words:
        return list(step.words), ""
    text = step.text
    if len(step.heredocs) == 1 and parse_heredoc(text):
        body = step.heredocs[0].text
        return ([_SCRIPT], body) if body.startswith("#!") else ([*state.shell, body], "")
    for document in step.heredocs:
        text += f"\n{document.text}{document.name}"
    return [*state.shell, text], ""


def _mode(step: Instruction) -> int | None:
    text = step.flags.get("chmod")
    if text is None:
        return None
    if not re.fullmatch(r"[0-7]{3,4}", text):
        raise BadDockerfile(f"line {step.line}: {step.name} --chmod={text}: give an octal number, such as 755")
    return int(text, 8)


def _expand_in_root(root: int, pattern: str) -> list[str]:
    """Paths below `root` that a pattern with wildcards in its last component matches."""
    head, _, last = pattern.rstrip("/").rpartition("/")
    if not glob.has_magic(last):
        return [pattern]
    fd = build_step.open_in_root(root, head or "/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return sorted(f"{head}/{name}" for name in os.listdir(fd) if fnmatch.fnmatchcase(name, last))
    finally:
        os.close(fd)


def _replaces_packages(image: Image) -> bool:
    """Whether the image has its own version of a package that the environment below has, too."""
    below = {name for path in site_paths() if os.path.isdir(path) for name in os.listdir(path)}
    own = {
        name
        for layer in image.layers
        for path in glob.glob(f"{layer}{image.python}/*/lib/python3*/site-packages")
        for name in os.listdir(path)
    }
    return not own.isdisjoint(name for name in below if not name.endswith((".dist-info", ".pth", "__pycache__")))
