"""Build contexts and images whose links lead out: COPY reads and writes nothing there."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from rowlock.kubelet.images import build
from rowlock.kubelet.images.build_context import BuildFailed, BuildRequest
from rowlock.kubelet.images.images import Images


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    (directory / "sub").mkdir(parents=True)
    (directory / "precious").write_text("secret")
    return directory


@pytest.fixture
def context(tmp_path: Path, outside: Path) -> Path:
    directory = tmp_path / "context"
    (directory / "tree" / "out").mkdir(parents=True)
    (directory / "tree" / "out" / "precious").write_text("mine")
    (directory / "file").write_text("mine")
    (directory / "inner").symlink_to("tree")
    (directory / "out").symlink_to(outside)
    (directory / "up").symlink_to("../outside")
    (directory / "link").symlink_to(outside / "precious")
    return directory


@pytest.fixture(params=["copied", "layered"])
def layered(request: pytest.FixtureRequest, tmp_path: Path) -> bool:
    """Is the image built in a root file system of its own?"""
    if request.param == "layered":
        require_layers(tmp_path)
    return str(request.param) == "layered"


def require_layers(directory: Path) -> None:
    if problem := build.rootfs_problem(directory / "data" / "images"):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")


def run(context: Path, text: str, layered: bool = False) -> Path:
    """The image's files; of one with layers, the uppermost layer."""
    (context / "Dockerfile").write_text(text)
    table = Images(context.parent / "data" / "images")
    request = BuildRequest("x", context, context / "Dockerfile")
    image = build.build(table, request, lambda line: None, layered=layered)
    return Path(image.layers[0] if layered else image.root)


@pytest.mark.parametrize(
    "source", ["link", "out", "out/precious", "up", "up/precious", "out/*", "tree/../out/precious"]
)
def test_nothing_is_read_outside_of_the_context(context: Path, layered: bool, source: str) -> None:
    with pytest.raises(BuildFailed, match="is outside of the build context"):
        run(context, f"FROM scratch\nCOPY {source} /x\n", layered)


@pytest.mark.parametrize(
    "steps",
    [
        "RUN ln -s {outside} {root}/app\nCOPY file /app/",
        "RUN ln -s {outside} {root}/app\nCOPY file /app/precious",
        "RUN ln -s {outside} {root}/app\nCOPY tree /app",
        "RUN ln -s {outside} {root}/out\nCOPY tree /",
        "RUN ln -s {outside} {root}/app\nWORKDIR /app/made",
        "RUN ln -s {outside} {root}/app\nADD archive.tar /app",
        "COPY . /\nCOPY file /out/precious",
        "COPY . /app/\nCOPY file /app/link",
    ],
)
def test_nothing_is_written_outside_of_the_image(context: Path, outside: Path, steps: str) -> None:
    with tarfile.open(context / "archive.tar", "w") as tar:
        info = tarfile.TarInfo("precious")
        tar.addfile(info, io.BytesIO())
    text = steps.format(outside=outside, root="$(dirname $PWD/x)")
    with pytest.raises(BuildFailed, match="is outside of the image"):
        run(context, f"FROM scratch\n{text}\n")
    assert (outside / "precious").read_text() == "secret" and sorted(os.listdir(outside)) == ["precious", "sub"]


@pytest.mark.parametrize(
    "steps", ["COPY file /app/", "COPY file /app/precious", "COPY tree /app", "ADD archive.tar /app"]
)
def test_links_of_a_layered_image_lead_into_the_image(context: Path, outside: Path, steps: str) -> None:
    require_layers(context.parent)
    with tarfile.open(context / "archive.tar", "w") as tar:
        for name in ("precious", "../../../../escaped"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    try:
        run(context, f"FROM scratch\nRUN mkdir -p {outside} && ln -s {outside} /app\n{steps}\n", True)
    except BuildFailed:
        assert "tar" in steps, "what leads out of an archive is refused"
    assert (outside / "precious").read_text() == "secret" and sorted(os.listdir(outside)) == ["precious", "sub"]
    assert not os.path.exists("/escaped")


def test_a_link_in_the_place_of_a_file_is_replaced(context: Path, outside: Path) -> None:
    link = f"mkdir out; ln -s {outside / 'precious'} out/precious"
    root = run(context, f"FROM scratch\nRUN {link}\nCOPY tree .\n")
    assert (root / "out" / "precious").read_text() == "mine" and not (root / "out" / "precious").is_symlink()
    assert (outside / "precious").read_text() == "secret"


def test_links_that_stay_inside_are_followed(context: Path, layered: bool) -> None:
    for source, target, made in (("inner/out/precious", "/a/", "a/precious"), ("inner", "/b", "b/out/precious")):
        root = run(context, f"FROM scratch\nCOPY {source} {target}\n", layered)
        assert (root / made).read_text() == "mine"


def test_a_fifo_in_the_context_is_one_sentence(context: Path, layered: bool) -> None:
    os.mkfifo(context / "tree" / "fifo")
    with pytest.raises(BuildFailed, match=r"COPY of tree failed|ended with exit code 125"):
        run(context, "FROM scratch\nCOPY tree /x\n", layered)
