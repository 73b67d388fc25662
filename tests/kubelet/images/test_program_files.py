"""The program of a pod is read for advice; what is none is left alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rowlock.kubelet.images.images import Image
from rowlock.kubelet.pod.facts import Problem
from rowlock.kubelet.runtime.program_files import read_program


def pod(*command: str, **container: Any) -> dict[str, Any]:
    main = {"name": "pytorch", "image": "i", "command": list(command), **container}
    return {"metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": [main]}}


@pytest.mark.parametrize(
    "command",
    [["python", "train.py", "--lr", "1"], ["sh", "-c", "cd . && exec python 'train.py'; echo done.py"], ["python", "{root}/train.py"]],
)  # fmt: skip
def test_the_program_is_found_as_the_pod_would_find_it(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "train.py").write_text("import speechbrain\n")
    image = Image("i:1", root=str(tmp_path))
    words = [word.replace("{root}", str(tmp_path)) for word in command]
    assert read_program(pod(*words), lambda _: image) == "import speechbrain\n"
    assert read_program(pod(*words, workingDir=str(tmp_path)), lambda _: Image("i:1")) == "import speechbrain\n"


def test_what_is_no_program_is_empty(tmp_path: Path) -> None:
    image = Image("i:1", root=str(tmp_path))
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "large.py").write_bytes(b"#" * (257 << 10))
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    for name in ("fifo.py", "large.py", "link.py", "none.py", "train"):
        assert read_program(pod("python", name), lambda _: image) == "", name
    assert read_program(pod("python", "a.py"), lambda _: Problem("ErrImageNeverPull", "none")) == ""
    assert read_program({"spec": {"containers": []}}, lambda _: image) == ""
