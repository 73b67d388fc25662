#!/usr/bin/env bash
# torch 2.13.0: `destroy_process_group()` ends the threads of a Gloo group only while nothing was wrapped in
# DistributedDataParallel. The constructor of DDP alone is enough: the wrapped model may be dropped and collected, and the
# group's threads still run after `destroy_process_group()`, until the interpreter ends. So a CPU program that does what the
# documentation asks for ends with Gloo's threads at work, and its process may abort after the training has succeeded
# (SIGABRT, "terminate called without an active exception"; seen once in some hundreds of runs on a busy machine, not shown
# here). Under torchrun with min:max nodes that exit code restarts the rank alone, while the other agents wait in the exit
# barrier for up to 300 s.
# Run: bash findings/ddp_keeps_gloo_threads.sh  (needs python3.11+ and a package index; torch takes about 5 GB on disk)
# Seen: "all_reduce only: 4 threads of the group before, 0 after" and "with DDP: 4 threads of the group before, 4 after"
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
cat > "$place/group.py" <<'PROGRAM'
import gc
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def threads() -> int:
    """How many threads of this process belong to Gloo or to its store."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return sum(name.startswith(("gloo", "pt_gloo", "pt_tcpstore")) for name in names)


def work(ddp: bool) -> None:
    dist.all_reduce(torch.ones(2))
    if ddp:
        DistributedDataParallel(torch.nn.Linear(4, 4))


dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=0, world_size=1)
work(ddp=sys.argv[1] == "ddp")
gc.collect()
before = threads()
dist.destroy_process_group()
gc.collect()
print(before, threads())
PROGRAM
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
read -r before plain < <("$place/venv/bin/python" "$place/group.py" plain "$(port)")
echo "all_reduce only: $before threads of the group before, $plain after"
read -r before wrapped < <("$place/venv/bin/python" "$place/group.py" ddp "$(port)")
echo "with DDP: $before threads of the group before, $wrapped after"
[ "$plain" = 0 ] && [ "$wrapped" -gt 0 ] || { echo 'torch no longer behaves as described above'; exit 1; }
