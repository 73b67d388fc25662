"""Build contexts and archives as an enemy's: whatever is in them, a build touches nothing outside of its image, and ends."""

import io
import os
import socket
import tarfile
from pathlib import Path

import pytest

from rowlock.kubelet.images import build
from rowlock.kubelet.images.build_context import BuildFailed, BuildRequest
from rowlock.kubelet.images.images import Images


class Yard:
    """A context, what lies beside it, and builds either way."""

    def __init__(self, place: Path, layered: bool) -> None:
        self.context, self.outside, self.layered = place / "context", place / "outside", layered
        self.images = Images(place / "images")
        for directory in (self.context, self.outside):
            directory.mkdir()
        (self.outside / "kept").write_text("kept")

    def build(self, dockerfile: str) -> str:
        """What the build says when it fails; "" when it does not."""
        (self.context / "Dockerfile").write_text(dockerfile)
        request = BuildRequest("made", self.context, self.context / "Dockerfile")
        said: list[str] = []
        try:
            build.build(self.images, request, said.append, layered=self.layered)
        except BuildFailed as error:
            return "\n".join([*said, str(error)])
        return ""

    def is_untouched(self) -> bool:
        return [(path.name, path.read_text()) for path in self.outside.iterdir()] == [("kept", "kept")]


@pytest.fixture(params=["layered", "copies"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Yard:
    layered = request.param == "layered"
    if layered and (problem := build.rootfs_problem(tmp_path)):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")
    return Yard(tmp_path, layered)


def link(name: str, target: str, type_: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = type_, target
    return member


def device(name: str, type_: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.devmajor, member.devminor, member.mode = type_, 1, 3, 0o666
    return member


@pytest.mark.parametrize(
    "way", ["parent", "absolute", "symbolic link", "hard link", "link over a link", "character device", "pipe", "cut"]
)
def test_an_archive_writes_nothing_outside(yard: Yard, way: str) -> None:
    out = str(yard.outside)
    ways: dict[str, list[str | tarfile.TarInfo]] = {
        "parent": ["../" * 30 + out.lstrip("/") + "/new"],
        "absolute": [f"{out}/new"],
        "symbolic link": [link("to", out), "to/new", "to/kept"],
        "hard link": [link("to", f"{out}/kept", tarfile.LNKTYPE), "to"],
        "link over a link": [link("a", "."), link("a/b", out), "b/new", link("b", out), "b/kept"],
        "character device": [device("null", tarfile.CHRTYPE)],
        "pipe": [device("pipe", tarfile.FIFOTYPE), "pipe"],
        "cut": ["whole", "half"],
    }
    with tarfile.open(yard.context / "enemy.tar", "w") as archive:
        for member in ways[way]:
            entry = tarfile.TarInfo(member) if isinstance(member, str) else member
            entry.size = 4 if isinstance(member, str) else 0
            archive.addfile(entry, io.BytesIO(b"evil") if entry.size else None)
    if way == "cut":
        os.truncate(yard.context / "enemy.tar", 3 * 512 + 2)
    said = yard.build(f"FROM {'scratch' if yard.layered else 'x'}\nADD enemy.tar /dest/")
    assert said or way in ("symbolic link", "hard link", "link over a link", "parent", "absolute"), "and it is said"
    assert yard.is_untouched(), sorted(yard.outside.iterdir())


def test_a_context_leads_nowhere_and_never_waits(yard: Yard) -> None:
    """Pipes, sockets, links out of it, links to themselves, names that are no text."""
    base = "FROM scratch" if yard.layered else "FROM x"
    tree = yard.context / "tree"
    tree.mkdir()
    os.symlink(yard.outside, tree / "out")
    os.symlink("loop", tree / "loop")
    (yard.context / "tree" / os.fsdecode(b"\xff\x1b[2J")).write_text("odd")
    assert yard.build(f"{base}\nCOPY tree /tree/") == "", "links are copied as links"
    os.symlink(yard.outside, yard.context / "away")
    assert "outside of the build context" in yard.build(f"{base}\nCOPY away /away/")
    os.mkfifo(tree / "pipe")
    assert "pipe" in yard.build(f"{base}\nCOPY tree /tree/")
    os.unlink(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        where = os.open(tree, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{where}/socket")
        os.close(where)
        assert "socket" in yard.build(f"{base}\nCOPY tree /tree/")
    assert yard.is_untouched()
