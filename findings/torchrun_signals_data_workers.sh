#!/usr/bin/env bash
# torch 2.13.0: torchrun passes a SIGTERM on to the whole process group of each rank, not to the rank's process alone. The workers
# of a DataLoader are in that group and end at once. So a program that catches SIGTERM, takes the batches that it still needs and
# saves a checkpoint works when it is started with `python`, and fails under torchrun: the next batch raises RuntimeError ("DataLoader
# worker … is killed by signal: Terminated" or "… exited unexpectedly"), and the checkpoint is lost although the grace period has
# hardly begun. Workers that call os.setsid() first are spared.
# Run: bash findings/torchrun_signals_data_workers.sh  (needs python3.11+ and a package index; torch takes about 5 GB on disk)
# Seen: "python: saved", "torchrun: not saved: DataLoader worker exited unexpectedly", "torchrun, workers with setsid: saved"
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
cat > "$place/save.py" <<'PROGRAM'
import os
import re
import signal
import sys
import time

from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        time.sleep(0.01)
        return index


def leave_group(worker):
    if "setsid" in sys.argv:
        os.setsid()


asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
batches = iter(DataLoader(Numbers(), batch_size=4, num_workers=2, worker_init_fn=leave_group))
next(batches)
print("training", flush=True)
try:
    while not asked:
        next(batches)
    time.sleep(0.5)
    for _ in range(8):  # more than the workers have fetched ahead
        next(batches)
    print("saved", flush=True)
except RuntimeError as error:
    print("not saved:", re.sub(r" \(pid(\(s\))? [\d, ]+\)", "", str(error)).partition(". ")[0], flush=True)
PROGRAM
cat > "$place/stop.py" <<'PROGRAM'
"""Starts a command, sends SIGTERM to its first process once it trains, and prints the last line."""
import signal
import subprocess
import sys

lines = []
with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
    for line in program.stdout:
        lines.append(line.strip())
        if line.startswith("training"):
            program.send_signal(signal.SIGTERM)
print(lines[-1])
PROGRAM
python="$place/venv/bin/python"
torchrun() { "$python" "$place/stop.py" "$python" -m torch.distributed.run --nproc-per-node 1 --master-port 0 "$place/save.py" "$@"; }
alone=$("$python" "$place/stop.py" "$python" "$place/save.py")
group=$(torchrun)
apart=$(torchrun setsid)
printf '%s\n' "python: $alone" "torchrun: $group" "torchrun, workers with setsid: $apart"
[[ "$alone" == saved && "$group" == 'not saved: DataLoader worker'* && "$apart" == saved ]] || { echo 'torch no longer behaves as described above'; exit 1; }
