"""What stands for Trainer's initializers: what it copies, and what it says where it cannot."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from rowlock.kubelet.images.images import Image, Images
from rowlock.kubelet.initializers.initializer import CannotInitialize, find_cached, initialize, is_mounted


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
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(
        CannotInitialize, match="`pip install huggingface_hub`, and it is not in the cache of this machine; without a"
    ):
        initialize("model", "hf://owner/name", tmp_path / "model")


REVISION = "0123456789abcdef" * 2 + "01234567"


def cached_model(home: Path, *files: str) -> Path:
    """A model as `huggingface_hub` keeps it: links to blobs, by revision."""
    cached = home / "hub" / "models--owner--name"
    snapshot, blobs = cached / "snapshots" / REVISION, cached / "blobs"
    blobs.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(REVISION)
    for number, file in enumerate(files):
        (blobs / str(number)).write_text(f"content of {file}")
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).symlink_to(blobs / str(number))
    return snapshot


def test_without_a_network_the_cache_of_this_machine_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    snapshot = cached_model(tmp_path, "config.json", "model.safetensors", "pytorch_model.bin", "deep/tokenizer.json")
    target = tmp_path / "workspace" / "model"
    said = initialize("model", "hf://owner/name", target)
    assert said.startswith(
        f"copied 3 files of {snapshot}, the cache of this machine, to {target} (hf://owner/name needs "
    )
    assert sorted(str(one.relative_to(target)) for one in target.rglob("*") if one.is_file()) == [
        "config.json", "deep/tokenizer.json", "model.safetensors",
    ]  # fmt: skip
    assert not (target / "config.json").is_symlink()
    assert (target / "config.json").read_text() == "content of config.json"


def test_a_download_that_fails_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `huggingface_hub` 2.4 fails without a network; the cache has the dataset of another name."""
    library = ModuleType("huggingface_hub")

    def snapshot_download(repository: str, **_: object) -> None:
        raise OSError("Got: ConnectError: [Errno -2] Name or service not known\nmore")

    vars(library)["snapshot_download"] = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    cached_model(tmp_path, "config.json")
    with pytest.raises(CannotInitialize) as refused:
        initialize("dataset", "hf://owner/name", tmp_path / "dataset")
    assert str(refused.value) == (
        "hf://owner/name cannot be downloaded: OSError: Got: ConnectError: [Errno -2] Name or service not known, and it is not in"
        " the cache of this machine; without a network, put it on this machine and set storageUri to file:///DIRECTORY"
    )


@pytest.mark.parametrize("revision", ["", "../../other", REVISION[:-1]])
def test_a_broken_cache_is_none(tmp_path: Path, revision: str) -> None:
    snapshot = cached_model(tmp_path, "config.json")
    assert find_cached("model", "owner/name", {"HF_HOME": str(tmp_path)}) == snapshot
    (snapshot.parents[1] / "refs" / "main").write_text(revision)
    assert find_cached("model", "owner/name", {"HF_HOME": str(tmp_path)}) is None
    assert find_cached("model", "owner/other", {"HF_HUB_CACHE": str(tmp_path / "hub")}) is None


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
