"""What of a shell's environment goes along with a job."""

import pytest

from rowlock.cli.grammar import CommandError
from rowlock.cli.run.command import program_name
from rowlock.cli.run.shell_environment import collect, describe, describe_unsent, of_parent


def test_what_is_the_terminals_the_logins_or_a_ranks_stays() -> None:
    goes = {
        "FOO": "1",
        "PATH": "/bin",
        "WANDB_API_KEY": "k",
        "CUDA_HOME": "/cuda",
        "http_proxy": "p",
        "LC_ALL": "C",
        "A.b-c": "",
    }
    stays = {
        "_": "x", "PWD": "/", "SHLVL": "1", "TERM": "xterm", "SSH_AUTH_SOCK": "/s", "XDG_RUNTIME_DIR": "/r", "TMUX_PANE": "%1",
        "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "m", "CUDA_VISIBLE_DEVICES": "0",
        "ROWLOCK_DATA_DIR": "/d", "KUBERNETES_SERVICE_HOST": "k", "BASH_FUNC_f%%": "() {", "NO_TEXT": "\udcff",
    }  # fmt: skip
    assert collect({**goes, **stays}) == goes


def test_it_is_said_in_one_line_that_names_what_is_new_without_values() -> None:
    def said(shell: dict[str, str], earlier: dict[str, str]) -> str:
        return (
            describe(shell, earlier)
            .removeprefix("Your environment goes along, as a Secret: ")
            .partition(" (--clean")[0]
        )

    assert said({"PATH": "/bin", "HOME": "/", "LC_ALL": "C"}, {}) == ""
    assert said({"B": "secret", "A": "1", "PATH": ""}, {}) == "A, B"
    assert said({"B": "secret", "A": "1", "C": "same"}, {"A": "0", "C": "same"}) == "A, B and 1 more"
    assert said({"A": "1", "B": "2"}, {"A": "1", "B": "2"}) == "2 variables"
    assert said({f"A{n}": "" for n in range(8)}, {}) == "A0, A1, A2, A3, A4 and 3 more"


def test_the_shells_first_environment_is_read() -> None:
    assert of_parent()  # of whoever started the tests


def test_what_is_too_large_is_named() -> None:
    shell = {"A": "x" * 300_000, "B": "é" * 150_000, "C": "1", "D": "22", "TERM": "x" * 900_000}
    with pytest.raises(CommandError) as refusal:
        collect(shell)
    assert "has 600,007 bytes, and 524,288 go along" in refusal.value.message
    assert "are A (300,001), B (300,001), D (3): unset" in refusal.value.message


@pytest.mark.parametrize("has_clean_env", [True, False])
def test_a_command_names_only_flags_that_it_has(has_clean_env: bool) -> None:
    with pytest.raises(CommandError) as refusal:
        collect({"LARGE": "x" * 600_000}, has_clean_env=has_clean_env)
    assert ("--clean-env" in refusal.value.message) == has_clean_env


def test_what_is_no_text_is_named() -> None:
    assert describe_unsent({"A": "\udcff", "B": "text", "SSH_X": "\udcff"}) == (
        "Not sent, because the value is no UTF-8: A."
    )
    assert describe_unsent({f"A{n}": "\udcff" for n in range(7)}).endswith(": A0, A1, A2, A3, A4 and 2 more.")
    assert describe_unsent({"B": "text"}) == ""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -m pkg.train --lr 5", "train"),
        ("/usr/bin/python3 -u -m pkg.train.__main__ conf.py", "train"),
        ("python -m torch.distributed.run --nproc 2 work/fit.py", "fit"),
        ("torchrun --nproc 2 -m pkg.fit", "fit"),
        ("python train.py -m resnet", "train"),
        ("sort -m list", "sort"),
    ],
)
def test_a_job_is_called_after_what_it_runs(command: str, name: str) -> None:
    assert program_name(command.split()) == name
