"""How long a pod waits whose predecessors have failed: by equality."""

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.recreations import NO_DELAY, Recreations, StartDelay

NOW = 1_000_000.0


def card(uid: str, begun: float = NOW, owner: str = "job", name: str = "p-0") -> PodCard:
    return PodCard("n", name, uid, "node", "10.77.1.1", begun, owner=owner)


def test_the_first_restart_is_at_once_and_the_others_wait_longer_and_longer() -> None:
    known, now, waits = Recreations(), NOW, []
    for number in range(9):
        pod = card(f"u{number}", now)
        waits.append(known.start_delay(pod).remaining)
        now += waits[-1]
        known.note_failure(pod, now)
        known.note_failure(pod, now + 5)  # its status is written again
    assert waits == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_the_wait_is_over_for_a_pod_that_comes_late() -> None:
    known = Recreations()
    for uid in ("a", "b", "c"):
        known.note_failure(card(uid), NOW)
    assert known.start_delay(card("d", NOW + 0.5)) == StartDelay(2.0, 1.5)
    assert known.start_delay(card("d", NOW + 2.0)) == NO_DELAY


def test_a_clock_that_was_set_back_holds_nobody() -> None:
    known = Recreations()
    for uid in ("a", "b"):
        known.note_failure(card(uid), NOW)
    assert known.start_delay(card("c", NOW - 3600)) == NO_DELAY


def test_a_good_run_is_forgiven() -> None:
    known = Recreations()
    for uid in ("a", "b", "c"):
        known.note_failure(card(uid), NOW)
    known.note_failure(card("d", NOW), NOW + 60)
    assert known.start_delay(card("e", NOW + 60)) == NO_DELAY
    known.note_failure(card("e", NOW + 60), NOW + 61)
    assert known.start_delay(card("f", NOW + 61)) == StartDelay(1.0, 1.0)


def test_only_the_same_job_waits() -> None:
    known = Recreations()
    for uid in ("a", "b", "c"):
        known.note_failure(card(uid), NOW)
        known.note_failure(card(uid, owner=""), NOW)
    for other in (card("d", owner="another"), card("d", name="p-1"), card("d", owner="")):
        assert known.start_delay(other) == NO_DELAY


def test_what_is_remembered_is_bounded() -> None:
    known = Recreations()
    for number in range(10_000):
        for uid in ("a", "b"):
            known.note_failure(card(uid, name=f"p-{number}"), NOW)
    assert known.start_delay(card("c", name="p-0")) == NO_DELAY
    assert known.start_delay(card("c", name="p-9999")) == StartDelay(1.0, 1.0)
