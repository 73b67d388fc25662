"""Advice about frameworks that do not form one group of the pods of a PyTorchJob with the variables that the operator sets.

The operator sets MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and PET_*, and no LOCAL_RANK. What each framework reads was measured with
the versions in docs/frameworks.md. A framework is known by an import in the program's text, or by its launcher in the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rowlock.kinds import PYTORCHJOB, Kind
from rowlock.objects import Object
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.frameworks.torchrun import launched_ranks

_NEED_LOCAL_RANK = {
    "speechbrain": "SpeechBrain trains a copy in each pod where LOCAL_RANK is not set",
    "deepspeed": "DeepSpeed asks MPI for its rank where LOCAL_RANK is not set, and with mpi4py trains a copy in each pod",
    "ignite.distributed": "Ignite's Parallel needs LOCAL_RANK",
    "composer": "Composer needs LOCAL_RANK, LOCAL_WORLD_SIZE and NODE_RANK",
    "colossalai": "ColossalAI needs LOCAL_RANK",
    "mmengine": 'MMEngine needs LOCAL_RANK with launcher="pytorch", and without a launcher trains a copy in each pod',
}
"""By import: what a framework does without LOCAL_RANK."""
_LAUNCHERS = (
    (r"\bfabric run\b(?!.*--num-nodes)",
     "`fabric run` reads flags only and trains a copy in each pod: add --num-nodes, --node-rank, --main-address and --main-port"),
    (r"(?:^|[\s/])composer\s(?!.*--node_rank)",
     "composer's launcher reads flags: add --node_rank, --world_size, --master_addr and --master_port"),
    (r"^(?!.*NODE_RANK=).*\bllamafactory-cli\b",
     "LLaMA-Factory reads NNODES, NODE_RANK and NPROC_PER_NODE: set NNODES=$WORLD_SIZE and NODE_RANK=$RANK"),
    (r"\btorchx run\b", "torchx makes a group of its own in each pod: its flags win over PET_*"),
)  # fmt: skip
"""(pattern in a command without torchrun, remark)."""
_MAX_TEXT = 64 << 10


def group_remarks(kind: Kind, obj: Object, programs: Mapping[str, str]) -> list[str]:
    """Remarks on a job of several pods. `programs`: the text of each replica type's program, "" where it cannot be read."""
    job = parse_job(FRAMEWORKS[kind], obj)
    if kind is not PYTORCHJOB or job.total_replicas < 2:
        return []
    found = []
    for type_ in job.replicas:
        container = job.main_container(type_)
        words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        variables = {str(each.get("name")) for each in container.get("env") or ()}
        if not _has_torchrun(words):
            found += _remarks_of_program(words, programs.get(type_, ""), variables)
    return list(dict.fromkeys(found))


def _has_torchrun(words: Sequence[str]) -> bool:
    return launched_ranks(words) is not None or bool(
        re.search(r"\btorchrun\b|torch\.distributed\.(?:run|launch)\b", " ".join(words)[:_MAX_TEXT])
    )


def _remarks_of_program(words: Sequence[str], program: str, variables: set[str]) -> list[str]:
    command = " ".join(words)[:_MAX_TEXT]
    found = [text for pattern, text in _LAUNCHERS if re.search(pattern, command, re.DOTALL)]
    if "LOCAL_RANK" in variables or "LOCAL_RANK" in command or '"LOCAL_RANK"' in program or "'LOCAL_RANK'" in program:
        return found
    text = f"{command}\n{program[:_MAX_TEXT]}"
    for module, what in _NEED_LOCAL_RANK.items():
        if re.search(rf"(?m)(?:^|[;'\"]|-c )\s*(?:import|from)\s+{re.escape(module)}\b|-m {re.escape(module)}\b", text):
            found.append(
                f"{what}, and the operator does not set it: add LOCAL_RANK=0, or start the program with torchrun"
            )
    return found
