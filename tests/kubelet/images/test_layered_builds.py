"""Images with a root file system of their own: built and run, as Docker would."""

import functools
import http.server
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.kubelet.files import untrusted
from rowlock.kubelet.images import base_environment, build, images
from rowlock.kubelet.images.build_context import BuildFailed, BuildRequest
from rowlock.kubelet.images.dockerfile import BadDockerfile
from rowlock.kubelet.images.images import KUBECTL_DELIVERY, Image, Images
from rowlock.kubelet.images.layers import LayerStore
from rowlock.kubelet.shim.fact_files import write_fact

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def can_mount(tmp_path_factory: pytest.TempPathFactory) -> None:
    if problem := build.rootfs_problem(tmp_path_factory.mktemp("probe")):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")


class Workshop:
    """A data directory, a build context and what builds said."""

    def __init__(self, place: Path) -> None:
        self.data, self.context = place / "data", place / "context"
        self.data.mkdir(mode=0o700)
        self.context.mkdir()
        self.images = Images(self.data / "images")
        self.said: list[str] = []
        self.runs = 0

    def write(self, name: str, text: str) -> None:
        path = self.context / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def build(self, dockerfile: str, name: str = "made", *, target: str = "", anew: bool = False) -> Image:
        self.write("Dockerfile", dockerfile)
        self.said.clear()
        request = BuildRequest(name, self.context, self.context / "Dockerfile", {}, target, is_anew=anew)
        return build.build(self.images, request, self.said.append, layered=True)

    def run(self, *images: str, command: list[str] | None = None) -> str:
        """The log of a pod of the image."""
        log, self.runs = "", self.runs + 1
        name = f"run-{self.runs}"

        async def body(node: Node) -> None:
            nonlocal log
            container: dict[str, object] = {"name": "main", "image": images[0] if images else "made"}
            if command:
                container |= {"command": command}
            given = {**pod(name, ""), "spec": {"restartPolicy": "Never", "containers": [container]}}
            await node.add(given)
            await node.ended(name)
            log = await node.log(name)

        on_node(self.data, body)
        return log


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_a_program_sees_its_files_at_their_places_and_leaves_nothing(shop: Workshop) -> None:
    shop.write("cfg.txt", "the configuration\n")
    shop.write(
        "train.py",
        "import os, sys\n"
        "print(os.getcwd(), __file__, open('/srv/code/cfg.txt').read().strip(), 'mine' in os.listdir('/tmp'))\n"
        "open('/srv/code/cfg.txt', 'a').write('more'); open('/tmp/mine', 'w'); open('/rowlock-was-here', 'w')\n",
    )
    shop.build('FROM pytorch/pytorch\nWORKDIR /srv/code\nCOPY . .\nCMD ["python", "train.py"]')
    for _ in range(2):  # the second sees nothing of the first
        assert shop.run() == "/srv/code /srv/code/train.py the configuration False\n"
    assert not os.path.exists("/rowlock-was-here") and not os.path.exists("/srv/code")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write where these steps do")
def test_steps_change_the_image_and_not_the_machine(shop: Workshop) -> None:
    victim = Path("/opt") / f"rowlock-test-{os.getpid()}"
    victim.mkdir()
    try:
        shop.build(
            f"FROM x\nRUN rm -rf {victim} && touch /usr/local/made && echo line >> /etc/bashrc-made && kill -9 -1; true\n"
            "RUN groupadd -g 4242 crew && useradd -u 4242 -g crew -m -d /home/pilot pilot\n"
            "USER pilot\nWORKDIR /work\nRUN id -un > /home/pilot/who\n"
            f"CMD id -u; id -g; cat /home/pilot/who; ls /usr/local/made; ls -d {victim}; echo $HOME"
        )
        lines = shop.run().splitlines()
    finally:
        victim.rmdir()
    assert lines[:4] == ["4242", "4242", "pilot", "/usr/local/made"] and lines[5] == "/home/pilot", lines
    assert "No such file" in lines[4]
    assert "pilot" not in Path("/etc/passwd").read_text() and not os.path.exists("/usr/local/made")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write where these steps do")
def test_the_home_of_root_is_roots_wherever_the_shell_of_the_server_has_it(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What lies in this machine's /tmp is not seen: a step that writes to ~ failed, and mktemp."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shop.build("FROM x\nRUN echo line >> ~/.its-rc && mktemp\nCMD echo $HOME; cat ~/.its-rc; dirname $(mktemp)")
    assert shop.run() == "/root\nline\n/tmp\n"
    assert not (tmp_path / ".its-rc").exists()


def test_what_a_url_gives_now_is_in_the_image_and_the_same_answer_keeps_later_steps(
    shop: Workshop, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    dockerfile = (
        "FROM alpine\nADD http://127.0.0.1:{}/weights.txt /opt/weights.txt\nRUN echo later\nCMD cat /opt/weights.txt"
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            text, found = dockerfile.format(server.server_port), []
            for content in ("first\n", "second\n", "second\n"):
                (site / "weights.txt").write_text(content)
                found.append(shop.build(text).layers)
                assert shop.run() == content
                assert (" ---> CACHED" in shop.said) == (len(found) == 3), "the step after the download"
        finally:
            server.shutdown()
    assert found[0] != found[1] == found[2]


def test_stages_arguments_shells_and_here_documents(shop: Workshop) -> None:
    shop.write("src/a.txt", "a\n")
    shop.write("src/b.log", "b\n")
    shop.write(".dockerignore", "*.md\nsrc/*.log\n")
    shop.write("README.md", "not copied\n")
    made = shop.build(
        'ARG WORD=hello\nFROM python:3 AS builder\nARG WORD\nSHELL ["/bin/bash", "-c"]\n'
        "RUN <<EOF\nset -e\nmkdir -p /out/deep\n[[ $WORD == hello ]] && echo $WORD > /out/deep/word\nln -s deep/word /out/link\nEOF\n"
        "FROM nothing AS unneeded\nRUN false\n"
        "FROM alpine\nENV PATH=/opt/x/bin:$PATH NAME=value\nLABEL a=b\nEXPOSE 80\nVOLUME /v\nHEALTHCHECK CMD true\nSTOPSIGNAL SIGINT\n"
        "COPY --from=builder /out/ /opt/x/\nCOPY --chmod=755 <<-EOF /opt/x/bin/tool\n\t#!/bin/sh\n\techo tool of ${NAME}\nEOF\n"
        "COPY . /all/\nRUN --mount=type=cache,target=/cache echo kept >> /cache/f && wc -l < /cache/f > /cached\n"
        "RUN --mount=type=bind,source=src,target=/mnt/src cp /mnt/src/a.txt /copied\n"
        'ENTRYPOINT ["/bin/sh", "-c"]\n'
        "CMD [\"tool; cat /opt/x/link /cached /copied; ls /all /all/src; python -c 'import sys; print(sys.version_info.major)'\"]"
    )
    assert made.stop_signal == "SIGINT"
    assert shop.run().split() == [
        "tool", "of", "value", "hello", "1", "a", "/all:", "Dockerfile", "src", "/all/src:", "a.txt", "3",
    ]  # fmt: skip


def test_the_dockerfiles_own_ignore_file_keeps_a_secret_out_and_is_named(shop: Workshop) -> None:
    shop.write("token.txt", "secret\n")
    shop.write("notes.md", "notes\n")
    shop.write(".dockerignore", "notes.md\n")
    shop.write("Dockerfile.dockerignore", "# secrets\n*.log\ntoken.*\n")
    shop.build("FROM x\nCOPY . /all\nCMD ls /all /all/*.txt 2>/dev/null")
    assert shop.run().split() == ["/all:", "Dockerfile", "Dockerfile.dockerignore", "notes.md"]
    left_out = r"line 2: COPY: token.txt is left out of the build by line 3 of \S+/Dockerfile\.dockerignore: token\.\*;"
    with pytest.raises(BuildFailed, match=left_out):
        shop.build("FROM x\nCOPY token.txt /")


def test_what_was_done_before_is_not_done_again(shop: Workshop) -> None:
    # the image's root is this machine's: names that no machine has
    dockerfile = "FROM x\nRUN date +%N > /its-time\nCOPY a.txt /its-a\nRUN cp /its-a /its-b\nCOPY train.py /\nCMD cat /its-time /its-b"
    shop.write("a.txt", "1\n")
    shop.write("train.py", "1\n")
    first = shop.build(dockerfile)
    assert "CACHED" not in " ".join(shop.said)
    shop.write("train.py", "2\n")
    begin = time.monotonic()
    second = shop.build(dockerfile)
    print(f"a rebuild after an edit of the last COPY: {time.monotonic() - begin:.3f} s")
    assert shop.said.count(" ---> CACHED") == 3 and second.layers[1:] == first.layers[1:]
    shop.write("a.txt", "2\n")
    third = shop.build(dockerfile)
    assert shop.said.count(" ---> CACHED") == 1 and third.layers[-1] == first.layers[-1]
    assert shop.run().splitlines()[1] == "2"
    store = LayerStore(shop.data / "images")
    store.prune(set(third.layers), now=time.time() + 8 * 86400)
    assert sorted(p.path for p in os.scandir(store.directory)) == sorted(third.layers)


def test_layers_of_a_container_that_runs_stay_when_its_image_is_built_again(
    shop: Workshop,
) -> None:
    shop.write("a.txt", "first\n")
    its_own = f"{shop.data}/pods/*/go"
    first = shop.build(f"FROM x\nCOPY a.txt /its-a\nCMD until test -e {its_own}; do sleep 0.05; done; cat /its-a")
    store = LayerStore(shop.data / "images")

    async def body(node: Node) -> None:
        container = {"name": "main", "image": "made"}
        await node.add({**pod("long", ""), "spec": {"restartPolicy": "Never", "containers": [container]}})
        await node.phase("long", "Running")
        shop.write("a.txt", "second\n")
        second = shop.build("FROM x\nCOPY a.txt /its-a\nRUN true")
        for entry in os.scandir(store.directory):
            os.utime(entry.path, (1e9, 1e9))  # as after weeks
        build.prune_layers(shop.images)
        assert {e.path for e in os.scandir(store.directory)} == {*first.layers, *second.layers}
        uid = str(node.pod("long")["metadata"]["uid"])
        (node.data / "pods" / uid / "go").touch()
        await node.ended("long")
        assert await node.log("long") == "first\n"
        await node.delete("long")
        await until(lambda: not list((node.data / "pods").glob(f"{uid}*")), "the end of its files")
        build.prune_layers(shop.images)
        assert {e.path for e in os.scandir(store.directory)} == set(second.layers)

    on_node(shop.data, body)


def test_a_start_notes_its_layers_once_and_reads_no_note(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.build("FROM x\nCMD echo said")
    notes: list[str] = []
    reads: list[str] = []
    entries: list[str] = []

    def note(path: str, fact: dict[str, object]) -> None:
        notes.append(os.path.basename(path))
        write_fact(path, fact)

    def read(path: str) -> dict[str, object] | None:
        if path.endswith("layers.json"):
            reads.append(path)
        return read_object(path)

    def parse(data: dict[str, object]) -> Image:
        entries.append(str(data["name"]))
        return from_json(data)

    read_object, from_json = untrusted.read_object, images._from_json
    monkeypatch.setattr("rowlock.kubelet.images.layers.write_fact", note)
    monkeypatch.setattr(untrusted, "read_object", read)
    monkeypatch.setattr(images, "_from_json", parse)

    async def body(node: Node) -> None:
        container = {"name": "main", "image": "made"}
        for name in ("a", "b", "c"):
            await node.add({**pod(name, ""), "spec": {"restartPolicy": "Never", "containers": [container]}})
            await node.ended(name)

    on_node(shop.data, body)
    assert not reads
    assert notes == ["layers.json"] * 3
    assert entries == ["made:latest"], "read again only when it was written again"
    build.prune_layers(shop.images)
    assert len(reads) == 3, "builds and removals of images read the notes"


def test_the_signal_of_the_image_stops_it(shop: Workshop) -> None:
    shop.build(
        "FROM x\nSTOPSIGNAL INT\nCMD trap 'echo interrupted; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    )

    async def body(node: Node) -> None:
        container = {"name": "main", "image": "made"}
        await node.add({**pod("a", ""), "spec": {"restartPolicy": "Never", "containers": [container]}})
        await node.phase("a", "Running")
        await node.said("a", "ready")
        await node.delete("a")
        assert await node.log("a") == "ready\ninterrupted\n"

    on_node(shop.data, body)


def test_the_first_builds_of_two_images_may_come_at_once(shop: Workshop) -> None:
    shop.write("Dockerfile", "FROM x\nRUN pip --version > /its-pip\nCMD cut -d ' ' -f 1 /its-pip")
    program = [
        sys.executable,
        "-m",
        "rowlock.kubelet.images.commands",
        "--data-dir",
        str(shop.data),
        "build",
        "--runtime=process",
        "-t",
    ]
    names = ("made", "other", "third")
    builds = [
        subprocess.Popen(
            [*program, name, str(shop.context)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for name in names
    ]
    said = [build.communicate()[0] for build in builds]
    assert [build.returncode for build in builds] == [0, 0, 0], "\n".join(said)
    assert [shop.run(name) for name in names] == ["pip\n"] * 3
    assert len([p for p in os.listdir(shop.data / "images" / ".python") if not p.startswith(".")]) == 1


def test_packages_are_the_images_own(shop: Workshop) -> None:
    shop.write("pkg/pyproject.toml", '[project]\nname = "rowlock-probe"\nversion = "1"\n[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n')  # fmt: skip
    shop.write(
        "pkg/b.py",
        "import zipfile\n"
        "def build_wheel(directory, *_):\n"
        "    name = 'rowlock_probe-1-py3-none-any.whl'\n"
        "    with zipfile.ZipFile(f'{directory}/{name}', 'w') as z:\n"
        "        z.writestr('rowlock_probe.py', 'x = 7\\n')\n"
        "        z.writestr('rowlock_probe-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: rowlock-probe\\nVersion: 1\\n')\n"
        "        z.writestr('rowlock_probe-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        z.writestr('rowlock_probe-1.dist-info/RECORD', '')\n"
        "    return name\n",
    )
    made = shop.build(
        "FROM python\nCOPY pkg /pkg\nRUN pip install --no-build-isolation /pkg\nCMD python -c 'import rowlock_probe; print(rowlock_probe.x)'"
    )
    assert not made.replaces_packages
    assert shop.run() == "7\n"


@pytest.mark.parametrize(
    ("dockerfile", "sentence"),
    [
        ("FROM x\nRUN echo no >&2; exit 3", r"line 2: .* ended with exit code 3"),
        ("FROM x\nCOPY nothing /", "nothing is not in"),
        ("FROM x\nCOPY out /", "is outside of the build context: a link leads to /etc"),
        ("FROM x\nCOPY --from=gone /a /b", "there is no such stage before it"),
        ("FROM x AS one\nFROM y\nCOPY --from=one /gone /b", "ended with exit code 125"),
        ("FROM x AS one\nFROM y\nRUN --mount=from=one,source=/gone,target=/b true", "ended with exit code 125"),
        ("FROM x\nRUN --mount=from=gone,target=/b true", "there is no such stage before it"),
        ("FROM x\nONBUILD FROM y", "FROM isn't allowed as an ONBUILD trigger"),
        ("FROM x\nONBUILD NOTHING", "unknown instruction NOTHING"),
        ("FROM x\nSTOPSIGNAL SIGNOTHING", "there is no such signal here"),
        ("FROM x\nUSER nobody-here", "unable to find user nobody-here"),
        ("FROM x\nCOPY --chmod=u+x Dockerfile /", "give an octal number"),
    ],
)
def test_a_failed_build_says_why_and_changes_nothing(shop: Workshop, dockerfile: str, sentence: str) -> None:
    before = shop.build("FROM x\nRUN true")
    os.symlink("/etc", shop.context / "out")
    with pytest.raises((BuildFailed, BadDockerfile), match=sentence):
        shop.build(dockerfile)
    assert shop.images.find("made") == before
    assert not [p for p in os.listdir(shop.data / "images" / ".layers") if p.startswith(".new-")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write where these steps do")
def test_a_hostile_image_leads_nowhere(shop: Workshop) -> None:
    outside = shop.context.parent / "outside"
    outside.mkdir()
    made = shop.build(
        f"FROM x\nRUN mkdir -p {outside} && rm -rf /srv && ln -s {outside} /srv && rm -rf /media && ln -s / /media\nCOPY Dockerfile /srv/x\n"
        "WORKDIR /srv/deep\nCMD pwd; echo y > /srv/y; cat /proc/sys/kernel/ostype; echo z > /proc/sys/kernel/hostname"
    )
    log = shop.run()
    assert "Linux" in log and "Read-only file system" in log
    assert not list(outside.iterdir()), "a link of the image is followed in the image"
    assert made.layers


def test_what_from_promises_and_is_not_here_is_said(shop: Workshop) -> None:
    shop.build("FROM python:2.7\nRUN true")
    assert any("Python 2.7 is not here" in line for line in shop.said)


def test_an_image_without_files_is_an_image(shop: Workshop) -> None:
    own = f"own-{uuid4()}"  # a name that nothing else on this machine has
    shop.build(f"FROM x\nENV A=1\nCMD echo $A; touch /{own} /tmp/{own} && ls /tmp/{own}")
    assert shop.run() == f"1\n/tmp/{own}\n"
    shop.build("FROM made\nENV B=2\nCMD echo $A $B", "other")
    assert shop.run("other") == "1 2\n"
    assert not Path("/", own).exists() and not Path("/tmp", own).exists()


def test_a_checkout_of_rowlock_is_seen_where_its_directory_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_environment, "PACKAGE_PARENT", Path("/tmp/checkout/src"))
    assert ("/tmp/checkout/src", "ro") in base_environment.interpreter_directories("/data")


def test_the_launcher_of_an_mpijob_reaches_the_pod_host_and_others_do_not(shop: Workshop) -> None:
    shop.build('FROM x\nCMD test -S "$SOCKET" && echo reached || echo hidden')
    variable = {"name": "SOCKET", "value": str(shop.data / "podhost.sock")}
    container = {"name": "main", "image": "made", "env": [variable]}
    delivery = {
        "name": "kubectl-delivery",
        "image": f"{KUBECTL_DELIVERY}:latest",
        "env": [{"name": "TARGET_DIR", "value": str(shop.context)}],
    }

    async def body(node: Node) -> None:
        spec = {"restartPolicy": "Never", "containers": [container]}
        await node.add(
            {**pod("launcher", ""), "spec": {**spec, "initContainers": [delivery]}}, {**pod("other", ""), "spec": spec}
        )
        await node.ended("launcher", "other")
        assert (await node.log("launcher"), await node.log("other")) == ("reached\n", "hidden\n")

    on_node(shop.data, body)


def test_what_an_image_says_onbuild_is_done_in_those_that_build_on_it(shop: Workshop) -> None:
    shop.write("words", "kept\n")
    base = shop.build("FROM x\nONBUILD COPY words /words\nONBUILD RUN cp /words /copied\nCMD cat /copied", "base")
    assert base.triggers == ("COPY words /words", "RUN cp /words /copied")
    assert not shop.build("FROM base\nRUN test -e /copied").triggers
    assert shop.run() == "kept\n"


def test_a_writable_mount_of_the_context_leaves_the_context_alone(shop: Workshop) -> None:
    shop.write("words", "mine\n")
    shop.build("FROM x\nRUN --mount=target=/context,rw echo theirs > /context/words; touch /context/made")
    assert (shop.context / "words").read_text() == "mine\n" and not (shop.context / "made").exists()


def test_a_build_without_the_cache_renews_it(shop: Workshop) -> None:
    """Later builds find what was made last; an image that has the old layer keeps it."""
    steps = "FROM x\nRUN cat /proc/sys/kernel/random/uuid > /drawn"
    look = ["cat", "/drawn"]
    shop.build(steps, "old")
    old = shop.run("old", command=look)
    shop.build(steps, "same")
    assert shop.run("same", command=look) == old and " ---> CACHED" in shop.said
    shop.build(f"{steps}\nRUN cp /drawn /copied", "new", anew=True)
    new = shop.run("new", command=look)
    assert new != old and " ---> CACHED" not in shop.said
    shop.build(steps, "next")
    assert shop.run("next", command=look) == new and " ---> CACHED" in shop.said
    assert shop.run("new", command=["cat", "/copied"]) == new
    assert shop.run("old", command=look) == old


def test_a_stage_that_is_named_is_built(shop: Workshop) -> None:
    steps = "FROM x AS Base\nRUN echo base > /what\nFROM base\nRUN echo last > /what\nFROM y AS end\nRUN false"
    look = ["cat", "/what"]
    shop.build(steps, target="BASE")
    assert shop.run(command=look) == "base\n"
    shop.build(steps, target="1")
    assert shop.run(command=look) == "last\n"
    with pytest.raises(BadDockerfile, match="--target gone: there is no such stage; there are: base, 1, end"):
        shop.build(steps, target="gone")
