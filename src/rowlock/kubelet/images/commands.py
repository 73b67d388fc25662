"""What `rowlock build` and `rowlock image` run: the node's own programs, which know what an image is.

    python -m rowlock.kubelet.images.commands --data-dir D build -t NAME [-f FILE] [--build-arg K=V] DIR
    python -m rowlock.kubelet.images.commands --data-dir D list | add NAME --host | add NAME --dir DIR … | remove NAME

Exit codes are those of `rowlock`: 0 done, 1 refused or failed (with a sentence on stderr), 2 usage error,
130 interrupted, 141 when the reader of the output went away.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rowlock.kubelet.images import build, engine_build
from rowlock.kubelet.images.build_context import BuildFailed, BuildRequest
from rowlock.kubelet.images.dockerfile import BadDockerfile
from rowlock.kubelet.images.engine_build import RUNTIMES
from rowlock.kubelet.images.images import Image, Images, kind_of, list_engine_images, normalise
from rowlock.submit_fields import HOST_NAMES

PROGRAM = "python -m rowlock.kubelet.images.commands"


class CommandFailed(Exception):
    """Ends the program with a sentence and exit code 1."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carries out one command line; returns its exit code. Raises SystemExit(2) for a usage error."""
    options = _parser().parse_args(argv)
    try:
        options.run(Images(options.data_dir / "images"), options)
        return 0
    except (CommandFailed, BuildFailed, BadDockerfile, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit does not fail, too
        return 141
    except OSError as error:
        print(f"Error: {error.filename or options.data_dir} cannot be used: {error.strerror}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Images of this machine.", allow_abbrev=False)
    default_directory = os.environ.get("ROWLOCK_DATA_DIR")
    parser.add_argument(
        "--data-dir",
        type=Path,
        required=not default_directory,
        default=Path(default_directory) if default_directory else None,
        help="the cluster's data directory (default: $ROWLOCK_DATA_DIR)",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add_command(name: str, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        command.add_argument("--json", action="store_true", help="print JSON")
        return command

    command = add_command(
        "build", "Make an image from a Dockerfile: in the container engine where one answers, else one for processes."
    )
    command.add_argument("-t", "--tag", required=True, metavar="NAME", help="the image's name, as in the job")
    command.add_argument("-f", "--file", type=Path, help="the Dockerfile, when not DIRECTORY/Dockerfile")
    command.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="the value of an ARG")
    command.add_argument("--target", default="", metavar="STAGE", help="build this stage")
    command.add_argument("--no-cache", action="store_true", help="do every step again")
    command.add_argument("--pull", action="store_true", help="in Docker or Podman: pull the images of FROM again")
    command.add_argument("--runtime", choices=RUNTIMES, default="auto", help="build in Docker or Podman")
    command.add_argument("directory", type=_existing_directory, metavar="DIRECTORY")
    command.set_defaults(run=build_image)

    add_command("list", "Show every image.").set_defaults(run=list_images)

    command = add_command("add", "Map NAME to this machine's programs, or to a directory with programs.")
    command.add_argument("name", metavar="NAME")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--host", action="store_true", help="this machine's programs; the pod gives the command")
    source.add_argument("--dir", type=_existing_directory, metavar="DIRECTORY", help="a program of yours")
    command.add_argument("--python", type=_existing_path, help="an interpreter; its directory leads PATH")
    command.add_argument("--entrypoint", help="what to run, as one shell-quoted line")
    command.set_defaults(run=add_image)

    command = add_command("remove", "Forget NAME.")
    command.add_argument("name", metavar="NAME")
    command.set_defaults(run=remove_image)
    return parser


def _existing_path(text: str) -> Path:
    if not os.path.exists(text):
        raise argparse.ArgumentTypeError(f"there is no {text}")
    return Path(text)


def _existing_directory(text: str) -> Path:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(
            f"{text} is a file" if os.path.exists(text) else f"there is no directory {text}"
        )
    return Path(text)


def build_image(images: Images, options: argparse.Namespace) -> None:
    """`build`: the lines of the build go to stdout, with `--json` to stderr."""
    context = options.directory.resolve()
    args = dict(_parse_build_arg(text) for text in options.build_arg)
    request = BuildRequest(
        options.tag,
        context,
        options.file or context / "Dockerfile",
        args,
        options.target,
        is_anew=options.no_cache,
        is_pulled=options.pull,
    )
    output = sys.stderr if options.json else sys.stdout
    if engine := engine_build.choose_engine(options.runtime, os.environ):
        name = engine_build.build(engine, images, request)
        print(
            json.dumps({"image": name, "engine": engine.name})
            if options.json
            else f"Successfully built {name} in {engine}"
        )
        return
    if options.pull:
        raise BuildFailed(
            "--pull is for builds in Docker or Podman: for processes this machine stands for every image of FROM, and "
            "nothing is pulled. Leave it out"
        )
    image = build.build(images, request, lambda line: print(line, file=output, flush=True))
    print(json.dumps({"image": image.name, "root": image.root}) if options.json else f"Successfully built {image.name}")


def _parse_build_arg(text: str) -> tuple[str, str]:
    """A build argument `NAME=VALUE`; `NAME` alone takes its value from the environment."""
    name, equals, value = text.partition("=")
    if not equals:
        value = os.environ.get(name, "")
    return name, value


def list_images(images: Images, options: argparse.Namespace) -> None:
    """`list`: the host, the images of this cluster, and those of the container engine."""
    all_images = [Image(HOST_NAMES[0], host=True), *images.all()]
    names = {image.name for image in all_images}
    all_images += [image for image in list_engine_images(os.environ) if image.name not in names]
    rows = [{**asdict(image), "kind": kind_of(image)} for image in all_images]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'IMAGE':<60} {'KIND':<8} COMMAND")
    for row in rows:
        words = " ".join([*row["entrypoint"], *row["command"]]) or ("<image>" if row["engine"] else "<pod>")
        print(f"{row['name']:<60} {row['kind']:<8} {words}")


def add_image(images: Images, options: argparse.Namespace) -> None:
    """`add`: maps the name to the host or to a directory."""
    name = normalise(options.name)
    image = Image(name, host=options.host, created=time.time())
    if options.dir:
        image = replace(image, workdir=str(options.dir.resolve()))
    if options.python:
        image = replace(image, path=(str(options.python.absolute().parent),))
    if options.entrypoint:
        image = replace(image, entrypoint=tuple(shlex.split(options.entrypoint)))
    images.add(image)
    print(json.dumps({"added": name}) if options.json else f"image {name} added")


def remove_image(images: Images, options: argparse.Namespace) -> None:
    """`remove`: removes an image. Raises CommandFailed when this cluster has no image of that name."""
    name = normalise(options.name)
    if not images.remove(options.name):
        engine_image = next((i for i in list_engine_images(os.environ) if i.name == name), None)
        if engine_image is None:
            raise CommandFailed(_unknown_image_message(options.name, [image.name for image in images.all()]))
        kind = kind_of(engine_image)
        raise CommandFailed(f'"{options.name}" is an image of {kind}: `{kind} rmi {options.name}` removes it')
    build.prune_layers(images)
    print(json.dumps({"removed": name}) if options.json else f"image {name} removed")


def _unknown_image_message(name: str, known_names: Sequence[str]) -> str:
    close_matches = difflib.get_close_matches(normalise(name), known_names, 1)
    hint = f'did you mean "{close_matches[0]}"?' if close_matches else "`rowlock image list` shows all"
    return f'no image "{name}" here; {hint}'


if __name__ == "__main__":
    sys.exit(main())
