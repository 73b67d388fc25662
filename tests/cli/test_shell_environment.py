"""What of a shell's environment goes along with a job."""

from rowlock.cli.run.shell_environment import collect, describe, of_parent


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
