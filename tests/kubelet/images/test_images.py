"""Names of images, Dockerfiles, and what is built from them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.kubelet.images import build, commands
from rowlock.kubelet.images.build_context import (
    BuildFailed,
    BuildRequest,
    explain_absence,
    find_ignore_file,
    is_excluded,
    parse_dockerignore,
)
from rowlock.kubelet.images.dockerfile import (
    BadDockerfile,
    parse,
    require_simple,
)
from rowlock.kubelet.images.images import Image, Images, command_line, map_path, normalise
from rowlock.kubelet.images.word_expansion import expand_word, split_words
from rowlock.kubelet.pod.facts import Problem
from rowlock.kubelet.pod.spec import parse_container

SEED = """FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime

RUN pip install {package}

# Set the working directory
WORKDIR /app

COPY train.py launch.sh /app/
RUN chmod u+x launch.sh
CMD ["./launch.sh"]
"""

SILENT = parse_container({"name": "c"})
"""A container that says nothing."""


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("busybox", "busybox:latest"),
        ("docker.io/library/busybox:1", "busybox:1"),
        ("/team/x", "team/x:latest"),
        ("docker.io/YOUR-USER-NAME/distributed_training_pytorch", "your-user-name/distributed_training_pytorch:latest"),
        ("registry:5000/a/b:T", "registry:5000/a/b:T"),
        (f"a:1@sha256:{'AB' * 32}", f"a@sha256:{'ab' * 32}"),
    ],
)
def test_one_spelling(reference: str, name: str) -> None:
    assert normalise(reference) == name


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "a b",
        "a:",
        "a//b",
        "-x",
        "a:b:c",
        "a@",
        "a@sha256:ab",
        f"a@sha256:{'0' * 64}/../x",
        f"a@s:{'0' * 64} HTTP/1.1\r\n",
    ],
)
def test_what_is_no_name(reference: str) -> None:
    with pytest.raises(ValueError, match="invalid reference format"):
        normalise(reference)


@pytest.mark.parametrize(
    ("image", "container", "words"),
    [
        (Image("i", entrypoint=("e",), command=("c",)), {}, ["e", "c"]),
        (Image("i", entrypoint=("e",), command=("c",)), {"args": ["a"]}, ["e", "a"]),
        (Image("i", entrypoint=("e",), command=("c",)), {"command": ["x"]}, ["x"]),
        (Image("i", command=("c",)), {"command": ["x"], "args": ["a"]}, ["x", "a"]),
    ],
)
def test_command_lines_follow_docker(image: Image, container: dict[str, list[str]], words: list[str]) -> None:
    assert command_line(image, parse_container({"name": "c", **container})) == words


def test_an_image_without_a_command_says_so() -> None:
    found = command_line(Image("i:1", host=True), SILENT)
    assert isinstance(found, Problem) and "the pod must give `command` or `args`" in found.message
    found = command_line(Image("host:latest", host=True), SILENT)
    assert isinstance(found, Problem) and "rowlock build" not in found.message  # nobody builds the machine


def test_the_dockerfile_of_the_seeds() -> None:
    steps = [(s.name, s.words, s.shell) for s in parse(SEED.format(package="torch"))[0].steps]
    assert steps == [
        ("FROM", ("pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime",), False),
        ("RUN", (), True),
        ("WORKDIR", ("/app",), False),
        ("COPY", ("train.py", "launch.sh", "/app/"), False),
        ("RUN", (), True),
        ("CMD", ("./launch.sh",), False),
    ]


def test_arguments_variables_and_continued_lines() -> None:
    text = 'ARG V=1\nFROM base:${V}\nENV A=x B="y z"\nENV OLD style value\nRUN a \\\n  # why\n  b\nWORKDIR /$A/${N:-d}\nLABEL x=y'
    (stage,) = parse(text, {"V": "2"})
    steps = stage.steps
    assert stage.base == "base:2" and [str(s) for s in steps] == [
        "FROM base:2", 'ENV A=x B="y z"', "ENV OLD style value", "RUN a   b", "WORKDIR /x/d", "LABEL x=y",
    ]  # fmt: skip
    assert steps[1].words == ("A=x", "B=y z") and steps[2].words == ("OLD=style value",)
    assert expand_word("${A:+yes}${B:+no}\\$A", {"A": "1"}) == "yes$A"
    assert expand_word("'$A'\"$A b\"${B:-'c d'}${F#*.}${F##*.}${F%.*}${F%%.*}${F/x/-}", {"A": "1", "F": "x.y.z"}) == (
        "$A1 bc dy.zzx.yx-.y.z"
    )
    assert split_words("a 'b c'd \"e f\" g\\ h") == ["a", "'b c'd", '"e f"', "g\\ h"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("RUN x", "line 1: RUN before FROM"),
        ("", "no FROM"),
        ("FROM a\nCOYP a b", "did you mean COPY"),
        ("FROM a\nRUN --mount=type=secret,id=x x", "type=secret is not supported; cache, bind, tmpfs are"),
        ("FROM a\nRUN --mount=type=cache x", "RUN --mount needs target="),
        ("FROM a\nRUN cat <<EOF\nx", "here-document EOF has no end"),
        ("FROM a b c d", "FROM takes an image and, at most, AS name"),
        ("FROM a\nCOPY a", "needs a source and a destination"),
        ("FROM a\nRUN x \\", "ends with a backslash"),
        ("FROM a\nENV X", "ENV needs KEY=VALUE"),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadDockerfile, match=sentence):
        parse(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("FROM a\nFROM b", "line 2: a second FROM"),
        ("FROM a\nRUN apt-get update && apt-get install -y git", "apt-get would change this machine itself"),
        ('FROM a\nRUN ["apt-get", "update"]', "apt-get would change this machine itself"),
        ("FROM a\nCOPY --from=x a b", "COPY --from needs an image with files of its own"),
        ("FROM a\nRUN --mount=type=cache,target=/x x", "RUN --mount is not supported"),
        ("FROM a\nRUN cat <<EOF\nEOF", "here-documents"),
    ],
)
def test_what_steps_on_the_machine_itself_cannot_do(text: str, sentence: str) -> None:
    with pytest.raises(BadDockerfile, match=sentence):
        require_simple(parse(text))


def test_stages_scopes_and_here_documents() -> None:
    text = (
        "# escape=`\nARG V=3\nARG ONLY\nFROM a:$V AS one\nENV P=1 PATH=/x:$PATH\nARG V\nRUN echo $V `\n  more\n"
        "FROM one\nRUN <<EOF\nset -e\n  x\nEOF\nCOPY <<-'END' a.txt /d/\n\t$no\nEND\nENV Q=${P}2"
    )
    one, two = parse(text, {"ONLY": "x"}, lambda base: {"PATH": f"/of/{base}"})
    assert (one.name, one.base, two.name, two.base) == ("one", "a:3", "", "one")
    assert [s.words for s in one.steps if s.name in ("ENV", "ARG")] == [("P=1", "PATH=/x:/of/a:3"), ("V=3",)]
    assert one.steps[-1].text == "echo $V   more"
    script, copied, last = two.steps[1:]
    assert script.heredocs[0].text == "set -e\n  x\n" and script.shell
    assert copied.words == ("<<-END", "a.txt", "/d/") and (copied.heredocs[0].text, copied.heredocs[0].expand) == (
        "$no\n",
        False,
    )
    assert last.words == ("Q=12",)


def test_build_arguments_nobody_declared() -> None:
    with pytest.raises(BadDockerfile, match="no ARG for --build-arg X"):
        parse("FROM a", {"X": "1"})


def test_dockerignore() -> None:
    rules = parse_dockerignore("# no\n*.pyc\ndata\n**/secret\n!data/keep\n")
    paths = ["a.pyc", "b/a.pyc", "data/x", "data/keep", "a/b/secret", "train.py"]
    assert [p for p in paths if is_excluded(p, rules)] == ["a.pyc", "data/x", "a/b/secret"]


def test_the_ignore_file_named_after_a_dockerfile_comes_first_also_outside_the_context(tmp_path: Path) -> None:
    context, docker = tmp_path / "context", tmp_path / "docker"
    context.mkdir()
    docker.mkdir()
    train = docker / "train.Dockerfile"
    assert find_ignore_file(context, train) is None
    common, own = context / ".dockerignore", docker / "train.Dockerfile.dockerignore"
    common.write_text("a\n")
    assert find_ignore_file(context, train) == common
    own.write_text("")
    assert find_ignore_file(context, train) == own, "an empty one leaves nothing out"
    assert find_ignore_file(context, docker / "Dockerfile") == common


def test_a_copy_of_what_is_left_out_names_the_rule_that_decides(tmp_path: Path) -> None:
    ignored = tmp_path / ".dockerignore"
    ignored.write_text("# all\n*\n!keys\nkeys/*.pem\nother\n")
    assert explain_absence("keys/*", ["keys/a.pem"], tmp_path, ignored) == (
        f"keys/* is left out of the build by line 4 of {ignored}: keys/*.pem;"
        " remove that line, or add !keys/a.pem below it"
    )
    assert explain_absence("missing", [], tmp_path, ignored) == f"missing is not in {tmp_path}"


def test_a_build_without_layers_reads_the_dockerfiles_own_ignore_file(tmp_path: Path) -> None:
    context = _context(tmp_path, "FROM x\nCOPY . /opt/x")
    (context / "Dockerfile.dockerignore").write_text("data\n")
    order = BuildRequest("x", context, context / "Dockerfile")
    made = build.build(Images(tmp_path / "images"), order, lambda line: None, layered=False)
    assert sorted(os.listdir(Path(made.root) / "opt/x")) == [
        "Dockerfile",
        "Dockerfile.dockerignore",
        "launch.sh",
        "train.py",
    ]
    (context / "Dockerfile").write_text("FROM x\nCOPY data/x /")
    with pytest.raises(
        BuildFailed, match=r"data/x is left out of the build by line 1 of .*Dockerfile\.dockerignore: data;"
    ):
        build.build(Images(tmp_path / "images"), order, lambda line: None, layered=False)


def _context(tmp_path: Path, dockerfile: str) -> Path:
    context = tmp_path / "context"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(dockerfile)
    (context / "train.py").write_text("import os, sys; print('trained', sys.argv[1:], os.environ.get('EPOCHS'))\n")
    (context / "launch.sh").write_text("#!/bin/sh\npwd\nexec python train.py --batch_size 8\n")
    (context / "data").mkdir(exist_ok=True)
    (context / "data" / "x").write_text("data\n")
    return context


def test_the_seeds_image_is_built_and_runs(tmp_path: Path) -> None:
    context = _context(tmp_path, SEED.format(package="click"))
    data = tmp_path / "data"
    data.mkdir()
    said: list[str] = []
    reference = "docker.io/YOUR-USER-NAME/distributed_training_pytorch"
    made = build.build(
        Images(data / "images"), BuildRequest(reference, context, context / "Dockerfile"), said.append, layered=False
    )
    assert said[0] == "Step 1/6 : FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime"
    assert any("Requirement already satisfied: click" in line for line in said)

    async def body(node: Node) -> None:
        container = {"name": "main", "image": reference}
        given = {**pod("a", ""), "spec": {"restartPolicy": "Never", "containers": [container]}}
        await node.add(given)
        await node.ended("a")
        first, second = (await node.log("a")).splitlines()
        assert first.endswith("/main/rootfs/app") and not first.startswith(made.root), "a copy of its own"
        assert second == "trained ['--batch_size', '8'] None"

    on_node(data, body)


def test_what_a_program_writes_stays_out_of_the_image_and_checkpoints_stay(tmp_path: Path) -> None:
    script = "cat $PWD/seen /seen 2>/dev/null; echo $0 > seen; echo kept >> $ROWLOCK_CHECKPOINT_DIR/c; cat $ROWLOCK_CHECKPOINT_DIR/c; exit 3"
    context = _context(tmp_path, f"FROM scratch\nWORKDIR /app\nCOPY train.py .\nCMD {script}\n")
    data = tmp_path / "data"
    data.mkdir()
    made = build.build(
        Images(data / "images"),
        BuildRequest("writer", context, context / "Dockerfile"),
        lambda line: None,
        layered=False,
    )

    async def body(node: Node) -> None:
        spec = {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "writer"}]}
        await node.add({**pod("a", ""), "spec": spec})
        await until(lambda: (node.state("a", "restartCount") or 0) >= 1, "a restart")
        await node.said("a", "kept\nkept\n")
        assert await node.log("a", previous=True) == "kept\n", "nothing seen of a run before"
        await node.delete("a")
        assert sorted(p.name for p in Path(made.root, "app").iterdir()) == ["train.py"]

    on_node(data, body, restart_backoff=30.0)


def test_paths_of_the_image_mean_its_files_and_a_failed_build_changes_nothing(tmp_path: Path) -> None:
    table, said = Images(tmp_path / "images"), list[str]()
    good = (
        "FROM scratch\nENV EPOCHS=3\nWORKDIR /opt/x\nCOPY . .\nADD data /data/\nRUN cat /data/x > /opt/x/seen\n"
        'EXPOSE 80\nENTRYPOINT ["python", "/opt/x/train.py"]\nCMD ["a"]'
    )
    context = _context(tmp_path, good)
    order = BuildRequest("x", context, context / "Dockerfile")
    made = build.build(table, order, said.append, layered=False)
    assert (Path(made.root) / "opt/x/seen").read_text() == "data\n"
    words = command_line(made, SILENT)
    assert not isinstance(words, Problem)
    words = [map_path(word, made.root) for word in words]
    assert words == ["python", f"{made.root}/opt/x/train.py", "a"]
    env = {**os.environ, **made.env, "PATH": f"{made.path[0]}:{os.environ['PATH']}"}
    assert subprocess.check_output(words, env=env, text=True) == "trained ['a'] 3\n"
    (context / "Dockerfile").write_text(good + "\nRUN echo no >&2; exit 3")
    with pytest.raises(BuildFailed, match=r"line 10: .* ended with exit code 3"):
        build.build(table, order, said.append, layered=False)
    assert said[-1] == "no" and table.find("x") == made and Path(made.root).exists()
    (context / "Dockerfile").write_text("FROM x\nCOPY nothing /")
    with pytest.raises(BuildFailed, match="nothing is not in"):
        build.build(table, order, said.append, layered=False)
    (context / "Dockerfile").write_text("FROM x\nCMD echo $EPOCHS")
    again = build.build(table, order, said.append, layered=False)
    assert (Path(again.root) / "data/x").exists() and again.env == {"EPOCHS": "3"}
    assert again.entrypoint == ("python", "/opt/x/train.py") and again.command == ("/bin/sh", "-c", "echo $EPOCHS")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*words: str) -> tuple[int | str | None, str]:
        try:
            code: int | str | None = commands.main(["--data-dir", str(tmp_path), *words])
        except SystemExit as error:
            code = error.code
        output = capsys.readouterr()
        return code, output.out + output.err

    assert call("add", "busybox:1", "--host") == (0, "image busybox:1 added\n")
    assert call("add", "mine", "--dir", str(tmp_path), "--entrypoint", "python 'a b.py'", "--json")[0] == 0
    rows = json.loads(call("list", "--json")[1])
    assert [(r["name"], r["kind"], r["entrypoint"]) for r in rows] == [
        ("host", "host", []),
        ("busybox:1", "host", []),
        ("mine:latest", "added", ["python", "a b.py"]),
    ]
    assert call("remove", "busyboxx:1") == (1, 'Error: no image "busyboxx:1" here; did you mean "busybox:1"?\n')
    assert call("remove", "docker.io/library/busybox:1") == (0, "image busybox:1 removed\n")
    assert call("add", "x")[0] == 2 and call("add", "a b", "--host")[0] == 1
    code, refusal = call("add", "x", "--dir", str(tmp_path / "gone"))
    assert code == 2 and f"there is no directory {tmp_path}/gone" in refusal
    code, refusal = call("add", "x", "--dir", __file__)
    assert code == 2 and f"{__file__} is a file" in refusal
    assert call("add", "x", "--host", "--python", "/gone")[0] == 2
    code, refusal = call("build", "-t", "x", "--runtime", "podman", str(tmp_path))
    assert code == 2 and "invalid choice: 'podman'" in refusal
    missing = f"Error: no Dockerfile at {tmp_path}/Dockerfile; -f FILE names another one\n"
    assert call("build", "-t", "x", "--runtime", "process", str(tmp_path)) == (1, missing)
    assert call("build", "--help")[0] == 0 and call()[0] == 2


def test_the_data_directory_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWLOCK_DATA_DIR", str(tmp_path / "a"))
    assert commands.main(["add", "x", "--host"]) == 0
    assert [image.name for image in Images(tmp_path / "a" / "images").all()] == ["x:latest"]
    monkeypatch.delenv("ROWLOCK_DATA_DIR")
    with pytest.raises(SystemExit) as refusal:
        commands.main(["list"])
    assert refusal.value.code == 2 and "--data-dir" in capsys.readouterr().err


def test_a_build_with_json_tells_its_steps_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nARG N\nRUN echo built $N")
    line = ["--data-dir", str(tmp_path), "build", "-t", "x", "--build-arg", "N=3", "--runtime", "process", "--json"]
    assert commands.main([*line, str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["image"] == "x:latest" and "built 3\n" in output.err


def test_a_build_loads_nothing_that_only_a_download_needs() -> None:
    """It took a third of the time of a build in which nothing had changed."""
    program = "import sys, rowlock.kubelet.images.commands; sys.exit('urllib.request' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
