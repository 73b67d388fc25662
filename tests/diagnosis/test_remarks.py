"""What is said of a result beside failures: pure, by equality."""

import math

import pytest

from rowlock.diagnosis import remarks
from rowlock.diagnosis.remarks import EVENT_REASONS, Remark, missing_for_group, remark_from_dict, says_world_of_one


def test_sentences() -> None:
    assert (
        remarks.non_finite_loss("rank 0", "loss", "step 30", math.nan).sentence
        == "loss of rank 0 is nan from step 30 on"
    )
    assert remarks.non_finite_loss("rank 0", "loss", "step 3", math.inf).event_message == (
        "Loss of rank 0 is infinite from step 3 on."
    )
    assert remarks.constant_loss("rank 1", "loss", 2.5, 40).sentence == (
        "loss of rank 1 was 2.5 in all 40 lines that tell it: nothing was learned"
    )
    assert remarks.separate_ranks(["rank 0", "rank 1"], 4, 3.5, "").sentence == (
        "rank 0 and rank 1 never connected to each other (4 looks over 3.5 s): each works alone, as the only one"
    )
    assert remarks.separate_ranks(["rank 0", "rank 1", "rank 2"], 4, 3.5, "a hint").sentence == (
        "its 3 ranks never connected to each other (4 looks over 3.5 s): each works alone, as the only one; a hint"
    )
    assert remarks.uncounted_ranks(["rank 0", "rank 1"], 300, "a hint", train=True).sentence == (
        "rank 0 and rank 1 never connected to each other (no pod has accepted a connection in 5 min): each works alone, as the only one; a hint"
    )
    assert remarks.uncounted_ranks(["rank 0", "rank 1"], 300, "a hint", train=False).sentence == (
        "rank 0 and rank 1 have not connected to each other so far (no pod has accepted a connection in 5 min)"
    )
    assert remarks.idle_workers(4, 2, 6.1).sentence.startswith(
        "all 4 ranks run in the launcher's pod, and its 2 workers run none (seen for 6.1 s): mpirun does not know the workers. Open MPI 5 reads"
    )
    assert remarks.idle_workers(1, 1, 6.1).sentence.startswith(
        "its only rank runs in the launcher's pod, and its worker runs none (seen for 6.1 s): mpirun"
    )
    assert remarks.only_ranks(["rank 0", "rank 1"]).sentence == (
        "rank 0 and rank 1 each say in their log that they are the only rank (a world of 1): each works alone"
    )


def test_ranks_of_different_length() -> None:
    found = remarks.length_difference({"rank 0": ("step", 99), "rank 1": ("step", 49), "rank 2": ("step", 99)})
    assert found is not None
    assert found.sentence == "its ranks did not end at the same step: rank 1 at step 49, the others at step 99"
    assert remarks.length_difference({"rank 0": ("step", 99), "rank 1": ("epoch", 4)}) is None
    assert remarks.length_difference({"rank 0": ("step", 99), "rank 1": ("step", 99)}) is None


def test_a_remark_is_read_back_as_it_was_written() -> None:
    remark = remarks.memory_kills("rank 0", "the limit is 2.0Gi")
    assert remark_from_dict(remark.to_dict()) == remark
    assert remark.kind in EVENT_REASONS
    with pytest.raises(TypeError):
        remark_from_dict({"kind": "alone", "sentence": "x", "unknown": 1})
    assert {value for name, value in vars(remarks).items() if name.isupper() and isinstance(value, str)} == set(
        EVENT_REASONS
    )


@pytest.mark.parametrize(
    "line",
    [
        "I am rank 0 of 1",
        "rank=0/1",
        "world_size: 1",
        "World size = 1",
        "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1",
    ],
)
def test_a_program_that_says_it_is_the_only_one(line: str) -> None:
    assert says_world_of_one(f"begin\n{line}\nstep 1")


@pytest.mark.parametrize("line", ["rank 0 of 12", "world_size: 16", "MEMBER: 1/10", "rank 1 of 1", "the size is 1"])
def test_a_program_that_does_not(line: str) -> None:
    assert not says_world_of_one(line)


@pytest.mark.parametrize(
    ("log", "is_only"),
    [
        ("rank 0 of 1\nstep 1", True),
        ("world_size: 1\nnproc world_size: 2", False),
        ("rank 0 of 1 in its group\nrank 0 of 2 in the world", False),
        ("tensor parallel world size: 1", False),
        ("step 1", False),
    ],
)
def test_a_log_that_alone_tells_that_its_program_is_the_only_rank(log: str, is_only: bool) -> None:
    assert remarks.says_only_rank(log) is is_only


@pytest.mark.parametrize(
    ("packages", "variables", "kind", "begin"),
    [
        ({"torch", "speechbrain"}, {}, "PyTorchJob", "SpeechBrain forms a group only where LOCAL_RANK is set"),
        ({"torch", "speechbrain"}, {"LOCAL_RANK": "0"}, "PyTorchJob", "torch.distributed.init_process_group() was not"),
        (
            {"torch", "lightning"},
            {"LOCAL_RANK": "0"},
            "PyTorchJob",
            "Lightning trains on one node unless it is told num_nodes=2",
        ),
        ({"torch", "deepspeed", "mpi4py"}, {}, "PyTorchJob", "DeepSpeed asks MPI for its rank where LOCAL_RANK"),
        ({"paddle"}, {}, "PyTorchJob", "Paddle reads PADDLE_* alone"),
        ({"mpi4py"}, {"OMPI_COMM_WORLD_SIZE": "4"}, "MPIJob", "mpirun began 4 ranks, and the program's MPI counts one"),
        ({"mpi4py"}, {}, "PyTorchJob", "MPI knows other ranks only under mpirun"),
        ({"tensorflow"}, {}, "MPIJob", "TensorFlow finds the others in TF_CONFIG"),
        ({"tensorflow"}, {"TF_CONFIG": "{}"}, "TFJob", "no strategy for several workers"),
        ({"torch", "tensorflow"}, {}, "PyTorchJob", "torch.distributed.init_process_group() was not called"),
        ({"jaxlib"}, {}, "JAXJob", "jax.distributed.initialize() was not called"),
        ({"numpy"}, {}, "PyTorchJob", ""),
    ],
)
def test_what_is_missing(packages: set[str], variables: dict[str, str], kind: str, begin: str) -> None:
    assert missing_for_group(packages, variables, 2, kind).startswith(begin)
    assert bool(begin) == bool(missing_for_group(packages, variables, 2, kind))


def test_lightning_without_a_local_rank_needs_that_too() -> None:
    assert "LOCAL_RANK or torchrun" in missing_for_group({"lightning"}, {}, 2, "PyTorchJob")


def test_remarks_carry_when_they_were_found() -> None:
    assert Remark("alone", "x", 3.0).to_dict() == {"kind": "alone", "sentence": "x", "at": 3.0, "rank": ""}
