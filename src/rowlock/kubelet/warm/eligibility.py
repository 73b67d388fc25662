"""Which programs may start warm: forked from an interpreter that has imported torch, instead of exec'ed (`warm_parent.py`).

Only programs for which the result is the same: a Python of this machine whose packages include torch, told to run a file, a module
or a text that uses it, with known flags. All others start cold. Called once per start, so it reads few files.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from glob import escape, glob

from rowlock.kubelet.files import untrusted

WARM_START_ANNOTATION = "rowlock.dev/warm-start"
"""With the value `"false"`, a pod's programs always start cold."""
_PYTHON_NAME = re.compile(r"python(3(\.\d+)?)?")
_ALLOWED_FLAGS = ("-u", "-B")
_IMPORT_TIME_PREFIXES = (
    "PYTHON", "LD_", "TORCH", "PYTORCH", "MALLOC_", "GLIBC_", "KMP_", "MKL_", "GOMP_", "OMP_", "OPENBLAS_", "TRITON", "LC_",
    "AOT", "ATEN_", "CUBLAS", "CUTLASS_", "DNNL_", "GFORTRAN_", "GOTO_", "INDUCTOR_", "KINETO_", "MKLDNN_", "NPY_", "NUMPY_",
    "ONEDNN_", "OPENSSL_", "SYMPY_",
)  # fmt: skip
"""Variables that an interpreter, torch or numpy reads once, at its start: programs share a parent only if they agree on them."""
_IMPORT_TIME_VARIABLES = ("HOME", "PATH", "LANG", "TMPDIR", "TEMP", "TMP", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV")
_PER_RUN_PREFIXES = ("TORCHELASTIC_", "PYTHONBREAKPOINT")
"""Exceptions to these prefixes: variables read when they are needed, by the elastic agent and by `breakpoint()`."""
_THREAD_COUNT_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Applied in the fork (`warm_parent.py`); during imports they are 1, so that no threads are started."""
_MAX_SCRIPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WarmStart:
    """How to start the parent, and what its fork becomes: `file PATH ARGS…`, `module NAME ARGS…` or `text CODE ARGS…`."""

    interpreter: str
    flags: tuple[str, ...]
    env: dict[str, str]
    program: tuple[str, ...]
    words: tuple[str, ...]
    """The command line as after exec: a script's begins with its interpreter."""
    first: str
    """The first directory of the program's `sys.path`."""
    python_path: tuple[str, ...]
    """The next directories: those of `PYTHONPATH`."""
    torch: str
    """Identifies the installed torch: a replaced package needs a new parent."""

    @property
    def key(self) -> str:
        """Programs with the same key can share a parent."""
        return key_of(self.interpreter, self.flags, self.env, self.torch)

    def spec(self) -> dict[str, object]:
        """The form in which the pod host gets it."""
        return {**asdict(self), "key": self.key}


def key_of(interpreter: str, flags: Sequence[str], env: Mapping[str, str], torch: str) -> str:
    """The key of the parent that serves programs of this interpreter, with these flags, variables and torch (`torch_of`)."""
    identity = [interpreter, list(flags), dict(env), torch]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def plan_warm_start(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, readable_path: Callable[[str], str] = lambda path: path
) -> WarmStart | None:
    """How a command line may start warm; None = it starts cold. `readable_path` maps a path to where it can be read now."""
    where = env.get("PATH") if "/" not in argv[0] else cwd
    executable, shebang = _find_python_program(argv[0], where)
    interpreter, rest, words = executable, list(argv[1:]), tuple(argv)
    if shebang:
        interpreter, rest = shebang, [argv[0] if "/" in argv[0] else executable, *rest]
        words = (interpreter, *rest)
    torch = torch_of(interpreter) if interpreter else ""
    if not torch:
        return None
    flags = []
    while rest and rest[0] in _ALLOWED_FLAGS:
        flags.append(rest.pop(0))
    program = _parse_program(rest)
    script = readable_path(os.path.join(cwd, program[1])) if program and program[0] == "file" else ""
    if not program or not _uses_torch(program, script, env):
        return None
    import_env = {k: v for k, v in env.items() if _is_read_at_import(k)}
    python_path: list[str] = []
    if env.get("PYTHONPATH"):  # a parent starts in another directory, and serves programs of many
        python_path = _absolute_entries(env["PYTHONPATH"], cwd)
        import_env["PYTHONPATH"] = os.pathsep.join(python_path)
    first = os.path.dirname(os.path.realpath(script)) if script else readable_path(cwd)
    return WarmStart(
        interpreter,
        tuple(flags),
        import_env | dict.fromkeys(_THREAD_COUNT_VARIABLES, "1"),
        program,
        words,
        first,
        tuple(map(readable_path, python_path)),
        torch,
    )


def _absolute_entries(python_path: str, cwd: str) -> list[str]:
    """The entries as Python resolves them when it starts in this directory; an empty one is the directory itself."""
    directory = os.path.realpath(cwd)
    return [os.path.normpath(os.path.join(directory, entry)) for entry in python_path.split(os.pathsep)]


_others: dict[tuple[str, str | None], float] = {}
"""Programs known not to be Python, by name and search path → until when that is assumed, as all ranks of a job ask the same. A
program that becomes Python meanwhile starts cold; caching the opposite could start another program."""
_OTHERS_SECONDS, _MAX_OTHERS = 1.0, 256


def _find_python_program(name: str, where: str | None) -> tuple[str, str]:
    """A Python's file and ""; or a script's file and the Python of its first line; or "" twice. `where`: the search path, or for
    a name with a slash the working directory."""
    if _others.get((name, where), 0.0) > time.monotonic():
        return "", ""
    executable = os.path.join(where or "", name) if "/" in name else shutil.which(name, path=where)
    if executable and _PYTHON_NAME.fullmatch(os.path.basename(executable)):
        return executable, ""
    if executable and (shebang := _shebang_interpreter(executable)):
        return executable, shebang
    if len(_others) >= _MAX_OTHERS:
        _others.clear()
    _others[name, where] = time.monotonic() + _OTHERS_SECONDS
    return "", ""


def _is_read_at_import(variable: str) -> bool:
    if variable.startswith(_PER_RUN_PREFIXES):
        return False
    return variable.startswith(_IMPORT_TIME_PREFIXES) or variable in _IMPORT_TIME_VARIABLES


def _shebang_interpreter(path: str) -> str:
    """The Python in the first line of a script such as `torchrun`; "" = something else."""
    try:
        with open(untrusted.open_regular(path, follow=True), "rb") as file:
            words = file.readline(256).decode(errors="replace").split()
    except OSError:
        return ""
    if len(words) != 1 or not words[0].startswith("#!/"):
        return ""
    return words[0][2:] if _PYTHON_NAME.fullmatch(os.path.basename(words[0])) else ""


def torch_of(interpreter: str) -> str:
    """Identifies the torch of this interpreter's environment, "" = none. Looks only at files; imports nothing."""
    prefix = os.path.dirname(os.path.dirname(interpreter))
    for version_file in glob(f"{escape(prefix)}/lib/python3*/*-packages/torch/version.py"):
        return f"{version_file} {os.stat(version_file).st_mtime_ns}"
    return ""


def _parse_program(rest: Sequence[str]) -> tuple[str, ...]:
    """What the interpreter is told to run; () = a form that a warm start does not imitate."""
    match rest:
        case ["-c", text, *arguments]:
            return ("text", text, *arguments)
        case ["-m", module, *arguments]:
            return ("module", module, *arguments)
        case [path, *arguments] if not path.startswith("-"):
            return ("file", path, *arguments)
    return ()


def _uses_torch(program: Sequence[str], script: str, env: Mapping[str, str]) -> bool:
    how, target = program[:2]
    if how == "module":
        return "WORLD_SIZE" in env or "PET_NNODES" in env or target.startswith("torch.")
    if how == "text":
        return "torch" in target
    try:
        with open(untrusted.open_regular(script, follow=True), "rb") as file:
            return b"torch" in file.read(_MAX_SCRIPT_BYTES)
    except OSError:
        return False
