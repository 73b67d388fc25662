#!/usr/bin/env bash
# tqdm 4.70.1: `set_postfix` redraws a bar at once, while the count before it is redrawn at most every `mininterval`
# (0.1 s). So a fast loop draws the figures of later steps beside the count of an earlier one: a reader of logs that takes
# count and figures of one frame for one step gives a loss to the wrong step. With `set_postfix(..., refresh=False)` they are
# drawn together, here with mininterval=0 so that there are as many frames.
# Run: bash findings/tqdm_postfix_ahead_of_count.sh  (needs python3 and a package index; a second or so)
# Seen: "refresh=True: frames: 21, frames whose figure is not of their count: 19" and, with refresh=False, "21" and "0".
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check tqdm==4.70.1
cat > "$place/loop.py" <<'PROGRAM'
import io
import re
import sys

from tqdm import tqdm


def frames(refresh: bool) -> list[tuple[int, int]]:
    """(the count, the figure) of each frame that a loop of 20 fast steps draws; the figure is the number of the step."""
    drawn = io.StringIO()
    bar = tqdm(range(20), file=drawn, ncols=80, mininterval=0.1 if refresh else 0, miniters=1)
    for step in bar:
        bar.set_postfix(step=step, refresh=refresh)
    return [(int(n), int(s)) for n, s in re.findall(r"(\d+)/20 \[[^\]]*step=(\d+)", drawn.getvalue())]


for refresh in (True, False):
    found = frames(refresh)
    # while step k is at work, k steps are done: a count of k belongs to it, and k + 1 once it is over
    apart = [pair for pair in found if pair[1] not in (pair[0], pair[0] - 1)]
    print(f"refresh={refresh}: frames: {len(found)}, frames whose figure is not of their count: {len(apart)}")
    if refresh and len(apart) < 10 or not refresh and apart:
        sys.exit("tqdm no longer behaves as described above")
PROGRAM
"$place/venv/bin/python" "$place/loop.py"
