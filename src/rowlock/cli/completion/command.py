"""`completion bash|zsh|fish`: prints a script for the shell that calls the program itself for candidates.

So the script never becomes outdated, and also completes names of jobs and projects. It calls the hidden verb `__complete`.
Candidates are commands, flags, values of flags, and names of jobs and projects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from rowlock.cli import client
from rowlock.cli.context import DATA_DIR, project
from rowlock.cli.grammar import Command, CommandError, CommandLine, Flag, Group, find_command, flags_of, suggest_nearest
from rowlock.cli.lookups import WORKLOADS, read_projects
from rowlock.cli.output import show

_BASH = """_{program}() {{
  local IFS=$'\\n' word words=() last=-1
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD}}"; do # bash takes --flag=value for three words
    if ((last >= 0)) && [[ $word == = || ${{words[last]}} == --*= ]]; then words[last]+=$word; else words[++last]=$word; fi
  done
  COMPREPLY=($({program} __complete -- "${{words[@]}}" 2>/dev/null))
  if [[ ${{words[last]}} == --*=* && $COMP_WORDBREAKS == *=* ]]; then COMPREPLY=("${{COMPREPLY[@]#*=}}"); fi
}}
complete -o default -F _{program} {program}"""
_ZSH = """#compdef {program}
_{program}() {{
  local -a found
  found=("${{(@f)$({program} __complete -- "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
  if [[ -n $found ]]; then compadd -- $found; else _files; fi
}}
if [[ $funcstack[1] == _{program} ]]; then _{program}; return; fi # zsh has loaded this file at the first TAB
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit -i }}
compdef _{program} {program}"""
_FISH = """function __{program}_complete
  set -l found ({program} __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
  if set -q found[1]
    printf '%s\\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c {program} -f -a '(__{program}_complete)'"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(line: CommandLine) -> None:
    """`source <(rowlock completion bash)`."""
    shell = line.word("shell: bash, zsh or fish")
    if shell not in _SCRIPTS:
        known = ", ".join(_SCRIPTS)
        raise CommandError(
            f"there is no completion for {shell}.{suggest_nearest(shell, list(_SCRIPTS))} Known: {known}.", 2
        )
    show(_SCRIPTS[shell].format(program=line.program))


def complete(line: CommandLine) -> None:
    """`__complete -- WORDS`: print the candidates for the last word, one per line."""
    tree = _tree(line.program)
    for word in candidates(tree.ROOT, line.rest or [""], tree.SHARED):
        show(word)


def _tree(program: str) -> ModuleType:
    from importlib import import_module

    return import_module("rowlock.cli.runai_tree" if program == "runai" else "rowlock.cli.commands.tree")


_JOB_VERBS = frozenset(
    "describe job get logs exec bash attach port-forward delete suspend resume update stop start".split()
)
_OTHER_NOUNS = frozenset(
    "project node nodepool department cluster image pvc template config workload-type environment compute datasource"
    " credential my-credential".split()
)
"""Commands whose names are not names of jobs."""
_MOST_RUNS = 200


@dataclass
class _Place:
    """The place in the grammar that the words before the last one lead to."""

    node: Group | Command
    path: list[str] = field(default_factory=list)
    pending: Flag | None = None
    """The flag whose value comes next; None when no flag waits for one."""
    given: dict[str, str] = field(default_factory=dict)
    """Values of flags so far, by dest."""
    words: list[str] = field(default_factory=list)
    """Positional words of the command so far."""
    is_foreign: bool = False
    """Whether the words belong to another program (they stand after `--`)."""


def candidates(root: Group, words: Sequence[str], shared: Sequence[Flag]) -> list[str]:
    """The words that may replace the last of `words`; [] where a file name is expected or nothing is known."""
    *before, current = words
    current = current.lstrip("\"'")  # the shells pass the opening quote of an unfinished word
    place = _follow(root, before, shared)
    if place is None or place.is_foreign:
        return []
    found = _words_at(place, current, shared)
    return sorted({word for word in found if word.startswith(current)} - set(place.words))


def _follow(root: Group, words: Sequence[str], shared: Sequence[Flag]) -> _Place | None:
    """Walk the grammar along `words`. None when there is no such command."""
    place = _Place(root)
    for word in words:
        if place.pending is not None:
            place.given[place.pending.dest], place.pending = word, None
        elif word == "--":
            place.is_foreign = True
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            flag = _flags_at(place.node, shared).get(name)
            if flag is not None and flag.takes_value:
                place.pending = None if equals else flag
                place.given |= {flag.dest: value} if equals else {}
        elif isinstance(place.node, Group):
            child = find_command(place.node, word)
            if child is None:
                return None
            place.node = child
            place.path.append(child.name)
        else:
            place.words.append(word)
            place.is_foreign = place.node.eager
    return place


def _flags_at(node: Group | Command, shared: Sequence[Flag]) -> dict[str, Flag]:
    own = flags_of(node) if isinstance(node, Command) else ()
    return {name: flag for flag in (*shared, *own) if not flag.refuse for name in flag.spellings()}


def _words_at(place: _Place, current: str, shared: Sequence[Flag]) -> list[str]:
    if place.pending is not None:
        return _values_of(place.pending, place)
    if current.startswith("-"):
        flags = _flags_at(place.node, shared)
        name, equals, _ = current.partition("=")
        if equals:
            return [f"{name}={value}" for value in _values_of(flags[name], place)] if name in flags else []
        return [name for flag in flags.values() for name in flag.names.split() if name.startswith("--")]
    if isinstance(place.node, Group):
        return [child.name for child in place.node.commands if not child.hidden]
    return _names_at(place, place.node)


def _values_of(flag: Flag, place: _Place) -> list[str]:
    if flag.dest == "project":
        return _ask(place, _project_names)
    if flag.dest == "resume_from":
        return _ask(place, _run_names)
    return flag.kind.split("|") if "|" in flag.kind else []


def _names_at(place: _Place, command: Command) -> list[str]:
    """Names that a command's words may be."""
    if not _takes_another_name(command, len(place.words)):
        return []
    verb, noun = place.path[-1], place.path[-2] if len(place.path) > 1 else ""
    if "|" in command.words:
        return command.words.split("|")
    if "project" in (noun, verb) and verb not in ("create", "list"):
        return _ask(place, _project_names)
    if "RUN" in command.words.replace("...", "").strip("[]").split():
        return _ask(place, _run_names)
    is_job = "JOB" in command.words or ("NAME" in command.words and verb in _JOB_VERBS and noun not in _OTHER_NOUNS)
    return _ask(place, _job_names) if is_job else []


def _takes_another_name(command: Command, given: int) -> bool:
    """Whether a name may follow `given` words: `JOB [COMMAND...]` takes one, `[NAME...]` any number."""
    names = [word.strip("[]") for word in command.words.split() if word not in ("[COMMAND...]", "[PORTS...]")]
    return given < len(names) or any(name.endswith("...") for name in names)


# ------------------------------------------------------------ what the server knows


def _ask(place: _Place, names: Any) -> list[str]:
    """Names from the server; [] when it does not answer, because a shell expects words, not errors."""
    line = CommandLine("rowlock", "completion", [])
    line.set_values(data_dir=place.given.get(DATA_DIR.dest), project=place.given.get("project"))
    try:
        found: list[str] = names(client.connect(line), line)
    except (CommandError, OSError):
        return []
    finally:
        if line.server is not None:
            line.server.close()
    return found


def _project_names(server: client.ServerClient, line: CommandLine) -> list[str]:
    return [one["name"] for one in read_projects(server)]


def _job_names(server: client.ServerClient, line: CommandLine) -> list[str]:
    home = project(line)
    return [w["name"] for w in client.list_all(server, WORKLOADS, "workloads") if w["projectName"] == home]


def _run_names(server: client.ServerClient, line: CommandLine) -> list[str]:
    """Names of the newest runs, also of deleted ones."""
    runs = server.get("/api/v1/runs", project=project(line), limit=_MOST_RUNS)["runs"]
    return list(dict.fromkeys(run["name"] for run in runs))
