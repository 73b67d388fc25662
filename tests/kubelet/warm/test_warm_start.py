"""Warm starts: which programs may be forked, and that a forked program cannot tell the difference."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, shim_request, until

from rowlock.kubelet.shim import pod_host
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.kubelet.warm import eligibility
from rowlock.kubelet.warm.warm_parents import MAX_PARENTS, MAX_UNUSED_PARENTS, WarmParents

ENV = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": "/root", "A": "b"}


@pytest.fixture
def torchlike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligibility, "torch_of", lambda interpreter: "a torch")


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("python train.py --lr 1", ("file", "train.py", "--lr", "1")),
        ("python3 -u -B train.py", ("file", "train.py")),
        ("python -m torch.distributed.run x.py", ("module", "torch.distributed.run", "x.py")),
        ("python -c import_torch a", ("text", "import_torch", "a")),
        ("./tool a", ("file", "./tool", "a")),
        ("python other.py", None),
        ("python -c print(1)", None),
        ("python -m http.server", None),
        ("python -O train.py", None),
        ("python missing.py", None),
        ("python", None),
        ("sh -c train.py", None),
        ("nothing-of-this-name", None),
    ],
)
def test_which_programs_may_start_warm(
    tmp_path: Path, torchlike: None, monkeypatch: pytest.MonkeyPatch, line: str, program: tuple[str, ...] | None
) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "other.py").write_text("import json\n")
    (tmp_path / "tool").write_text(f"#!{sys.executable}\nfrom torch.distributed.run import main\n")
    (tmp_path / "tool").chmod(0o755)
    found = eligibility.plan_warm_start(line.split(" "), ENV, str(tmp_path))
    assert (found.program if found else None) == program


def test_a_program_that_was_no_python_is_looked_at_again_a_second_later(
    tmp_path: Path, torchlike: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("rowlock.kubelet.warm.eligibility.time.monotonic", lambda: now)
    monkeypatch.setattr(eligibility, "_others", {})

    def is_warm() -> bool:
        return eligibility.plan_warm_start(["tool"], {**ENV, "PATH": str(tmp_path)}, "/") is not None

    assert not is_warm()
    (tmp_path / "tool").write_text(f"#!{sys.executable}\nimport torch\n")
    (tmp_path / "tool").chmod(0o755)
    assert not is_warm()
    now = 1.1
    assert is_warm()
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    assert not is_warm(), "a Python is looked at each time"


def test_programs_share_a_parent_when_they_agree_on_what_is_read_at_import(torchlike: None) -> None:
    def key(flag: str = "-B", **more: str) -> str:
        found = eligibility.plan_warm_start(["python", flag, "-c", "torch"], {**ENV, **more}, "/")
        assert found
        return found.key

    assert key() == key(RANK="1", MASTER_ADDR="a", OMP_NUM_THREADS="7", CUDA_VISIBLE_DEVICES="GPU-1", A="c")
    assert key() == key(TORCHELASTIC_ERROR_FILE="/of/this/run/only", TORCHELASTIC_RUN_ID="7")
    assert len({key(), key("-u"), key(PYTHONPATH="/x"), key(LD_PRELOAD="a.so"), key(TORCH_LOGS="all")}) == 5


class Started:
    """Programs from a warm parent that imports nothing but the standard library, and the same started cold."""

    def __init__(self, place: Path, parents: WarmParents | None = None) -> None:
        self.place = place
        self._parents = parents or WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, [])

    def spec(self, argv: list[str], env: dict[str, str]) -> dict[str, object]:
        found = eligibility.plan_warm_start(argv, env, str(self.place))
        assert found
        directory = self.place / f"container-{len(list(self.place.glob('container-*')))}"
        directory.mkdir()
        request = shim_request(
            directory,
            argv,
            cwd=str(self.place),
            own_directory="" if self.place.is_symlink() else str(self.place),
            hint="uid/main",
            env=env,
            warm=found.spec(),
        )
        return request.to_json()

    def key(self, argv: list[str], env: dict[str, str]) -> str:
        found = eligibility.plan_warm_start(argv, env, str(self.place))
        assert found
        return found.key

    def warm(self, argv: list[str], env: dict[str, str], **more: object) -> tuple[int, str]:
        spec = self.spec(argv, env) | more
        self._parents._make_parent(spec["warm"])  # type: ignore[arg-type] # a plain dict
        pid = 0
        while not pid:
            pid, why = self._parents.fork(spec, {"network": -1})
            assert not why
        end = Path(str(spec["directory"])) / "exit.0"
        while not end.exists():
            assert ticks(pid) or end.exists(), "the shim died without a word"
        said = (end.parent / "log.0").read_text()
        return json.loads(end.read_text())["code"], "".join(line.partition(" ")[2] for line in said.splitlines(True))

    def cold(self, argv: list[str], env: dict[str, str]) -> tuple[int, str]:
        done = subprocess.run(
            argv, env=env, cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout

    def close(self) -> None:
        for key in list(self._parents._parents):
            self._parents._kill_parent(key)


@pytest.fixture
def started(tmp_path: Path, torchlike: None) -> Iterator[Started]:
    made = Started(tmp_path)
    yield made
    made.close()


PATHS = """
import json, os, sys   # torch
try:
    import lab
except ImportError:
    lab = None
print(sys.path, lab and lab.__file__)
"""


@pytest.mark.parametrize("entries", ["src", ":src", "src:", ".", "src/../src", "late", "/nowhere:src"])
def test_pythonpath_means_what_it_means_in_the_directory_of_the_program(
    tmp_path: Path, torchlike: None, entries: str
) -> None:
    parents, env = WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, []), {**ENV, "PYTHONPATH": entries}
    projects = []
    for name in ("one", "two"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src/lab.py").write_text("")
        (tmp_path / f"link-{name}").symlink_to(tmp_path / name)
        projects += [Started(tmp_path / name, parents), Started(tmp_path / f"link-{name}", parents)]
    argv = ["python", "-c", PATHS]
    try:
        for project in projects:
            assert project.warm(argv, env) == project.cold(argv, env)
        for project in projects:
            late = project.place / "late"
            late.mkdir(exist_ok=True)
            (late / "lab.py").write_text("")
            assert project.warm(argv, env) == project.cold(argv, env), "a directory that came after the parent"
    finally:
        parents.kill_parents()


def test_a_safe_path_has_no_directory_of_the_program(started: Started) -> None:
    argv, env = ["python", "-c", PATHS], {**ENV, "PYTHONSAFEPATH": "1", "PYTHONPATH": "/nowhere"}
    assert started.warm(argv, env) == started.cold(argv, env)


@pytest.mark.parametrize("name", ["json.py", "sitecustomize.py", "usercustomize.py"])
def test_what_pythonpath_has_in_the_place_of_an_imported_module_starts_cold(
    tmp_path: Path, started: Started, name: str
) -> None:
    argv, env = ["python", "-c", "# torch"], {**ENV, "PYTHONPATH": "src"}
    started.warm(argv, env)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / name).write_text("")
    expected = f"{tmp_path}/src/{name} has the name of a module that is imported before it"
    assert started._parents.fork(started.spec(argv, env), {}) == (0, expected)


PROGRAM = """
import atexit, json, os, signal, sys, threading, time   # torch
import beside
names = ["argv", "orig_argv", "flags", "path", "executable", "prefix"]
print(json.dumps({n: getattr(sys, n) for n in names}))
print(__name__, __file__, __spec__ if "__spec__" in dir() else None, sys.modules["__main__"].__dict__ is globals())
print(sorted(os.environ.items()), os.getcwd(), sorted(m for m in sys.modules if "rowlock" in m))
print([str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP)])
print(sorted(set(os.listdir("/proc/self/fd")) - {"3"}), sys.stdin.read() == "", os.nice(0))
print([open(f"/proc/self/{n}").read() for n in ("cmdline", "environ", "comm")])
print(threading.current_thread() is threading.main_thread(), threading.active_count(), sys.stdout.line_buffering)
atexit.register(lambda: print("at exit"))
threading.Thread(target=lambda: (time.sleep(0.05), print("a thread ended"))).start()
sys.stdout.write("not flushed by hand")
"""


def test_a_forked_program_cannot_tell(tmp_path: Path, started: Started) -> None:
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "tool").write_text(f"#!{sys.executable}\n{PROGRAM}")
    (tmp_path / "tool").chmod(0o755)
    from_path, flagged = ["python", "train.py", "a b", "--lr=1"], ["python", "-u", str(tmp_path / "train.py")]
    for argv in (from_path, flagged, ["./tool", "é"]):
        forked, executed = started.warm(argv, ENV), started.cold(argv, ENV)
        for ours, theirs in zip(forked[1].splitlines(), executed[1].splitlines(), strict=True):
            assert ours == theirs
        assert forked[0] == executed[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
def test_a_forked_program_of_another_user_owns_itself(started: Started) -> None:
    text = "import os  # torch\nprint(os.getuid(), os.stat('/proc/self/fd').st_uid, os.listdir('/proc/self/fd')[0])"
    ended = started.warm([sys.executable, "-c", text], ENV, user={"uid": 65534, "gid": 65534})
    assert ended == (0, "65534 65534 0\n")


def test_where_the_kernel_cannot_move_a_command_line_it_is_written_over_the_old_one() -> None:
    text = """
import struct, sys
from rowlock.kubelet.warm import command_line
command_line._set_mm_map = lambda *_: False
for words in (["python", "train.py", "--lr=1"], ["python", "x" * 10_000]):
    command_line.show("/usr/bin/python", words, {"RANK": "0"})
    sys.stdout.write(open("/proc/self/cmdline").read().rstrip("\\0") + "\\n")
print(open("/proc/self/environ").read().split("\\0")[0])
"""
    done = subprocess.run([sys.executable, "-c", text], env={"FIRST": "1"}, capture_output=True, text=True, check=True)
    short, long, first = done.stdout.splitlines()
    assert short.split("\0") == ["python", "train.py", "--lr=1"]
    assert long.startswith("python\0xxx") and 100 < len(long) < 1_000, "cut where the old one ended"
    assert first == "FIRST=1"


ENDS: list[tuple[str, Callable[[int, str], bool]]] = [
    ("import sys; sys.exit(3)", lambda code, _: code == 3),
    ("import sys; sys.exit('a sentence')", lambda code, said: code == 1 and said == "a sentence\n"),
    ("raise SystemExit", lambda code, _: code == 0),
    ("1 / 0", lambda code, said: code == 1 and said.endswith("ZeroDivisionError: division by zero\n")),
    ("import nothing_of_this_name", lambda code, _: code == 1),
    ("def broken(:", lambda code, said: code == 1 and "SyntaxError" in said),
    ("import os; os.kill(os.getpid(), 9)", lambda code, _: code == 137),
    ("import os; os.kill(os.getpid(), 15)", lambda code, _: code == 143),
    ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", lambda code, _: code == 130),
    ("import os; os._exit(7)", lambda code, _: code == 7),
]


def test_it_ends_as_a_program_ends(tmp_path: Path, started: Started) -> None:
    for text, expected in ENDS:
        (tmp_path / "train.py").write_text(f"# torch\n{text}\n")
        for argv in (["python", "train.py"], ["python", "-c", f"# torch\n{text}"]):
            code, said = started.warm(argv, ENV)
            assert (code, said) == started.cold(argv, ENV), argv
            assert expected(code, said), (text, code, said)


def test_a_module_of_the_users_that_torch_has_hidden_starts_cold(tmp_path: Path, started: Started) -> None:
    (tmp_path / "train.py").write_text("# torch\n")
    started.warm(["python", "train.py"], ENV)
    for name in ("json.py", "random/__init__.py", "json/data.txt", "random.pt", "json.yaml", "gc.out"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        pid, why = started._parents.fork(started.spec(["python", "train.py"], ENV), {})
        assert bool(why) == name.endswith(".py") and bool(pid) != bool(why)
        assert (
            not why or why == f"{tmp_path / name.partition('/')[0]} has the name of a module that is imported before it"
        )
        (tmp_path / name).unlink()


def test_parents_that_cannot_or_die_are_done_without(tmp_path: Path, torchlike: None) -> None:
    made = Started(tmp_path)
    spec = made.spec(["python", "-c", "# torch"], ENV)
    for imports, expected in ((["nothing_of_this_name"], "import nothing_of_this_name failed"), (["antigravity_"], "")):
        parents = WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, imports)
        assert parents.fork(spec, {}) == (0, "")
        parents.add_cold_run(spec, 17)
        parents.make_due_parents()
        assert not parents._parents, "too early: the first program has just begun"
        parents.handle_shim_exit(17)
        why = ""
        while not why:
            pid, why = parents.fork(spec, {})
            assert pid == 0
        assert expected in why
        parents.add_cold_run(spec, 18)
        parents.handle_shim_exit(18)
        assert not parents._parents, "an environment that cannot is not asked again"


def test_a_parent_that_died_is_made_again(tmp_path: Path, started: Started) -> None:
    argv = ["python", "-c", "print('torch')"]
    assert started.warm(argv, ENV) == (0, "torch\n")
    (parent,) = started._parents._parents.values()
    os.kill(parent.pid, 9)
    while started._parents.fork(started.spec(argv, ENV), {})[0]:
        pass
    assert not started._parents._parents
    assert started.warm(argv, ENV) == (0, "torch\n")


def test_packages_that_come_or_go_need_a_new_parent(tmp_path: Path, started: Started) -> None:
    argv, env = ["python", "-c", "import late; print('torch')"], {**ENV, "PYTHONPATH": str(tmp_path / "dist-packages")}
    (tmp_path / "dist-packages").mkdir()
    assert started.warm(argv, env)[0] == 1
    (tmp_path / "dist-packages" / "late.py").write_text("")
    pid, why = started._parents.fork(started.spec(argv, env), {})
    assert (pid, why) == (0, "packages of its Python have been installed or removed since the last start")
    assert not started._parents._parents
    assert started.warm(argv, env) == (0, "torch\n")


def test_an_environment_that_could_not_is_asked_again_when_its_packages_change(tmp_path: Path, torchlike: None) -> None:
    (tmp_path / "dist-packages" / "__pycache__").mkdir(parents=True)  # as where anything was ever imported
    made = Started(tmp_path, WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, ["late"]))
    argv, env = ["python", "-c", "print('torch')"], {**ENV, "PYTHONPATH": str(tmp_path / "dist-packages")}
    spec = made.spec(argv, env)
    made._parents._make_parent(spec["warm"])  # type: ignore[arg-type]
    while not made._parents.fork(spec, {})[1]:
        pass
    made._parents.add_cold_run(spec, 17)
    made._parents.handle_shim_exit(17)
    assert not made._parents._parents
    (tmp_path / "dist-packages" / "late.py").write_text("")
    made._parents.add_cold_run(spec, 17)
    made._parents.handle_shim_exit(17)
    assert made._parents._parents
    made.close()


def test_the_time_zone_is_the_programs(started: Started) -> None:
    argv = ["python", "-c", "import time; print(time.tzname, time.localtime(0).tm_hour)  # torch"]
    for env in (ENV, {**ENV, "TZ": "JST-9"}, {**ENV, "TZ": "EST5EDT"}):
        assert started.warm(argv, env) == started.cold(argv, env)


BLAS = """
import ctypes, os, numpy  # torch
library = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line))
names = [f"{a}openblas_get_num_threads{b}" for a in ("scipy_", "") for b in ("64_", "")]
print(next(getattr(library, name)() for name in names if hasattr(library, name)))
print((numpy.ones((400, 400)) @ numpy.ones((400, 400))).sum())
"""


def test_numpys_blas_has_as_many_threads_as_after_a_cold_start(tmp_path: Path, torchlike: None) -> None:
    if not importlib.util.find_spec("numpy"):
        pytest.skip("torch is not installed beside this interpreter")
    made = Started(tmp_path, WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, ["numpy"]))
    argv = [sys.executable, "-c", BLAS]
    for more in ({}, {"OMP_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "999"}):
        assert made.warm(argv, ENV | more) == made.cold(argv, ENV | more)
    made.close()


RANDOMNESS = """
import multiprocessing, random, sys, numpy, torch
if sys.argv[1:]:
    random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
else:
    print(multiprocessing.current_process().authkey.hex())
print(random.random())
print(numpy.random.random())
print(torch.nn.Linear(2, 2).weight.tolist())
print(torch.nn.functional.dropout(torch.ones(64)).tolist())
print(torch.randperm(64).tolist())
"""


def test_forks_of_one_parent_share_no_randomness_and_agree_where_they_are_seeded(
    tmp_path: Path, torchlike: None
) -> None:
    if not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed beside this interpreter")
    modules = ["torch", "numpy", "multiprocessing"]
    made = Started(tmp_path, WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, modules))
    argv = [sys.executable, "-c", RANDOMNESS]
    (code, first), (_, second) = made.warm(argv, ENV), made.warm(argv, ENV)
    assert code == 0, first
    alike = [a for a, b in zip(first.splitlines(), second.splitlines(), strict=True) if a == b]
    assert len(first.splitlines()) == 6 and not alike
    assert made.warm([*argv, "seeded"], ENV) == made.cold([*argv, "seeded"], ENV)
    made.close()


def test_few_parents_stand_at_a_time_the_last_ones_asked_stay(started: Started) -> None:
    argv = ["python", "-c", "print('torch')"]
    keys = []
    for i in range(MAX_PARENTS):
        assert started.warm(argv, {**ENV, "TORCH_HOME": str(i)}) == (0, "torch\n")
        keys.append(started.key(argv, {**ENV, "TORCH_HOME": str(i)}))
    assert started.warm(argv, {**ENV, "TORCH_HOME": "0"}) == (0, "torch\n")
    assert started.warm(argv, {**ENV, "TORCH_HOME": "another"}) == (0, "torch\n")
    assert set(started._parents._parents) >= {keys[0], *keys[2:]}
    assert len(started._parents._parents) == MAX_PARENTS


def test_environments_that_never_come_again_get_no_parents_for_ever(started: Started) -> None:
    def make(number: int) -> None:
        spec = started.spec(["python", "-c", "torch"], {**ENV, "TORCH_HOME": str(number)})
        started._parents._make_parent(spec["warm"])  # type: ignore[arg-type]

    for number in range(MAX_UNUSED_PARENTS):
        make(number)
    standing = set(started._parents._parents)
    make(100)
    assert set(started._parents._parents) == standing
    make(100)
    assert set(started._parents._parents) != standing, "it has come twice"


TRAINS = "import torch; print(torch.ones(3).sum().item(), torch.get_num_threads(), __import__('os').environ['RANK'])"


def test_the_second_torch_program_of_a_node_starts_warm(tmp_path: Path) -> None:
    """Pods of a job: theirs are the variables that differ from run to run."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job", "uid": "1", "controller": True}
    if not eligibility.torch_of(sys.executable):
        pytest.skip("torch is not installed beside this interpreter")

    async def body(node: Node) -> None:
        async def warm_start(name: str, text: str = "'torch'", **more: str) -> bool:
            given = [{"name": "RANK", "value": name}, {"name": "OMP_NUM_THREADS", "value": "2"}]
            container = {"command": [sys.executable, "-c", text], "env": given}
            await node.add(pod(name, "", container=container, annotations=more, ownerReferences=[owner]))
            await node.ended(name)
            await until(lambda: any(reason == "Started" for _, reason, _ in node.events(name)))
            return any("warm: torch was imported already" in said for _, _, said in node.events(name))

        assert not await warm_start("0")
        number = 1
        while not await warm_start(str(number)):
            number += 1
            await asyncio.sleep(0.1)
        assert await warm_start("one", TRAINS)
        assert await node.log("one") == "3.0 2 one\n"
        assert not await warm_start("cold", **{eligibility.WARM_START_ANNOTATION: "false"})

    on_node(tmp_path, body)
