"""The directories of pods: what a crash leaves of one that is being removed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rowlock.kubelet.files import beneath
from rowlock.kubelet.pod.directory import PodCard, PodDirectories

CARD = PodCard("default", "a", "0-1", "node", "127.0.0.1", 1.0, (), owner="")


def with_files(data: Path) -> PodDirectories:
    directories = PodDirectories(data)
    directories.write_card(CARD)
    (directories.pods / "0-1" / "volumes").mkdir()
    (directories.pods / "0-1" / "volumes" / "big").write_text("data")
    return directories


def test_a_removal_that_a_crash_ended_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash_after_the_card(path: str) -> None:
        (Path(path) / "pod.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(beneath, "remove_path", crash_after_the_card)
        with pytest.raises(KeyboardInterrupt):
            with_files(tmp_path).remove(CARD)
    after = PodDirectories(tmp_path)
    assert after.read_cards() == [] and list(after.pods.iterdir())
    after.finish_removals()
    assert not list(after.pods.iterdir()) and not caplog.records


def test_what_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(beneath, "remove_path", lambda _: None)  # as with an immutable file
    with caplog.at_level(logging.WARNING):
        with_files(tmp_path).remove(CARD)
    assert "cannot be removed whole" in caplog.text


def test_the_logs_of_pods_with_the_longest_names_are_kept_apart(tmp_path: Path) -> None:
    """Namespace, name and uid are more than the name of a file may have; a shared beginning makes them no one pod."""
    cards = [
        PodCard("n" * 63, "p" * 252 + letter, f"0000000{letter}-0000-4000-8000-000000000000", "node", "127.0.0.1", 1.0)
        for letter in "ab"
    ]
    told: list[str] = []
    directories = PodDirectories(tmp_path, told.append)
    for card in cards:
        directories.write_card(card)
        container = directories.container_directory(card.uid, "c")
        container.mkdir()
        (container / "start.0").write_text("{}")
        (container / "log.0").write_text(card.name)
        directories.remove(card)
    assert not list(directories.pods.iterdir()) and len(told) == 2
    for card in cards:
        found = directories.find_deleted_pod_log(card.namespace, card.name, "")
        assert found is not None and found.read_text() == card.name
