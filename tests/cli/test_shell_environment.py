"""What of a shell's environment goes along with a job."""

from rowlock.cli.run.shell_environment import collect, describe


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


def test_it_is_named_in_one_line_without_values() -> None:
    assert describe({"PATH": "/bin", "HOME": "/", "LC_ALL": "C"}) == ""
    assert describe({"B": "secret", "A": "1", "PATH": ""}) == (
        "Your environment goes along, as a Secret: A, B (--clean-env leaves it here)."
    )
    assert "A0, A1, A2, A3, A4 and 3 more (" in describe({f"A{n}": "" for n in range(8)})
