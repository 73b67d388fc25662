"""The house rules, as far as a machine can check them (reasons: `docs/design/house.md`).

Layers: words ← deciding ← {controllers, archive, accounts} ← {authentication, authorization, http_server} ← {storage, apiserver, kubelet, diagnostics, kube, rest, simulator} ← {cluster, browser} ←
assembly ← serve; the command line stands apart. One table below says who lives on which storey; everything else follows.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "src" / "rowlock"
MODULES = sorted(p for p in PACKAGE.rglob("*.py"))

WORDS = {
    "errors",
    "objects",
    "kinds",
    "selectors",
    "quantity",
    "api",
    "submit_fields",
    "server_settings",
    "answers",
    "documents",
    "__init__",
}
DECIDING = {"training", "scheduling", "workloads", "sweeps", "gangs", "diagnosis", "system", "curves"}
STOREYS: tuple[set[str], ...] = (
    WORDS,
    DECIDING,
    {"controllers", "archive", "accounts", "audit"},
    {"authentication"},
    {"authorization", "http_server"},
    {"storage", "apiserver", "kubelet", "diagnostics", "kube", "rest", "simulator", "runtime"},
    {"webhooks"},
    {
        "cluster",
        "kube_scheduler",
        "kube_operator",
        "kube_users",
        "kube_evidence",
        "server_files",
        "identity",
        "metrics",
        "browser",
        "sdk",
    },
    {"assembly"},
    {"kube_assembly"},
    {"serve"},
)
_TORCHRUN = "rowlock.training.frameworks.torchrun"
"""How the command of a job is read; it imports the standard library only."""
MAY_NOT_IMPORT = {
    "asyncio", "os", "subprocess", "socket", "time", "random", "logging", "sqlite3", "httpx", "starlette",
    "threading", "secrets", "uuid",
}  # fmt: skip
SIDEWAYS = {
    ("workloads", "training"),  # a workload is explained with the words of jobs
    ("workloads", "scheduling"),  # and of gangs
    ("sweeps", "workloads"),  # a run is a workload
    ("sweeps", "training"),  # and its job has ended or not
    ("gangs", "scheduling"),  # a job is dressed in the words of its scheduler
    ("gangs", "training"),  # its size is that of its job's replicas
    ("gangs", "workloads"),  # by what was submitted
    ("apiserver", "storage"),  # kube-apiserver stands on etcd
    ("kube", "apiserver"),  # the kinds that rowlock brings to a cluster are declared from the table of types
    ("__main__", "cli"),  # `python -m rowlock` is the command
    ("diagnostics", "kubelet"),  # the evidence lies in the pods' directories
}
"""The arrows between neighbours of one storey."""
PROCESS_ROOMS = ("kubelet/shim", "kubelet/warm", "kubelet/files", "kubelet/mounts", "runtime")
"""What runs inside the processes of pods: standard library only, for each import costs every pod memory."""
FOLDERS = {
    "kubelet": (
        "files", "mounts", "warm", "shim", "pod", "remote_shell", "initializers", "images", "network", "volumes", "runtime", "node", "stats", "streams", "prober", "worker",
    ),
    "apiserver": (
        "schema", "http", "apply", "validation", "admission", "patch", "printers", "discovery", "streams", "endpoints",
        "server",
    ),
    "training": (
        "model", "conditions", "reconcile_context", "framework", "defaults", "replica_verdict", "dependents", "frameworks", "admission",
        "job_changes", "pod_group", "cleanup", "pod_events", "limits", "job", "controller", "batch_job", "cron_job", "jobset", "trainjob",
    ),
    "scheduling": (
        "model", "policy", "actions", "admission", "plan", "volume_topology", "planner", "snapshot_tracker", "explain", "ownership",
        "controller",
    ),
    "kube": (
        "rate_limit", "cached_view", "cache", "config", "http_client", "connection", "requests", "users", "watches", "followed_logs", "client",
        "cluster_probe", "comparison", "rights", "install", "installation", "doctor", "leader_election", "manifests", "proxy",
        "scheduler_client", "transfer",
    ),
    "cli": (
        "grammar", "context", "interrupts", "live_lines", "output", "system_server", "server_json", "start", "session", "text_streams", "client",
        "node_usage", "compute_flags", "lookups", "accounts", "login", "usage", "logs", "streams", "source", "history", "curves", "submit", "run", "sweep",
        "notebook", "verify", "commands", "runai_v2", "runai_v1", "runai_tree", "completion", "main",
    ),
}  # fmt: skip
"""The storeys inside a room, the lowest first: a folder, or a module beside the folders, imports only those that stand before it."""
MODULES_PER_FOLDER = 15

FORBIDDEN_MODULES = re.compile(r"(^|_)(util|utils|common|helper|helpers|misc|manager)$")
FORBIDDEN_CLASSES = re.compile(r"(Manager|Service|Helper|Handler|Processor|Util|Utils)$|^Base[A-Z]")
NOUNS = {"string", "ring", "thing", "feed", "need", "seed", "speed", "ping", "embed", "warning", "listing"}
"""Words that end as participles do and are none."""
IRREGULAR = frozenset(
    "born bound brought built caught chosen done drawn driven felt forgotten found frozen given gone heard held hidden kept known "
    "laid left lent lost made meant met paid said seen sent shown sold sought split stood sworn taken thought thrown told torn "
    "understood won worn wound woven written another alike apart aside fitting lately less least likely whole".split()
)
"""Participles and adverbs that end otherwise."""


def room(path: Path) -> str:
    """The room a file lives in: its top-level package or module below `rowlock`."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def storey(name: str) -> int | None:
    return next((i for i, rooms in enumerate(STOREYS) if name in rooms), None)


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Every module name imported anywhere in the file, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _imports_for_types(path: Path) -> set[str]:
    """What the file imports for the type checker alone."""
    checked = [
        node for node in tree(path).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    inside = [one for node in checked for one in node.body if isinstance(one, ast.ImportFrom)]
    return {
        name for one in inside for name in (str(one.module), *(f"{one.module}.{alias.name}" for alias in one.names))
    }


def identity(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", MODULES, ids=identity)
def test_imports_go_down(path: Path) -> None:
    here = room(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "rowlock" or len(parts) < 2:
            continue
        there = parts[1]
        if there == here or (here, there) in SIDEWAYS or there in ("__version__", "KUBERNETES"):
            continue
        if here == "cli" and name.startswith("rowlock.answers") and name in _imports_for_types(path):
            continue  # what is read has the names that the server gives it; nothing of it is loaded
        if here == "cli" and name.startswith(("rowlock.submit_fields", "rowlock.server_settings", _TORCHRUN)):
            continue  # what a submit is and how it is sent: flags, the REST API and the Python client have the same words
        if here == "cli":
            pytest.fail(f"the command line imports {name}: it speaks HTTP only")
        assert there != "cli", f"{path} imports the command line"
        mine, theirs = storey(here), storey(there)
        assert mine is not None, f"{here} stands on no storey: add it to the table"
        beside = {here, there} <= WORDS  # the words may use each other; cycles are checked below
        assert theirs is not None and (theirs < mine or beside), (
            f"{path.name}: {here} imports {name}, which is not below it"
        )


@pytest.mark.parametrize("folder", PROCESS_ROOMS)
def test_what_runs_inside_pods_imports_the_standard_library_only(folder: str) -> None:
    rooms = tuple("rowlock." + room.replace("/", ".") for room in PROCESS_ROOMS)
    for path in sorted((PACKAGE / folder).glob("*.py")):
        for name in imports(path):
            standard = name.partition(".")[0] in sys.stdlib_module_names
            assert standard or name.startswith(rooms), f"{identity(path)} imports {name}: every pod would pay for it"


@pytest.mark.parametrize(
    "part",
    sorted(path for room in FOLDERS for path in (PACKAGE / room).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()),
    ids=identity,
)  # fmt: skip
def test_imports_between_the_folders_of_a_room_go_down(part: Path) -> None:
    room, order = part.parent.name, FOLDERS[part.parent.name]
    if part.name == "__init__.py":
        return
    assert part.stem in order, f"{room}/{part.name} stands on no storey: add it to the table"
    below = {*order[: order.index(part.stem) + 1]}
    for path in [part] if part.suffix else sorted(part.rglob("*.py")):
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] == ["rowlock", room] and len(parts) > 2:
                assert parts[2] in below, f"{identity(path)} imports {name}, which is not below it"


FILLERS = {"cli", "controllers", "http_server", "kube", "rest", "runtime", "scheduling", "simulator", "workloads"}
"""Rooms that fill in records, or objects of a library. In all others the parts are whole when they are made."""


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) not in FILLERS], ids=identity)
def test_no_part_is_patched_from_outside(path: Path) -> None:
    """What a part needs goes to its constructor: nobody sets an attribute of an attribute."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            assert not isinstance(node.value, ast.Attribute), (
                f"{identity(path)}:{node.lineno} sets {ast.unparse(node)}: hand it to the constructor, or call a method"
            )


def test_no_folder_is_crowded() -> None:
    for top in (PACKAGE, REPO / "tests"):
        for folder in {path.parent for path in top.rglob("*.py")}:
            modules = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__"))
            assert len(modules) <= MODULES_PER_FOLDER, (
                f"{folder.relative_to(REPO)}: {len(modules)} modules side by side"
            )


LARGEST_ROOMS = {"apiserver": 10_479}
"""Lines that a room may have in all: it may be rewritten, and may not grow."""


@pytest.mark.parametrize("name", LARGEST_ROOMS)
def test_no_room_outgrows_its_limit(name: str) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES if room(path) == name)
    limit = LARGEST_ROOMS[name]
    assert lines <= limit, (
        f"{name}/ has {lines:,} lines, {limit:,} are allowed: move what others need, too, to a lower room"
    )


def is_bare_participle(name: str) -> bool:
    """One word that says neither what is done nor to what: `parted`, `_unseen`, `found`."""
    word = name.strip("_")
    if "_" in word or word in NOUNS:
        return False
    return word in IRREGULAR or re.fullmatch(r"[a-z]+(ed|ing)", word) is not None


@pytest.mark.parametrize("path", MODULES, ids=identity)
def test_functions_are_verbs_with_objects_or_nouns(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert not is_bare_participle(node.name), f"{node.name}: a verb with its object, or a noun"


def test_every_room_tells_its_story() -> None:
    for path in MODULES:
        if path.name == "__init__.py" and path.parent != PACKAGE:
            story = ast.get_docstring(tree(path)) or ""
            assert len(story) >= 60, f"{identity(path)}: say what the room is, what it may import and where to begin"


@pytest.mark.parametrize("path", [p for p in MODULES if room(p) in WORDS | DECIDING], ids=identity)
def test_deciding_is_pure(path: Path) -> None:
    touched = {name.split(".")[0] for name in imports(path)} & MAY_NOT_IMPORT
    assert not touched, f"deciding code may not import {', '.join(sorted(touched))}: pass time and ids in"


@pytest.mark.parametrize("path", MODULES, ids=identity)
def test_names(path: Path) -> None:
    assert not FORBIDDEN_MODULES.search(path.stem), f"{path.name}: name it after what it is about"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            wrong = FORBIDDEN_CLASSES.search(node.name) and node.name != "FieldManager"  # Kubernetes' own word
            assert not wrong, f"class {node.name}: name it after what it is"


def test_class_names_are_unique() -> None:
    """Who searches for a public class finds one, and a protocol is not called as what implements it."""
    places: dict[str, list[str]] = {}
    for path in [path for path in MODULES if room(path) != "answers"]:  # those have the names of Run:ai's models
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(identity(path))
    assert not {name: files for name, files in places.items() if len(files) > 1}


@pytest.mark.parametrize("path", MODULES, ids=identity)
def test_size(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 400, f"{len(lines)} lines: two rooms, not one"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            length = (node.end_lineno or 0) - first.lineno + 1
            assert length <= 70, f"{node.name}: {length} lines"
            positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
            assert len(positional) <= 5, f"{node.name} takes {len(positional)} positional parameters"


@pytest.mark.parametrize("path", MODULES, ids=identity)
def test_every_module_tells_its_story(path: Path) -> None:
    assert ast.get_docstring(tree(path)), "no module docstring"


@pytest.mark.parametrize("path", MODULES, ids=identity)
def test_digits_are_ascii(path: Path) -> None:
    """`"²".isdigit()` is true and `int("²")` raises: one odd annotation stopped everybody. `objects.is_digits` asks for both."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.search(r"\.is(digit|decimal|numeric)\(\)", line):
            assert ".isascii()" in line, f"{identity(path)}: {line.strip()}: use is_digits"


@pytest.mark.parametrize("path", MODULES, ids=identity)
def test_json_of_others_may_be_nested_without_end(path: Path) -> None:
    """What does not expect it fails for everybody: a ConfigMap of one tenant once made each submit of all others a 500."""
    if path.relative_to(PACKAGE).parts[0] in ("cli", "sdk", "runtime"):
        return  # they read what their own server says
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Try) and any("json.loads(" in ast.unparse(one) for one in node.body):
            caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
            bare = "ValueError" in caught or "JSONDecodeError" in caught
            assert not bare or "RecursionError" in caught, (
                f"{identity(path)}:{node.lineno} does not expect RecursionError"
            )


def test_no_import_cycles() -> None:
    """Inside functions, too, and for types alone: two modules that need each other are one, or lack a third."""
    names = {".".join(["rowlock", *p.relative_to(PACKAGE).with_suffix("").parts]): p for p in MODULES}
    graph = {
        name: {found for found in imports(path) if found in names and found != name} for name, path in names.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for after in graph[name]:
                visit(after, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


# ---------------------------------------------------------------- names between backticks


@functools.cache
def tracked_files() -> tuple[str, ...]:
    """Every file of the repository, as a path below it; also new ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    return tuple(name for name in listed.split("\0") if name and (REPO / name).is_file())


def split_prose(path: Path) -> tuple[list[tuple[int, str]], set[str]]:
    """The comments and docstrings of a module with their lines, and all words of its code and its other strings."""
    prose = [
        (number, comment[1])
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (comment := re.search(r"(?:^|\s)#(?: |: )(.*)", line))
    ]
    words: set[str] = set()
    strings = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    docstrings = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.append((node.lineno, node.value.value))
            docstrings.add(node.value)
        for field in ("id", "attr", "arg", "name", "module", "asname"):
            words.update(str(getattr(node, field, "")).split("."))
    for node in strings:
        if node not in docstrings:
            words.update(re.findall(r"[A-Za-z_]\w*", str(node.value)))
    return prose, words


@functools.cache
def prose_and_words() -> tuple[dict[str, list[tuple[int, str]]], frozenset[str]]:
    """File → its prose (for Markdown: all but code blocks), for the package and the docs; and all words of code and data."""
    prose: dict[str, list[tuple[int, str]]] = {}
    words: set[str] = set()
    for name in tracked_files():
        path = REPO / name
        if path in MODULES:
            prose[name], file_words = split_prose(path)
            words |= file_words
        elif path.suffix == ".md":
            if name != "CHANGELOG.md" and not name.startswith("tests/"):
                text = path.read_text(encoding="utf-8")
                fences = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
                prose[name] = [(1, fences.sub(lambda match: "\n" * match[0].count("\n"), text))]
        elif path.suffix not in {".png", ".gz", ".svg"} and name != "tests/upstream_names.txt":
            words.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8", errors="replace")))
    return prose, frozenset(words)


def prose_matches(pattern: str) -> Iterator[tuple[str, str]]:
    """(`file:line`, the first group) of every match in the prose."""
    for name, texts in prose_and_words()[0].items():
        for line, text in texts:
            for match in re.finditer(pattern, text):
                yield f"{name}:{line + text[: match.start()].count(chr(10))}", match[1]


def test_files_between_backticks_exist() -> None:
    for place, cited in prose_matches(r"`([\w./-]+\.py)`"):
        assert any(name == cited or name.endswith(f"/{cited}") for name in tracked_files()), f"{place}: no {cited}"


def test_names_between_backticks_exist() -> None:
    """A name that was changed in the code and not in the text beside it misleads its readers."""
    upstream = set((REPO / "tests" / "upstream_names.txt").read_text(encoding="utf-8").split("\n"))
    known = prose_and_words()[1] | upstream
    for place, cited in prose_matches(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?`"):
        unknown = set(cited.split(".")) - known
        if not cited.endswith((".json", ".md", ".txt", ".proto")):
            assert not unknown, f"{place}: nothing is called {cited}; another project's name goes to upstream_names.txt"


def test_members_between_backticks_exist() -> None:
    members: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                names = members.setdefault(node.name, set())
                names |= {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
                names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                names |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    for place, cited in prose_matches(r"`([A-Z]\w*\.[a-z_]\w*)(?:\([^`]*\))?`"):
        owner, _, member = cited.partition(".")
        assert owner not in members or member in members[owner], f"{place}: {owner} has no {member}"


def test_raised_errors_exist() -> None:
    """`Raises X` in a docstring names a class of ours, a built-in one, or one that the module imports."""
    classes = {n.name for path in MODULES for n in ast.walk(tree(path)) if isinstance(n, ast.ClassDef)}
    for place, cited in prose_matches(r"\b[Rr]aises? ((?:[A-Z]\w+(?:\.[A-Z]\w+)*(?:, | and | or )?)+)"):
        imported = {name.rpartition(".")[2] for name in imports(REPO / place.partition(":")[0])}
        for error in re.findall(r"\w+", re.sub(r", | and | or |\w+\.", " ", cited)):
            assert error in classes | imported or hasattr(builtins, error), f"{place}: no error is called {error}"


def test_no_paths_of_one_machine() -> None:
    """Nothing in the repository names the machine it was written on or a package registry's host."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    wrong = re.compile(
        "/ro"
        + r"ot/\.(?!ssh\b)|"
        + "/wo"
        + r"rk/|py"
        + r"pi\.org|files\.python"
        + r"hosted|proxy\."
        + r"golang|registry\.np"
        + "mjs"
    )
    for name in filter(None, listed.split("\0")):
        path = REPO / name
        if path.is_file() and path.suffix not in {".png", ".gz", ".svg"}:
            found = wrong.search(path.read_text(encoding="utf-8", errors="replace"))
            assert not found, f"{name} names {found and found[0]}"


def test_prose_uses_plain_words() -> None:
    """Users, clients and processes are named, and no callback has ears: `docs/design/glossary.md` has the field's words."""
    translated = r"(?i)\b(he|his|him|himself|hears|ears|dearest|whoever)\b"
    for place, word in (*prose_matches(translated), *matches_in_page_comments(translated)):
        raise AssertionError(f"{place}: {word!r}: name the user, client or function that is meant")


def matches_in_page_comments(pattern: str) -> Iterator[tuple[str, str]]:
    """As `prose_matches`, in the comments of the web UI's sources."""
    for name in tracked_files():
        if name.startswith("ui/src/") and name.endswith((".ts", ".svelte")):
            for number, line in enumerate((REPO / name).read_text(encoding="utf-8").split("\n"), 1):
                comment = re.search(r"(?:^\s*|\s)(?://|/\*|\*|<!--)\s.*", line)
                for match in re.finditer(pattern, comment[0] if comment else ""):
                    yield f"{name}:{number}", match[1]
