"""Memory in huge pages is the same memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from rowlock.kubelet.warm import warm_parent

PROGRAM = """
import os
from rowlock.kubelet.warm import warm_parent
data = bytearray(os.urandom(1 << 20)) * 16
before = hash(bytes(data))
done = warm_parent.collapse_memory()
with open("/proc/self/smaps_rollup") as file:
    huge = next((int(line.split()[1]) for line in file if line.startswith("AnonHugePages:")), 0)
assert hash(bytes(data)) == before
assert not done or huge > 0, huge
if (child := os.fork()) == 0:
    data[:] = bytes(len(data))
    os._exit(0)
os.waitpid(child, 0)
assert hash(bytes(data)) == before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of another system has no /proc/self/maps")
def test_what_is_in_it_stays() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=200)


def test_who_has_switched_them_off_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "enabled"
    monkeypatch.setattr(warm_parent, "_SETTING", str(setting))
    assert warm_parent.collapse_memory() is False
    setting.write_text("always madvise [never]\n")
    assert warm_parent.collapse_memory() is False
