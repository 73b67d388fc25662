"""Remarks on a job that has not failed: it runs, or has completed, but something is wrong with its result.

A remark is a clause that can follow "It completed, but"; it claims only what was seen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rowlock.diagnosis.root_cause import format_duration, join_names
from rowlock.objects import as_sentence

ALONE, NOT_FINITE, UNCHANGED, LENGTHS = "alone", "not-finite", "unchanged", "lengths"
KILLED_HELPERS, IDLE_WORKERS = "killed-helpers", "idle-workers"
"""Kinds of remarks."""
EVENT_REASONS = {
    ALONE: "RanksNeverMet", NOT_FINITE: "LossNotFinite", UNCHANGED: "LossUnchanged", LENGTHS: "RanksDiffer",
    KILLED_HELPERS: "OOMKilling", IDLE_WORKERS: "WorkersIdle",
}  # fmt: skip
"""Kind → the reason of its Event."""
_WORLD_OF_ONE = re.compile(
    r"\brank[ =:]{1,2}0 ?(?:of|/) ?1\b|\bworld[_ ]?size\W{1,4}1\b|\bMEMBER: 1/1\b|\bnum_processes\W{1,4}1\b",
    re.IGNORECASE,
)
_LARGER_WORLD = re.compile(
    r"\brank[ =:]{1,2}\d+ ?(?:of|/) ?(?:[2-9]|\d\d)|\bworld[_ ]?size\W{1,4}(?:[2-9]|\d\d)|\bMEMBER: \d+/(?:[2-9]|\d\d)"
    r"|\bparallel[_ ]world[_ ]?size\W{1,4}1\b",
    re.IGNORECASE,
)
"""A group of several ranks in a log, or a group of one that need not be the only one."""
_GAPS = 2.0
"""How many of its own logging intervals a rank's last step must be behind the others': ranks may log at different steps."""
_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")


@dataclass(frozen=True, slots=True)
class Remark:
    """`sentence` is a clause, without initial capital and full stop. `at`: when it was found, in seconds since the epoch."""

    kind: str
    sentence: str
    at: float = 0.0
    rank: str = ""
    """The rank that it is about; "" = all ranks."""

    @property
    def event_message(self) -> str:
        return as_sentence(self.sentence)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def remark_from_dict(fields: dict[str, Any]) -> Remark:
    """The inverse of `Remark.to_dict`. Raises TypeError for fields that it does not know."""
    return Remark(**fields)


def says_world_of_one(log: str) -> bool:
    """Whether a log says that its program is the only rank (world size 1)."""
    return _WORLD_OF_ONE.search(log) is not None


def says_only_rank(log: str) -> bool:
    """Whether a log says that its program is the only rank, and tells of no larger group: so nothing else need be known."""
    return says_world_of_one(log) and _LARGER_WORLD.search(log) is None


def non_finite_loss(rank: str, metric: str, place: str, value: float) -> Remark:
    """The remark on a loss that became NaN or infinite; `place` such as `step 30`."""
    word = "nan" if math.isnan(value) else "infinite"
    return Remark(NOT_FINITE, f"{metric} of {rank} is {word} from {place} on", rank=rank)


def constant_loss(rank: str, metric: str, value: float, points: int) -> Remark:
    return Remark(
        UNCHANGED,
        f"{metric} of {rank} was {value:g} in all {points} lines that tell it: nothing was learned",
        rank=rank,
    )


def compare_lengths(places: Mapping[str, tuple[str, float, float]]) -> Remark | None:
    """The remark on ranks that ended at different steps. `places`: rank → axis, last position, and distance from the position before."""
    furthest = max(x for _, x, _ in places.values())
    if not any(furthest - x > _GAPS * max(gap, 1.0) for _, x, gap in places.values()):
        return None
    return length_difference({rank: (axis, x) for rank, (axis, x, _) in places.items()})


def length_difference(places: Mapping[str, tuple[str, float]]) -> Remark | None:
    """The remark on ranks that ended at different steps. `places`: rank → (axis, position); None if equal or not on one axis."""
    if len({axis for axis, _ in places.values()}) != 1 or len({x for _, x in places.values()}) < 2:
        return None
    (axis,) = {axis for axis, _ in places.values()}
    furthest = max(x for _, x in places.values())
    short = {rank: x for rank, (_, x) in places.items() if x < furthest}
    named = join_names([f"{rank} at {axis} {x:g}" for rank, x in short.items()])
    return Remark(LENGTHS, f"its ranks did not end at the same {axis}: {named}, the others at {axis} {furthest:g}")


def memory_kills(rank: str, why: str) -> Remark:
    return Remark(
        KILLED_HELPERS,
        f"processes of {rank} were killed for memory ({why}), and its program went on without them",
        rank=rank,
    )


def separate_ranks(ranks: Sequence[str], looks: int, seconds: float, hint: str) -> Remark:
    """The remark on ranks that were never connected to each other."""
    return _separate_ranks(ranks, f"{looks} looks over {format_duration(seconds)}", hint)


def uncounted_ranks(ranks: Sequence[str], seconds: float, hint: str, *, train: bool) -> Remark:
    """The same remark, where the kernels of the pods count no connection from another one. `seconds`: how long the youngest pod has run;
    `train`: their logs show that they train, so they will not meet later."""
    evidence = f"no pod has accepted a connection in {format_duration(seconds)}"
    if train:
        return _separate_ranks(ranks, evidence, hint)
    return Remark(ALONE, f"{_all_of(ranks)} have not connected to each other so far ({evidence})")


def _separate_ranks(ranks: Sequence[str], evidence: str, hint: str) -> Remark:
    text = f"{_all_of(ranks)} never connected to each other ({evidence}): each works alone, as the only one"
    return Remark(ALONE, f"{text}; {hint}" if hint else text)


def idle_workers(ranks: int, workers: int, seconds: float) -> Remark:
    """The remark on an MPIJob whose ranks all run in the launcher's pod. `seconds`: for how long that was seen."""
    who = "its only rank runs" if ranks == 1 else f"all {ranks} ranks run"
    idle = "its worker runs none" if workers == 1 else f"its {workers} workers run none"
    return Remark(
        IDLE_WORKERS,
        f"{who} in the launcher's pod, and {idle} (seen for {format_duration(seconds)}): mpirun does not know the workers. Open MPI 5 reads"
        " PRTE_MCA_plm_ssh_agent=/etc/mpi/kubexec.sh and PRTE_MCA_prte_default_hostfile=/etc/mpi/hostfile, not the variables that the"
        " operator sets",
    )


def only_ranks(ranks: Sequence[str]) -> Remark:
    """The remark on ranks each of whose logs says that it is the only one."""
    return Remark(
        ALONE, f"{_all_of(ranks)} each say in their log that they are the only rank (a world of 1): each works alone"
    )


def _all_of(ranks: Sequence[str]) -> str:
    return f"its {len(ranks)} ranks" if len(ranks) > 2 else join_names(ranks)


def missing_for_group(packages: Collection[str], variables: Mapping[str, str], pods: int, kind: str) -> str:
    """What is missing for ranks to find each other; "" when that is unknown.

    `packages`: those that the program has loaded; `variables`: its environment. Tested with the versions in docs/frameworks.md."""
    has_local_rank = "LOCAL_RANK" in variables
    world = next((variables[name] for name in _SIZE_VARIABLES if variables.get(name, "1") not in ("", "1")), "")
    rows: tuple[tuple[bool, str], ...] = (
        (
            "speechbrain" in packages and not has_local_rank,
            "SpeechBrain forms a group only where LOCAL_RANK is set, and it is not: set it to 0, or start with torchrun",
        ),
        (
            "deepspeed" in packages and not has_local_rank,
            "DeepSpeed asks MPI for its rank where LOCAL_RANK is not set: set it to 0, or start with torchrun",
        ),
        (
            bool({"lightning", "pytorch_lightning", "lightning_fabric"} & set(packages)),
            f"Lightning trains on one node unless it is told num_nodes={pods}"
            + ("" if has_local_rank else ", and needs LOCAL_RANK or torchrun to know its rank"),
        ),
        (
            "paddle" in packages,
            "Paddle reads PADDLE_* alone: a PaddleJob whose command is `python -m paddle.distributed.launch` has them",
        ),
        (
            "ray" in packages,
            "each pod began a Ray cluster of its own: one needs `ray start --head`, the others its address",
        ),
        (
            "mpi4py" in packages and bool(world),
            f"mpirun began {world} ranks, and the program's MPI counts one: it is not the MPI that mpirun belongs to",
        ),
        ("mpi4py" in packages, "MPI knows other ranks only under mpirun: submit an MPIJob"),
        (
            "tensorflow" in packages and "TF_CONFIG" not in variables and kind != "PyTorchJob",
            "TensorFlow finds the others in TF_CONFIG, which is not set",
        ),
        ("torch" in packages, "torch.distributed.init_process_group() was not called, or was told world_size=1"),
        (
            "xgboost" in packages,
            "xgboost.collective has no communicator: workers find each other by the tracker that it is told (dmlc_tracker_uri)",
        ),
        ("tensorflow" in packages, "no strategy for several workers is in use"),
        ("jaxlib" in packages, "jax.distributed.initialize() was not called"),
    )
    return next((text for applies, text in rows if applies), "")
