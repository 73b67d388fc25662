"""What stands for Trainer's initializers: what it copies, and what it says where it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rowlock.kubelet.images.images import Image, Images
from rowlock.kubelet.initializers.initializer import CannotInitialize, initialize, is_mounted


def test_a_directory_and_a_file_of_this_machine_are_copied(tmp_path: Path) -> None:
    source = tmp_path / "my data"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "rows.csv").write_text("1,2\n")
    target = tmp_path / "workspace" / "dataset"
    assert initialize("dataset", source.as_uri(), target) == f"copied {source} to {target}"
    initialize("dataset", (source / "deep" / "rows.csv").as_uri(), target)
    assert (target / "deep" / "rows.csv").read_text() == (target / "rows.csv").read_text() == "1,2\n"


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("", "STORAGE_URI is '', and what stands for"),
        ("s3://bucket/data", "knows hf://OWNER/NAME and file:///DIRECTORY"),
        ("file:///is/not/there", "file:///is/not/there cannot be copied to "),
    ],
)
def test_what_cannot_be_brought_is_said(tmp_path: Path, uri: str, sentence: str) -> None:
    with pytest.raises(CannotInitialize) as refused:
        initialize("dataset", uri, tmp_path / "dataset")
    assert sentence in str(refused.value)


def test_what_needs_a_library_that_is_not_there_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CannotInitialize, match="`pip install huggingface_hub`; or, without a network"):
        initialize("model", "hf://owner/name", tmp_path / "model")


def test_only_a_mounted_workspace_is_written_to() -> None:
    mounts = "36 35 98:0 / / rw - ext4 /dev/root rw\n37 36 98:0 /v /workspace rw - ext4 /dev/root rw\n"
    assert is_mounted("/workspace", mounts)
    assert not is_mounted("/work", mounts)


def test_a_host_image_of_an_initializer_has_its_program(tmp_path: Path) -> None:
    images = Images(tmp_path)
    name = "ghcr.io/kubeflow/trainer/model-initializer"
    for reference in (f"{name}:latest", f"{name}:v2.3.0", "other/model-initializer:latest"):
        images.add(Image(reference, host=True))
    programs = [images.find(ref) for ref in (name, f"{name}:v2.3.0", "other/model-initializer")]
    entrypoints = [one.entrypoint[-2:] for one in programs if isinstance(one, Image)]
    assert entrypoints == [("rowlock.kubelet.initializers.initializer", "model")] * 2 + [()]
