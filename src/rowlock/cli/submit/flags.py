"""The flags of every submit by generation and framework, derived from the table of submit fields.

A flag that rowlock does not support is refused with the reason given in the table; none is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.cli.context import DATA_DIR, PROJECT
from rowlock.cli.grammar import Flag
from rowlock.submit_fields import SUBMIT_FIELDS, SubmitField

ANY_FRAMEWORK = "any"
"""Stands for all frameworks: `runai distributed submit` has the flags of every framework, and --framework names one."""
_FLAG_KINDS = {
    "text": "text", "words": "text", "quantity": "text", "duration": "text", "preferred topology": "text",
    "required topology": "text", "int": "int", "float": "float", "gpus": "float", "switch": "switch", "own user": "maybe",
}  # fmt: skip
"""Kind of field → kind of flag in the grammar. Choices stay choices; flags of all kinds missing here may be repeated."""


def flag_of(row: SubmitField, generation: int) -> Flag | None:
    """The flag for the field in a generation; None when it has none."""
    names = row.spellings(generation)
    return _make_flag(row, names, generation, row.help) if names else None


def master_flag_of(row: SubmitField, generation: int) -> Flag | None:
    """The flag that sets the field for the master alone; None when there is none."""
    names = row.master_spellings(generation)
    if not names:
        return None
    is_own = not row.spellings(generation)
    flag = _make_flag(row, names, generation, row.help if is_own else f"the same for the master alone: {row.help}")
    return flag._replace(default=None, hidden="")


def _make_flag(row: SubmitField, names: str, generation: int, text: str) -> Flag:
    kind = row.kind if "|" in row.kind else _FLAG_KINDS.get(row.kind, "list")
    default = row.default1 if generation == 1 else row.default2
    neutral = str(row.neutral or "") if row.refuse else ""
    return Flag(names, kind, text, default, row.value, row.hidden, row.refuse, neutral)


def has_field(row: SubmitField, framework: str) -> bool:
    """Whether submits of the framework have the flag."""
    frameworks = row.frameworks.split()
    return not frameworks or framework in frameworks or (framework == ANY_FRAMEWORK and frameworks != ["Standard"])


def has_master_field(row: SubmitField, framework: str) -> bool:
    """Whether the framework's master may have another value for this field. MPI's launcher trains nothing and has no GPUs."""
    if framework in ("JAX", "Standard"):
        return False
    return not (framework == "MPI" and row.path.startswith("compute.gpu")) and has_field(row, framework)


def submit_flags(generation: int, framework: str) -> tuple[Flag, ...]:
    """Every flag of a submit, in the table's order."""
    return (*_submit_flags(generation, framework), PROJECT, DATA_DIR)


def _submit_flags(generation: int, framework: str) -> Iterator[Flag]:
    for row in SUBMIT_FIELDS:
        if has_field(row, framework) and (flag := flag_of(row, generation)):
            yield flag
        if has_master_field(row, framework) and (flag := master_flag_of(row, generation)):
            yield flag


ENVIRONMENT_FIELDS = (
    "image", "imagePullPolicy", "command", "args", "environmentVariables", "workingDir", "createHomeDir", "stdin", "tty",
    "security.",
)  # fmt: skip
"""Places of the submit fields that an environment asset may set."""


def asset_flags(*places: str) -> tuple[Flag, ...]:
    """The second generation's flags for the fields at these places (`compute.`: all fields below it)."""
    return tuple(
        flag
        for row in SUBMIT_FIELDS
        if row.path.startswith(tuple(place for place in places if place.endswith("."))) or row.path in places
        if row.kind != "environment" and (flag := flag_of(row, 2))
    )


PYTORCH = submit_flags(1, "PyTorch")
TF = submit_flags(1, "TF")
XGBOOST = submit_flags(1, "XGBoost")
MPI = submit_flags(1, "MPI")
STANDARD = submit_flags(1, "Standard")
