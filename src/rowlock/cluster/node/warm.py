"""Which programs may start warm: forked from an interpreter that has imported torch, instead of exec'ed (`warm_parent.py`).

Only what is exactly the same afterwards: a Python of this machine whose packages hold torch, told to run a file, a module or
a text that uses it, with flags we know. All else starts cold, as ever. Asked once per start, so it looks at few files.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from glob import escape, glob

ANNOTATION = "rowlock.dev/warm-start"
"""`"false"` on a pod: always exec."""
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = ("-u", "-B")
_AT_IMPORT = (
    "PYTHON", "LD_", "TORCH", "PYTORCH", "MALLOC_", "GLIBC_", "KMP_", "MKL_", "GOMP_", "OMP_", "OPENBLAS_", "TRITON", "LC_",
)  # fmt: skip
"""Variables that an interpreter or torch reads once, when it begins: a parent is only for programs that agree on them."""
_AT_IMPORT_TOO = ("HOME", "PATH", "LANG", "TMPDIR", "CUDA_HOME", "VIRTUAL_ENV")
_PER_RUN = ("TORCHELASTIC_",)
"""Not among them, though their names begin so: the elastic agent reads them when it works, and ours differ in every run."""
_LATER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Set in the fork (`torch.set_num_threads`); while importing they are 1, or threads would be born."""
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Warm:
    """How to make the parent, and what its fork becomes: `file PATH ARGS…`, `module NAME ARGS…` or `text CODE ARGS…`."""

    interpreter: str
    flags: tuple[str, ...]
    env: dict[str, str]
    program: tuple[str, ...]
    words: tuple[str, ...]
    """The command line after exec: that of a script begins with its interpreter."""
    first: str
    """The directory that leads the program's `sys.path`."""
    torch: str
    """Which torch: a package that has been replaced needs a new parent."""

    @property
    def key(self) -> str:
        """Programs with the same key can share a parent."""
        told = [self.interpreter, self.flags, self.env, self.torch]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def spec(self) -> dict[str, object]:
        """For the pod host."""
        return {**asdict(self), "key": self.key}


def warm(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, there: Callable[[str], str] = lambda path: path
) -> Warm | None:
    """How a command line may start warm; None = it starts cold. `there`: where a file can be read now."""
    found = shutil.which(argv[0], path=env.get("PATH")) if "/" not in argv[0] else os.path.join(cwd, argv[0])
    if not found:
        return None
    interpreter, rest, words = found, list(argv[1:]), tuple(argv)
    if not _PYTHON.fullmatch(os.path.basename(found)):
        interpreter, rest = _first_line(found), [argv[0] if "/" in argv[0] else found, *rest]
        words = (interpreter, *rest)
    torch = torch_of(interpreter) if interpreter else ""
    if not torch:
        return None
    flags = []
    while rest and rest[0] in _FLAGS:
        flags.append(rest.pop(0))
    program = _program(rest)
    script = there(os.path.join(cwd, program[1])) if program and program[0] == "file" else ""
    if not program or not _uses_torch(program, script, env):
        return None
    seen = {k: v for k, v in env.items() if _read_at_import(k)}
    first = os.path.dirname(os.path.realpath(script)) if script else there(cwd)
    return Warm(interpreter, tuple(flags), seen | dict.fromkeys(_LATER, "1"), program, words, first, torch)


def _read_at_import(variable: str) -> bool:
    if variable.startswith(_PER_RUN):
        return False
    return variable.startswith(_AT_IMPORT) or variable in _AT_IMPORT_TOO


def _first_line(path: str) -> str:
    """The Python of a script such as `torchrun`; "" when it is something else."""
    try:
        with open(path, "rb") as file:
            words = file.readline(256).decode(errors="replace").split()
    except OSError:
        return ""
    if len(words) != 1 or not words[0].startswith("#!/"):
        return ""
    return words[0][2:] if _PYTHON.fullmatch(os.path.basename(words[0])) else ""


def torch_of(interpreter: str) -> str:
    """The torch in the environment of this interpreter, "" = none. A look at the disk; nothing is imported."""
    prefix = os.path.dirname(os.path.dirname(interpreter))
    for found in glob(f"{escape(prefix)}/lib/python3*/*-packages/torch/version.py"):
        return f"{found} {os.stat(found).st_mtime_ns}"
    return ""


def _program(rest: Sequence[str]) -> tuple[str, ...]:
    """What the interpreter is told to run; () when that is something we do not imitate."""
    match rest:
        case ["-c", text, *arguments]:
            return ("text", text, *arguments)
        case ["-m", module, *arguments]:
            return ("module", module, *arguments)
        case [path, *arguments] if not path.startswith("-"):
            return ("file", path, *arguments)
    return ()


def _uses_torch(program: Sequence[str], script: str, env: Mapping[str, str]) -> bool:
    how, what = program[:2]
    if how == "module":
        return "WORLD_SIZE" in env or "PET_NNODES" in env or what.startswith("torch.")
    if how == "text":
        return "torch" in what
    try:
        with open(script, "rb") as file:
            return b"torch" in file.read(_LONGEST)
    except OSError:
        return False
