"""Ranks in a rendezvous: what each of them expects, and so what is missing.

What a rank expects is in the local variables of torch's calls (`py-spy dump --locals`): its rank, the number of ranks, and the address.
The environment that it was started with may differ, because scripts change it.

Ranks that have all come, and are told nothing wrong, may still not move for a while: a library that could not reach rank 0 tries again
after pauses that grow (torch's store and gRPC: up to 60 s and half of it more), although rank 0 has come meanwhile.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rowlock.diagnosis.root_cause import join_names
from rowlock.objects import is_digits

JAX_MEETING, TENSORFLOW_MEETING, XGBOOST_MEETING = (
    "jax.distributed.initialize",
    "MultiWorkerMirroredStrategy",
    "CommunicatorContext",
)
MEETINGS = ("init_process_group", "rendezvous", JAX_MEETING, TENSORFLOW_MEETING, XGBOOST_MEETING)
"""Calls in which ranks find each other: afterwards the group is complete."""
_FIELDS = {
    "_create_c10d_store": ("rank", "world_size"),
    "_store_based_barrier": ("rank", "rendezvous_count"),
    "_new_process_group_helper": ("group_rank", "group_size"),
    "initialize": ("process_id", "num_processes"),
}
"""Calls in which ranks wait for each other, and the names of their variables for the rank and the expected number of ranks: torch's below
`init_process_group`, and JAX's. A class before a method's name is left out."""
TO_COMPARE = {
    JAX_MEETING: "coordinator_address, num_processes and process_id as the program passes them",
    TENSORFLOW_MEETING: "TF_CONFIG of all pods",
    XGBOOST_MEETING: "the tracker's address, and its number of workers",
}
"""What people should compare between ranks whose rendezvous is not complete; for torch's calls, its variables."""
_UNRESOLVED = re.compile(
    r"network addresses of \((?P<host>[^,)\s]{1,253}), \d+\) cannot be retrieved|Name or service not known: (?P<other>\S+)"
)
_MAX_WORD, _MAX_ID = 253, 40
_TORCHRUN_PORT = 29400
"""Where torchrun looks for its rendezvous if its endpoint has no port; without an endpoint it looks on its own machine."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """What one process waits for. `size`: expected processes, or torchruns if `nodes` is set; 0 = unknown. `rank`: None = unknown."""

    size: int = 0
    rank: int | None = None
    host: str = ""
    port: int = 0
    is_unresolved: bool = False
    """Its log says that the name `host` does not resolve."""
    nodes: str = ""
    """For a torchrun: its setting of the number of nodes, such as `PET_NNODES=2` or `--nnodes 1:3`."""
    most: int = 0
    """For a torchrun: with how many nodes it begins at once; 0 = unknown."""
    standalone: bool = False
    group: str = ""
    """For a torchrun: its `--rdzv-id`; those with another one are in another rendezvous, even at the same address."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


def parse_rendezvous(threads: object, log: str = "") -> Rendezvous | None:
    """Parse the JSON of `py-spy dump --json --locals`; None when it has none of the calls in `_FIELDS`. `log`: the end of the rank's log.

    The JSON comes from the memory of a running program, so values may have any type."""
    rank: int | None = None
    size = port = 0
    host = ""
    for function, variables in _calls(threads):
        if (fields := _FIELDS.get(function.rpartition(".")[2])) is None:
            continue
        of_rank, of_size = fields
        rank = _number(variables.get(of_rank)) if rank is None else rank
        size = size or _number(variables.get(of_size)) or 0
        its_host, _, its_port = _text(variables.get("coordinator_address")).rpartition(":")
        host = host or _text(variables.get("hostname")) or its_host
        port = port or _number(variables.get("port")) or _number(its_port) or 0
    if not size:
        return None
    unresolved = {found["host"] or found["other"] for found in _UNRESOLVED.finditer(log)}
    return Rendezvous(size, rank, host, port, bool(host) and host in unresolved)


def expected_ranks(variables: Mapping[str, str]) -> int:
    """How many ranks the variables of a process tell it of, by WORLD_SIZE or TF_CONFIG; 0 = unknown."""
    if is_digits(size := variables.get("WORLD_SIZE", "")):
        return int(size[:9])
    try:
        cluster = json.loads(variables.get("TF_CONFIG", ""))["cluster"]
        return sum(len(cluster[role]) for role in ("chief", "worker") if isinstance(cluster.get(role), list))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return 0


def torchrun_rendezvous(words: Sequence[str], environ: Mapping[str, str]) -> Rendezvous | None:
    """The rendezvous of a torchrun, from its command line and environment; None when they set no number of nodes."""
    setting, nodes = _torchrun_option(words, environ, "nnodes")
    if not nodes:
        return None
    least, _, most = nodes.partition(":")  # `2`, or `1:3` for an elastic torchrun
    size, most_nodes = _number(least) or 0, _number(most or least) or 0
    is_static = _torchrun_option(words, environ, "rdzv-backend")[1] in ("", "static")
    endpoint = _torchrun_option(words, environ, "rdzv-endpoint")[1]
    host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
    rank = None
    if is_static:
        rank = _number(_torchrun_option(words, environ, "node-rank")[1] or "0")
        host = host or _torchrun_option(words, environ, "master-addr")[1] or "127.0.0.1"
        port = port or _torchrun_option(words, environ, "master-port")[1] or "29500"
    return Rendezvous(
        size,
        rank,
        host or "localhost",
        _number(port) or _TORCHRUN_PORT,
        nodes=setting,
        most=most_nodes,
        standalone="--standalone" in words,
        group=_torchrun_option(words, environ, "rdzv-id")[1] or "none",
    )


def _torchrun_option(words: Sequence[str], environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """An option as it is set (`--nnodes 2`, `PET_NNODES=2`), and its value; "" and "" when it is not set."""
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") in (f"--{name}", f"--{name.removesuffix('s')}"):
            value = value if equals else "".join(words[number + 1 : number + 2])
            return (f"{option} {value[:_MAX_WORD]}", value) if value else ("", "")
    variable = f"PET_{name.replace('-', '_').upper()}"
    value = environ.get(variable, "")
    return (f"{variable}={value[:_MAX_WORD]}", value) if value else ("", "")


Waiting = Sequence[tuple[str, str, Rendezvous | None]]
"""Of each rank that waits: its name, its pod, and what it expects."""


def have_all_come(waiting: Waiting, expected: int = 0, *, far: bool = False) -> bool:
    """Whether nothing is known to be missing or wrong, so that the ranks may be about to meet. Arguments as in `rendezvous_fault`."""
    known = [(name, pod, found) for name, pod, found in waiting if found is not None]
    if any(found.nodes for _, _, found in known):
        return not _fault_of_torchruns(known, far)[0]
    return not _known_fault(known, len(waiting), expected)[0] and (len(waiting) > 1)


def awaited_nodes(waiting: Waiting) -> str:
    """Of elastic torchruns that have come in the least number, and so may begin, but wait for more: a clause; "" for others."""
    found = [each for _, _, each in waiting if each is not None and each.nodes]
    pods = len({pod for _, pod, each in waiting if each is not None})
    if not found or found[0].standalone or not found[0].size <= pods < found[0].most:
        return ""
    came = "1 pod runs one" if pods == 1 else f"{pods} pods run one"
    return (
        f"torchrun takes up to {found[0].most} nodes ({found[0].nodes}), and {came}; it waits for more (30 s by default,"
        " last_call_timeout), and then begins without them"
    )


def rendezvous_fault(waiting: Waiting, expected: int = 0, *, far: bool = False) -> tuple[str, list[str]]:
    """What is wrong, as a clause, and the names of the ranks at fault, if known.
    `expected`: WORLD_SIZE, used when no rendezvous is known; 0 = unknown. `far`: a rank has no connection to another."""
    known = [(name, pod, found) for name, pod, found in waiting if found is not None]
    if torchruns := [found for _, _, found in known if found.nodes]:
        text, culprits = _fault_of_torchruns(known, far)
        pods = len({pod for _, pod, _ in known})
        lost = f"{_wanted_nodes(torchruns[0])}, and {pods} pods run one: they do not find each other, so compare --rdzv-endpoint and --rdzv-id"
        return text or lost, culprits
    text, culprits = _known_fault(known, len(waiting), expected)
    if text:
        return text, culprits
    if len(waiting) == 1:
        return "the only rank that runs waits for others to come", []
    return f"all {len(waiting)} ranks that run wait for others to come", []


def _known_fault(known: Sequence[tuple[str, str, Rendezvous]], count: int, expected: int) -> tuple[str, list[str]]:
    """What is seen to be wrong among `count` ranks, and the ranks at fault; "" for nothing."""
    for look in (_wrong_numbers, _wrong_addresses):
        text, culprits = look(known, count)
        if text:
            return text, culprits
    return (_count_text(count, expected) if not known and expected not in (0, count) else ""), []


def _wanted_nodes(torchrun: Rendezvous) -> str:
    return f"torchrun waits for {torchrun.size} node{'s' if torchrun.size != 1 else ''} ({torchrun.nodes})"


def _fault_of_torchruns(known: Sequence[tuple[str, str, Rendezvous]], far: bool) -> tuple[str, list[str]]:
    """What is seen to be wrong with torchruns, one in each pod, that wait for each other, and the ranks at fault; "" for nothing."""
    first = next(found for _, _, found in known if found.nodes)
    pods = len({pod for _, pod, _ in known})
    text = _wanted_nodes(first)
    if first.standalone:
        where = f"{text} in each of {pods} pods" if pods > 1 else text
        return f"{where}, but --standalone makes a rendezvous of its own in each pod: leave --standalone out", []
    if first.size > pods:
        return f"{text}, and {pods} pod{'s run' if pods != 1 else ' runs'} one", []
    if not all(found.nodes for _, _, found in known):  # in some pods torchrun has started its ranks
        return "", []
    text = f"{text}, and {pods} pods run one"
    if ids := _differing_values(first.size, [(pod, f"`{found.group[:_MAX_ID]}`") for _, pod, found in known]):
        return f"{text}, but their --rdzv-id differ: {ids}", []
    joined = Counter(found.rank for _, _, found in known if found.rank is not None)
    if twice := [name for name, _, found in known if found.rank is not None and joined[found.rank] > 1]:
        return f"{text}, and {join_names(twice)} run one with the same --node-rank", twice
    if not far:
        return "", []
    if ports := _differing_values(first.size, [(pod, str(found.port)) for _, pod, found in known]):
        return f"{text}, but they look for each other at different ports: {ports}", []
    if first.size > 1 and all(_is_loopback(found.host) for _, _, found in known):
        where = f"each looks for the others at {first.address}, which in each pod is that pod itself"
        return f"{text}, but {where}: give all of them the --rdzv-endpoint of one pod", []
    return "", []


def _differing_values(size: int, settings: Sequence[tuple[str, str]]) -> str:
    """The values of a setting, by pod, that must be the same in `size` pods at least; "" if they are."""
    pods = defaultdict[str, set[str]](set)
    for pod, value in settings:
        pods[value].add(pod)
    return join_names(sorted(pods), 3) if min(map(len, pods.values())) < size else ""


def _wrong_numbers(known: Sequence[tuple[str, str, Rendezvous]], count: int) -> tuple[str, list[str]]:
    sizes = Counter(found.size for _, _, found in known)
    if len(sizes) > 1:
        texts = [f"{name} expects {found.size}" for name, _, found in known]
        return f"the ranks expect different numbers: {join_names(texts)}", []
    joined = Counter(found.rank for _, _, found in known if found.rank is not None)
    for rank, times in joined.items():
        if times > 1:
            names = [name for name, _, found in known if found.rank == rank]
            absent = sorted(set(range(min(sizes, default=0))) - joined.keys())
            nobody = f", and nobody as rank {join_names([str(each) for each in absent])}" if absent else ""
            return f"{join_names(names)} join as rank {rank}{nobody}", names
    size = next(iter(sizes), 0)
    return (_count_text(count, size) if size not in (0, count) else ""), []


def _count_text(count: int, expected: int) -> str:
    return f"{count} ranks run, they expect {expected}" if count != 1 else f"1 rank runs, it expects {expected}"


def _wrong_addresses(known: Sequence[tuple[str, str, Rendezvous]], count: int) -> tuple[str, list[str]]:
    """What is wrong with the addresses at which ranks look for rank 0, compared with where rank 0 listens."""
    first = next((found for _, _, found in known if found.rank == 0), None)
    strangers = [(name, found) for name, _, found in known if first is None or found.address != first.address]
    unresolved = [(name, found) for name, _, found in known if found.is_unresolved]
    for _, found in unresolved or strangers:
        if not found.host or (first is None and not found.is_unresolved):
            continue
        names = [each for each, other in unresolved or strangers if other.address == found.address]
        why = ", a name that does not resolve" if found.is_unresolved else ""
        verb = "looks" if len(names) == 1 else "look"
        there = (
            f", and rank 0 listens at {first.address}" if first is not None and first.address != found.address else ""
        )
        return f"{join_names(names)} {verb} for rank 0 at {found.address}{why}{there}", names
    pods = {pod for _, pod, _ in known}
    if first is not None and len(pods) > 1 and _is_loopback(first.host):
        return f"they look for rank 0 at {first.address}, which in each pod is that pod itself", []
    return "", []


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _calls(threads: object) -> list[tuple[str, dict[str, str]]]:
    """The calls of all threads: the function's name, and its local variables as py-spy prints them."""
    found = []
    for thread in threads if isinstance(threads, list) else []:
        frames = thread.get("frames") if isinstance(thread, dict) else None
        for frame in frames if isinstance(frames, list) else []:
            variables = frame.get("locals") if isinstance(frame, dict) else None
            pairs = [each for each in variables if isinstance(each, dict)] if isinstance(variables, list) else []
            found.append(
                (
                    str(frame.get("name")) if isinstance(frame, dict) else "",
                    {str(v.get("name")): str(v.get("repr")) for v in pairs},
                )
            )
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and is_digits(text) and len(text) < 10 else None


def _text(shown: str | None) -> str:
    """A string as py-spy prints it; "" for any other value."""
    try:
        value = json.loads(shown or "")
    except (ValueError, RecursionError):
        return ""
    return "".join(c for c in value[:_MAX_WORD] if c.isprintable()) if isinstance(value, str) else ""
