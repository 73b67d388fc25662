"""Examines the ranks of a container from inside: which processes they are, what they use, and where their code is (py-spy).

Run as a script by the Python in the container, or with the argument `FROM_OUTSIDE` in a debug container that shares its processes. Needs
only Python 3.7's standard library and prints one line of JSON. `diagnostics/rank_processes.py` defines what a rank is.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import struct
import subprocess
import sys
import time
from typing import Any

PAUSES_S, DUMP_S, TRIES = (0.5, 1.1, 0.65, 1.55), 5.0, 4
"""Pauses between stack dumps, in seconds; uneven, so that a rank with a loop of one second is not caught at the same line each time."""
MOST_THREADS, MOST_CALLS = 16, 64
"""Maximum of reported threads per process, and of calls per thread."""
MOST_RANKS = 64
"""Maximum of ranks examined in one pod."""
MOST_PEERS = 256
"""Maximum of reported addresses of peers."""
FROM_OUTSIDE = "from-outside"
"""The argument in a debug container: process 1 belongs to the examined container, which has other files than this one."""
TORCH_VARIABLES = ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID")
ERROR_FILE, MAX_ERROR_BYTES = "TORCHELASTIC_ERROR_FILE", 16384
"""The variable with the path of torch's error file, and how many bytes of its end are read."""
MEETINGS = ("init_process_group", "next_rendezvous")
"""Functions in which ranks or torchruns wait for each other. py-spy puts a method's class before its name."""
MEETING_VARIABLES = ("rank", "world_size", "rendezvous_count", "group_rank", "group_size", "hostname", "port")
"""Local variables of torch's functions that `parse_rendezvous` reads."""
MOST_WORDS = 64
"""Maximum of reported words of a torchrun's command line."""
FRAMEWORKS = ("torch", "tensorflow", "jaxlib", "paddle", "mpi4py", "xgboost", "lightgbm", "mindspore")
"""Packages whose native code identifies a process as a training."""
PACKAGES = (*FRAMEWORKS, "deepspeed", "ray")
HINT_VARIABLES = ("LOCAL_RANK", "TF_CONFIG", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""What `missing_for_group` reads: packages with native code, and variables; TF_CONFIG is reported without its value."""
ESTABLISHED = "01"
SOCK_DIAG = 4
MPI_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat, from the state on; [] if the process is gone."""
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def read_environ(pid: int) -> dict[str, str]:
    pairs = (entry.partition(b"=") for entry in read_file(f"/proc/{pid}/environ").split(b"\0") if b"=" in entry)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}


def read_link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def is_python(pid: int) -> bool:
    return os.path.basename(read_link(pid, "exe")).startswith(("python", "pypy"))


def is_outside() -> bool:
    return sys.argv[1:] == [FROM_OUTSIDE]


def process_tree() -> tuple[dict[int, list[int]], list[int]]:
    """(children by parent, processes without a parent among them) of one container, without this process."""
    own, mounts = os.getpid(), read_link(os.getpid(), "ns/mnt")
    if is_outside():
        mine, mounts = mounts, read_link(1, "ns/mnt")
        if mounts in ("", mine):
            return {}, []
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isascii() and entry.isdigit() and int(entry) != own and read_link(int(entry), "ns/mnt") == mounts:
            fields = stat_fields(int(entry))
            if len(fields) > 1 and fields[0] != b"Z":
                parents[int(entry)] = int(fields[1])
    tree: dict[int, list[int]] = {pid: [] for pid in parents}
    for pid, parent in parents.items():
        if parent in tree:
            tree[parent].append(pid)
    return tree, sorted(pid for pid, parent in parents.items() if parent not in parents)


def rank_number(env: dict[str, str], pod_env: dict[str, str]) -> str:
    """The rank's number from its environment, if it differs from the pod's environment or was set by MPI; else ""."""
    if any(env[name] != pod_env.get(name) for name in TORCH_VARIABLES if name in env):
        return env.get("RANK", env.get("LOCAL_RANK", ""))
    return next((env[name] for name in MPI_VARIABLES if name in env), "")


def ranks_below(pid: int, tree: dict[int, list[int]], pod_env: dict[str, str]) -> list[tuple[int, str]]:
    found_python = is_python(pid)
    number = rank_number(read_environ(pid), pod_env) if found_python else ""
    if number:
        return [(pid, number)]
    below = [rank for child in tree[pid] for rank in ranks_below(child, tree, pod_env)]
    if found_python:
        spawned = [child for child in tree[pid] if is_python(child)]
        return [rank for rank in below if rank[1]] or [(each, "") for each in ranks_among(pid, spawned) or [pid]]
    return below


def ranks_among(parent: int, spawned: list[int]) -> list[int]:
    """The children of a process that are ranks without numbers (`torch.multiprocessing.spawn`), in the order of their starts: Python with a
    framework, connected to each other, while the parent waits."""
    if len(spawned) < 2 or stat_fields(parent)[:1] != [b"S"]:
        return []
    sockets = {pid: found for pid in spawned if has_framework(pid) and (found := socket_inodes(pid))}
    if len(sockets) < 2:
        return []
    table, shared = connections(parent), socket_inodes(parent)
    ends: dict[tuple[str, str], int] = {}
    for pid, inodes in sockets.items():
        own = inodes - shared.union(*(held for other, held in sockets.items() if other != pid))
        ends |= {table[inode]: pid for inode in own & table.keys()}
    peers = {pid for (near, far), pid in ends.items() if ends.get((far, near), pid) != pid}
    return sorted(peers, key=lambda pid: int((stat_fields(pid) or [b"0"] * 20)[19]))


def has_framework(pid: int) -> bool:
    maps = read_file(f"/proc/{pid}/maps")
    return any(f"-packages/{name}/".encode() in maps for name in FRAMEWORKS)


def socket_inodes(pid: int) -> set[str]:
    try:
        targets = [read_link(pid, f"fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return set()
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


def connections(pid: int) -> dict[str, tuple[str, str]]:
    """Socket inode → both ends of an established TCP connection, the local one first."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in read_file(f"/proc/{pid}/net/{name}").decode().splitlines()
    ]
    return {f[9]: (plain_end(f[1]), plain_end(f[2])) for f in lines if len(f) > 9 and f[3] == ESTABLISHED}


def is_alone(pid: int, tree: dict[int, list[int]]) -> bool:
    """Whether a process and its descendants have no connection that leaves their pod."""
    held = {inode for each in with_descendants(pid, tree) for inode in socket_inodes(each)}
    ends = (ends for inode, ends in connections(pid).items() if inode in held)
    return all(near.partition(":")[0] == far.partition(":")[0] for near, far in ends)


def pod_network(pids: list[int], tree: dict[int, list[int]]) -> dict[str, Any]:
    """What ranks' connections and the kernel's counters of their pod tell. `peers`: the far addresses of connections that leave the pod, in
    hexadecimal, as in /proc/net/tcp; `inside`: connections of the pod to itself. {} if that cannot be read."""
    processes = [each for pid in pids for each in with_descendants(pid, tree)]
    rows = [line.split() for line in read_file(f"/proc/{pids[0]}/net/snmp").splitlines() if line.startswith(b"Tcp:")]
    if len(rows) != 2 or not all(read_link(pid, "exe") for pid in processes):
        return {}
    (names, values), ends, maps = rows, connections(pids[0]), read_file(f"/proc/{pids[0]}/maps")
    held = {inode for pid in processes for inode in socket_inodes(pid)}
    pairs = {inode: tuple(end.partition(":")[0] for end in both) for inode, both in ends.items()}
    return {
        "opened": int(values[names.index(b"ActiveOpens")]),
        "accepted": int(values[names.index(b"PassiveOpens")]),
        "failed": int(values[names.index(b"AttemptFails")]),
        "inside": sum(near == far for near, far in pairs.values()) // 2,
        "peers": sorted({far for inode, (near, far) in pairs.items() if inode in held and near != far})[:MOST_PEERS],
        "packages": [name for name in PACKAGES if f"-packages/{name}/".encode() in maps],
        "variables": hint_variables(pids[0]),
    }


def hint_variables(pid: int) -> dict[str, str]:
    env = read_environ(pid)
    return {name: "set" if name == "TF_CONFIG" else env[name][:20] for name in HINT_VARIABLES if name in env}


def plain_end(text: str) -> str:
    """Address and port; an IPv4-mapped IPv6 address becomes the IPv4 address."""
    return text[24:] if text.startswith("0000000000000000FFFF0000") else text


def with_descendants(pid: int, tree: dict[int, list[int]]) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += tree.get(found[-1], [])
    return found


def cpu_seconds(place: str) -> tuple[float, float]:
    """(total, system) CPU seconds of a process or thread; `place` is its directory in /proc."""
    fields = read_file(f"{place}/stat").rpartition(b")")[2].split()
    user, system = (int(fields[11]), int(fields[12])) if len(fields) > 12 else (0, 0)
    return (user + system) / os.sysconf("SC_CLK_TCK"), system / os.sysconf("SC_CLK_TCK")


def read_counters(pid: int, tree: dict[int, list[int]]) -> dict[str, float]:
    """The inputs of `Activity` in diagnosis/activity.py. `network`: bytes of the pod's network, which may be the host's; `sockets`: those of
    the connections that the rank holds."""
    all_of_it, place = with_descendants(pid, tree), f"/proc/{pid}"
    own, system = cpu_seconds(place)
    fields = stat_fields(pid)
    switches = re.search(rb"^voluntary_ctxt_switches:\s*(\d+)", read_file(f"{place}/status"), re.M)
    return {
        "cpu": sum(cpu_seconds(f"/proc/{each}")[0] for each in all_of_it),
        "own_cpu": own,
        "system_cpu": system,
        "main_cpu": cpu_seconds(f"{place}/task/{pid}")[0],
        "queued": sum(map(queued_seconds, all_of_it)),
        "own_queued": queued_seconds(pid),
        "moved": sum(moved_bytes(each) for each in all_of_it),
        "network": network_bytes(pid),
        "sockets": socket_bytes(all_of_it),
        "faults": int(fields[7]) if len(fields) > 7 else 0,
        "wakeups": int(switches[1]) if switches else 0,
        "in_timer": b"nanosleep" in read_file(f"{place}/wchan"),
    }


def queued_seconds(pid: int) -> float:
    """Seconds that the process's threads were runnable but waited for a CPU."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            fields = read_file(f"/proc/{pid}/task/{thread}/schedstat").split()
            total += int(fields[1]) if len(fields) > 1 else 0
    except OSError:
        pass  # the process is gone
    return total / 1e9


def moved_bytes(pid: int) -> int:
    """Bytes of the process's read and write calls."""
    return sum(int(number) for number in re.findall(rb"^[rw]char: (\d+)", read_file(f"/proc/{pid}/io"), re.M))


def network_bytes(pid: int) -> int:
    lines = read_file(f"/proc/{pid}/net/dev").splitlines()[2:]
    return sum(int(line.partition(b":")[2].split()[0]) for line in lines if b":" in line)


def socket_bytes(pids: list[int]) -> int:
    """Bytes sent and received on the TCP connections that processes hold, as sock_diag(7) tells them; 0 if it does not answer."""
    held = {inode for pid in pids for inode in socket_inodes(pid)}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as link:
            link.settimeout(1.0)
            return sum(
                read for family in (2, 10) for inode, read in read_connection_bytes(link, family) if str(inode) in held
            )
    except (OSError, struct.error):
        return 0


def read_connection_bytes(link: socket.socket, family: int) -> list[tuple[int, int]]:
    """(inode, bytes) of each established TCP connection."""
    ask = struct.pack("=BBBBI48s", family, socket.IPPROTO_TCP, 1 << 1, 0, 1 << int(ESTABLISHED), b"")
    link.send(struct.pack("=IHHII", 16 + len(ask), 20, 0x301, 1, 0) + ask)
    found: list[tuple[int, int]] = []
    while True:
        data, at = link.recv(1 << 16), 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind in (2, 3) or length < 16:
                return found
            found.append((struct.unpack_from("=I", data, at + 84)[0], tcp_bytes(data[at + 88 : at + length])))
            at += (length + 3) & ~3


def tcp_bytes(attributes: bytes) -> int:
    """The acknowledged and the received bytes of a tcp_info, which is attribute 2."""
    at = 0
    while at + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, at)
        if kind == 2 and length >= 140:
            return sum(struct.unpack_from("=QQ", attributes, at + 124))
        at += max(4, (length + 3) & ~3)
    return 0


def find_py_spy(pids: list[int]) -> str:
    """Find py-spy beside the ranks' Python, on their PATH or on ours (from outside only on ours); "" if it is nowhere."""
    inside = [] if is_outside() else pids
    places = [os.path.dirname(read_link(pid, "exe")) for pid in inside]
    for path in [*(read_environ(pid).get("PATH", "") for pid in inside), os.environ.get("PATH", "")]:
        places += path.split(":")
    tools = (os.path.join(place, "py-spy") for place in places if place)
    return next((tool for tool in tools if os.access(tool, os.X_OK)), "")


def run_py_spy(tool: str, pid: int, *flags: str) -> tuple[list[Any], str]:
    """(threads, why there are none). The process is not paused, because a pause interrupts system calls with a timeout."""
    command = [tool, "dump", "--json", "--nonblocking", *flags, "--pid", str(pid)]
    env = dict(os.environ, RUST_BACKTRACE="0")  # else its last line is not the reason of the failure
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        output, errors = process.communicate(timeout=DUMP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return [], f"py-spy did not answer within {DUMP_S:.0f} s"
    if process.returncode:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        return [], f"py-spy: {lines[-1].strip()[:300] if lines else 'it failed without a message'}"
    try:
        found = json.loads(output.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return [], "py-spy's answer cannot be read"
    return (found, "") if isinstance(found, list) else ([], "py-spy's answer is no list of threads")


def dump_threads(tool: str, pid: int) -> tuple[list[Any], str]:
    """(threads with their calls, the main thread first; why there are none). A dump of a running process may be inconsistent and then has
    no calls; it is repeated."""
    found: list[Any] = []
    blind = "py-spy is not in the image (`pip install py-spy` puts it there)"
    for _ in range(TRIES if tool else 0):
        found, blind = run_py_spy(tool, pid)
        if blind or any(isinstance(thread, dict) and thread.get("frames") for thread in found):
            break
    threads = [thread for thread in found if isinstance(thread, dict)]
    threads.sort(key=lambda thread: thread.get("thread_name") != "MainThread")
    return [short_thread(thread, n < MOST_THREADS) for n, thread in enumerate(threads)], blind


def short_thread(thread: dict[str, Any], with_calls: bool) -> dict[str, Any]:
    """The fields of a thread that `parse_stack` reads."""
    frames = frames_of(thread) if with_calls else []
    calls = [{name: frame.get(name) for name in ("name", "filename", "line")} for frame in frames[:MOST_CALLS]]
    return {"thread_name": thread.get("thread_name"), "active": thread.get("active"), "frames": calls}


def calls_of(threads: list[Any]) -> list[Any]:
    return [thread["frames"] for thread in threads]


def look_at(tool: str, pids: list[int]) -> tuple[list[dict[int, tuple[list[Any], str]]], float]:
    """(dumps by pid, seconds they took): at least two dumps of each process; more until all were seen at another line or failed."""
    began = time.monotonic()
    looks = [{pid: dump_threads(tool, pid) for pid in pids}]
    for pause in PAUSES_S:
        elapsed = time.monotonic() - began
        time.sleep(max(0.0, pause - elapsed) if len(looks) == 1 else pause)
        looks.append({pid: dump_threads(tool, pid) for pid in pids})
        if all(looks[-1][pid][1] or earlier_look(looks, pid) != looks[-1][pid][0] for pid in pids):
            break
    return looks, max(0.001, time.monotonic() - began)


def earlier_look(looks: list[dict[int, tuple[list[Any], str]]], pid: int) -> list[Any]:
    """An earlier dump that differs from the last one, preferably in the main thread. If none does, the last one (or an empty one)."""
    last, earlier = looks[-1][pid][0], [look[pid][0] for look in looks[:-1]]
    for part in (1, None):
        for threads in earlier:
            if calls_of(threads)[:part] != calls_of(last)[:part]:
                return threads
    return last if earlier[0] else earlier[0]


def read_error(pid: int, path: str) -> str:
    """The end of torch's error file; "" if it is older than the process or not a regular file."""
    return read_end(f"/proc/{pid}/root{path}", since=start_time(pid) - 1)


def read_end(place: str, since: float = 0.0) -> str:
    """The end of a regular file modified after `since` (seconds since the epoch); "" for any other."""
    try:
        found = os.stat(place)
        if not stat.S_ISREG(found.st_mode) or found.st_mtime < since:
            return ""
        with open(place, "rb") as file:
            file.seek(max(0, found.st_size - MAX_ERROR_BYTES))
            return file.read(MAX_ERROR_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def read_earlier_error(pid: int) -> dict[str, Any]:
    """How often torchrun has restarted a rank; for a pod's first rank also the first error of the previous attempt."""
    env = read_environ(pid)
    found = re.match(r"(/.*/attempt_)([0-9]{1,6})/[0-9]{1,6}/[^/]+$", env.get(ERROR_FILE, ""))
    if not found or not int(found[2]):
        return {}
    earlier = f"/proc/{pid}/root{found[1]}{int(found[2]) - 1}"
    places = {local: f"{earlier}/{local}/error.json" for local in range(MOST_RANKS) if env.get("LOCAL_RANK") == "0"}
    texts = {local: read_end(place) for local, place in places.items()}
    times = [(os.stat(places[local]).st_mtime, local) for local, text in texts.items() if text]
    local_rank = min(times)[1] if times else -1
    return {"restarts": int(found[2]), "earlier": texts.get(local_rank, ""), "earlier_rank": local_rank}


def read_meeting(tool: str, pid: int, threads: list[Any], tree: dict[int, list[int]]) -> dict[str, Any]:
    """For a rank that waits in a rendezvous: the local variables of torch's functions, or torchrun's command line, and whether it is
    connected; else {}."""
    calls = {str(call.get("name")).rpartition(".")[2] for thread in threads for call in thread["frames"]}
    if calls.isdisjoint(MEETINGS):
        return {}
    env, words = read_environ(pid), read_file(f"/proc/{pid}/cmdline").decode("utf-8", "replace").split("\0")
    if any(word.endswith(("/torchrun", "torch.distributed.run")) for word in words[:4]):
        return {"words": words[:MOST_WORDS], "nnodes": env.get("PET_NNODES", ""), "alone": is_alone(pid, tree)}
    found = run_py_spy(tool, pid, "--locals")[0]
    told = [{"frames": [with_variables(call) for call in frames_of(thread)[:MOST_CALLS]]} for thread in found]
    return {"meeting": told, "world_size": env.get("WORLD_SIZE", ""), "alone": is_alone(pid, tree)}


def with_variables(call: dict[str, Any]) -> dict[str, Any]:
    known = [
        each for each in call.get("locals") or [] if isinstance(each, dict) and each.get("name") in MEETING_VARIABLES
    ]
    return {"name": call.get("name"), "locals": [{key: each.get(key) for key in ("name", "repr")} for each in known]}


def frames_of(thread: Any) -> list[dict[str, Any]]:
    frames = thread.get("frames") if isinstance(thread, dict) else None
    return [frame for frame in frames or [] if isinstance(frame, dict)]


def start_time(pid: int) -> float:
    """When a process started, in seconds since the epoch."""
    fields = stat_fields(pid)
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 else 0.0
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began)


def read_errors(pids: list[int]) -> dict[int, str]:
    """Pid → content of the error file, for ranks with a file of their own: MPI's launchers give all ranks the same file."""
    paths = {pid: read_environ(pid).get(ERROR_FILE, "") for pid in pids}
    own = [pid for pid, path in paths.items() if path.startswith("/") and list(paths.values()).count(path) == 1]
    return {pid: read_error(pid, paths[pid]) for pid in own}


def main() -> None:
    tree, roots = process_tree()
    ranks = [rank for root in roots for rank in ranks_below(root, tree, read_environ(root))][:MOST_RANKS]
    tool = find_py_spy([pid for pid, _ in ranks])
    pids = [pid for pid, _ in ranks]
    before = {pid: read_counters(pid, tree) for pid in pids}
    looks, watched = look_at(tool, pids)
    errors = read_errors(pids)
    answer: list[dict[str, Any]] = []
    for pid, number in ranks:
        second, blind = looks[-1][pid]
        after = read_counters(pid, tree)
        state = (stat_fields(pid) or [b"X"])[0].decode()
        seen = {"pid": pid, "number": number, "state": state, "blind": blind, "error": errors.get(pid, "")}
        seen.update({"before": before[pid], "after": after, "looks": len(looks), "watched": watched})
        seen.update(read_meeting(tool, pid, second, tree))
        answer.append({**seen, **read_earlier_error(pid), "first": earlier_look(looks, pid), "second": second})
    network = pod_network(pids, tree) if pids else {}
    sys.stdout.write(json.dumps({"ranks": answer, "network": network}) + "\n")


if __name__ == "__main__":
    main()
