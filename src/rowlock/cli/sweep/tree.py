"""The commands of `rowlock sweep`, as a table."""

from __future__ import annotations

from rowlock.cli.context import DATA_DIR, JSON, PROJECT
from rowlock.cli.grammar import Command, Flag, Group

NOT_SHARED = frozenset(
    "name resume_from interactive tty debug_rank replace rerun_on_save detach fold rm bell notify notify_on notify_key_file after start_after".split()
)
"""Flags of `rowlock run` that concern one job, or following it."""
_OWN = (
    Flag("--param", "list", "a parameter and what is tried: lr=1e-4,3e-4, seed=1..5, or with --search random lr=loguniform(1e-5,1e-2)", value="NAME=VALUES"),
    Flag("--file", "text", "read parameters and other fields from a YAML file; flags win", value="FILE"),
    Flag("--search", "grid|random|tpe", "every combination; --samples of them; or as many, drawn from what earlier runs reached, by Optuna (default: grid)"),
    Flag("--samples", "int", "with --search random or tpe: how many runs", value="N"),
    Flag("--seed", "int", "with --search random or tpe: the same seed draws the same values (default: 0)", value="S"),
    Flag("--metric", "text", "the metric that the sweep goes by, as the programs print it: for --search tpe and --stop", value="NAME"),
    Flag("--max", "switch", "the highest value of the metric is the best"),
    Flag("--stop", "asha", "stop runs early whose metric is not among the best third of those that came as far"),
    Flag("--stop-after", "int", "with --stop: after how many values of the metric runs are first compared; then after 3 times as many, and so on (default: 3)", value="N"),
    Flag("--max-parallel", "int", "how many runs may be unfinished at a time (default: 16)", value="N"),
    Flag("--dry-run", "switch", "print the sweep and its first run as objects, and submit nothing"),
)  # fmt: skip
_COMMON = (PROJECT, DATA_DIR, JSON)


def sweep_group(run_flags: tuple[Flag, ...]) -> Group:
    """The group, with the flags of `rowlock run` that runs of a sweep have."""
    shared = tuple(flag for flag in run_flags if flag.dest not in NOT_SHARED)
    return Group("sweep", "Run a command many times with different parameters; the server keeps the runs going.", (
        Command("run", "Submit a sweep: `rowlock sweep --param lr=1,2 -- python train.py --lr {lr}` (`run` may be left out).",
                "sweep.submit:submit", "[NAME]", (*_OWN, *shared, JSON), "COMMAND..."),
        Command("list", "List sweeps and how far they are.", "sweep.commands:index", flags=(
            Flag("-A --all-projects", "switch", "list the sweeps of all projects"), *_COMMON), aliases="ls"),
        Command("show", "Show the runs of a sweep, the best one first if --metric is given.", "sweep.commands:show_sweep", "SWEEP", (
            Flag("--metric", "text", "sort by this metric that the programs print, the lowest value first (default: that of the sweep)", value="NAME"),
            Flag("--max", "switch", "the highest value is the best"),
            *_COMMON)),
        Command("wait", "Wait until all runs of a sweep have ended. The exit code is 0 if all completed, else 1.", "sweep.commands:wait", "SWEEP", (
            Flag("--timeout", "text", "give up after this time (default: never)", value="DURATION"), *_COMMON)),
        Command("stop", "Make no further runs of a sweep; those that were made go on.", "sweep.commands:stop", "SWEEP...", (
            Flag("--now", "switch", "suspend those that were made, too, until the sweep is resumed"), *_COMMON)),
        Command("resume", "Make the rest of the runs of a stopped sweep, and go on with those that were suspended with it.", "sweep.commands:resume", "SWEEP...", _COMMON),
        Command("delete", "Delete sweeps with the jobs of their runs; `rowlock history` keeps what ran.", "sweep.commands:delete", "SWEEP...", (
            Flag("-y --yes", "switch", "do not ask"), *_COMMON), aliases="rm"),
    ), aliases="sweeps", default="run")  # fmt: skip
