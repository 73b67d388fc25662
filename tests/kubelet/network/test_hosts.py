"""Who is called what in the pod network."""

from typing import Any

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.kubelet.network.hosts import HOSTS_HEADER, PodAddresses, PodNames, add_host_aliases, render_hosts_file
from rowlock.kubelet.network.name_index import NameIndex
from rowlock.objects import FINAL_PHASES, Key, Object, key, phase


def test_names_as_kubernetes_resolves_them() -> None:
    pods = {Key("a", "j-0"): "10.77.1.1", Key("b", "k-0"): "10.77.1.2"}
    services = {Key("a", "svc"): ["10.77.1.1", "10.77.1.9"], Key("a", "j-0"): ["1.1.1.1"]}
    text = render_hosts_file("a", PodNames(pods, {Key("b", "h.sub"): "10.77.1.2"}, services))
    assert text == HOSTS_HEADER + (
        "10.77.1.1\tj-0 j-0.a j-0.a.svc j-0.a.svc.cluster.local\n"
        "10.77.1.2\tk-0.b k-0.b.svc k-0.b.svc.cluster.local\n"
        "::ffff:10.77.1.1\tj-0.a.pod.cluster.local\n"
        "::ffff:10.77.1.2\tk-0.b.pod.cluster.local\n"
        "10.77.1.2\th.sub.b h.sub.b.svc h.sub.b.svc.cluster.local\n"
        "10.77.1.1\tsvc svc.a svc.a.svc svc.a.svc.cluster.local\n"
        "10.77.1.9\tsvc svc.a svc.a.svc svc.a.svc.cluster.local\n"
    )


def test_what_a_name_means_is_what_the_hosts_file_says() -> None:
    names = PodNames(
        {Key("a", "p"): "10.77.1.1", Key("b", "p"): "10.77.1.2", Key("b", "both"): "10.77.1.2"},
        {Key("a", "h.s"): "10.77.1.1"},
        {Key("a", "s"): ["10.77.1.1", "10.77.1.4"], Key("b", "both"): ["10.77.1.9"]},
        {Key("a", "uid-1"): [{"ip": "192.0.2.1", "hostnames": ["p", "db"]}]},
        machine="10.77.0.1",
    )
    for home in ("a", "b"):
        addresses: dict[str, list[str]] = {}
        for line in render_hosts_file(home, names).removeprefix(HOSTS_HEADER).splitlines():
            ip, *said = line.split()
            for name in said if not ip.startswith("::") else ():
                addresses.setdefault(name, []).append(ip)
        assert {name: names.find_addresses(name, Key(home, "uid-2")) for name in addresses} == addresses
    strange = ("", ".", "s", "x.a", "p.a.cluster.local", "p.svc", "p.a.svc.cluster", "a", "10.77.1.1", "p.p.a.svc")
    assert [names.find_addresses(name, Key("b", "uid-2")) for name in strange] == [[]] * len(strange)
    assert names.find_addresses("P.A.svc.", Key("b", "uid-2")) == ["10.77.1.1"]
    assert [names.find_addresses(name, Key("a", "uid-1")) for name in ("p", "db", "p.a")] == [
        ["192.0.2.1"],
        ["192.0.2.1"],
        ["10.77.1.1"],
    ]


def test_addresses_are_kept_and_not_reused_at_once() -> None:
    addresses = PodAddresses()
    assert [addresses.address_of(u) for u in ("a", "b", "a")] == ["10.77.1.1", "10.77.1.2", "10.77.1.1"]
    addresses.release("a")
    addresses.restore("z", "10.77.1.3")
    assert addresses.address_of("c") == "10.77.1.4"


class Objects:
    """Pods and services as a view."""

    def __init__(self, pods: list[Object], services: list[Object]) -> None:
        self._objects = {kinds.POD: {key(o): o for o in pods}, kinds.SERVICE: {key(o): o for o in services}}
        self.looks = 0

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self.looks += 1
        return self._objects[kind].get(Key(namespace, name))

    def all(self, kind: Kind) -> list[Object]:
        return list(self._objects[kind].values())

    def all_unfinished(self, kind: Kind) -> list[Object]:
        return [one for one in self.all(kind) if phase(one) not in FINAL_PHASES]


def updated(index: NameIndex, view: Any) -> NameIndex:
    for _ in index.update(view):
        pass
    return index


def test_services_select_by_label() -> None:
    pods = [{"metadata": {"name": n, "namespace": "a", "labels": {"app": n}}} for n in ("x", "y")]
    service = {"metadata": {"name": "s", "namespace": "a"}, "spec": {"selector": {"app": "x"}}}
    elsewhere = {"metadata": {"name": "s", "namespace": "b"}, "spec": {"selector": {"app": "x"}}}
    without = {"metadata": {"name": "t", "namespace": "a"}, "spec": {}}
    index = updated(NameIndex(), Objects(pods, [service, elsewhere, without]))
    assert [list(index.services_of(pod)) for pod in pods] == [[Key("a", "s")], []]


def test_what_has_changed_is_looked_at_and_nothing_else() -> None:
    def pod(name: str, phase: str) -> Object:
        return {"metadata": {"name": name, "namespace": "a", "labels": {"app": "x"}}, "status": {"phase": phase}}

    def service(app: str) -> Object:
        return {"metadata": {"name": "s", "namespace": "a"}, "spec": {"selector": {"app": app}}}

    index = updated(NameIndex(), Objects([pod("p", "Running"), pod("q", "Succeeded")], []))
    assert list(index.pods) == [Key("a", "p")]
    view = Objects([pod("p", "Failed"), pod("r", "Pending")], [service("x")])
    for kind, name in ((kinds.POD, "p"), (kinds.POD, "q"), (kinds.POD, "r"), (kinds.SERVICE, "s")):
        index.note_change(kind, Key("a", name))
    assert list(updated(index, view).pods) == [Key("a", "r")]
    assert view.looks == 4
    assert list(index.services_of(index.pods[Key("a", "r")])) == [Key("a", "s")]
    index.note_change(kinds.SERVICE, Key("a", "s"))
    assert list(updated(index, Objects([], [service("y")])).services_of(pod("r", ""))) == []
    index.note_change(kinds.SERVICE, Key("a", "s"))
    assert list(updated(index, Objects([], [])).services_of({"metadata": {"labels": {"app": "y"}}})) == []


class CountedLabels(dict[str, str]):
    """Labels of a pod that count how often they are looked at."""

    looks = 0

    def items(self):  # type: ignore[no-untyped-def]
        CountedLabels.looks += 1
        return super().items()


def test_many_services_look_at_each_pod_a_bounded_number_of_times() -> None:
    """A job of 1,000 ranks has 1,000 services: to compare each with each is a million comparisons on the event loop."""
    count = 1_000
    pods = [
        {"metadata": {"name": f"p{n}", "namespace": "a", "labels": CountedLabels(job="j", index=str(n))}}
        for n in range(count)
    ]
    services = [
        {"metadata": {"name": f"s{n}", "namespace": "a"}, "spec": {"selector": {"job": "j", "index": str(n)}}}
        for n in range(count)
    ]
    index = updated(NameIndex(), Objects(pods, services))
    assert [list(index.services_of(pod)) for pod in pods] == [[key(service)] for service in services]
    assert CountedLabels.looks <= 3 * count


def test_the_machine_has_a_name_where_pods_may_reach_it() -> None:
    assert render_hosts_file("a", PodNames(machine="10.77.0.1")) == f"{HOSTS_HEADER}10.77.0.1\thost.rowlock.internal\n"
    assert "host.rowlock.internal" not in render_hosts_file("a", PodNames())
    assert PodNames().find_addresses("host.rowlock.internal", Key("a", "uid")) == []


def test_an_alias_hides_what_has_its_name() -> None:
    text = f"{HOSTS_HEADER}10.77.1.1\tp p.a p.a.svc\n10.77.1.2\tq\n"
    aliases: list[dict[str, Any]] = [{"ip": "1.2.3.4", "hostnames": ["p", "q", "db"]}, {"ip": "::1"}]
    assert add_host_aliases(text, aliases) == f"{HOSTS_HEADER}1.2.3.4\tp\tq\tdb\n::1\n10.77.1.1\tp.a p.a.svc\n"


def test_a_hostname_means_the_pod_that_stays() -> None:
    """A Job makes the next pod of an index while the one before it still goes; both have the hostname of the index."""
    names = PodNames()
    names.add_hostname(Key("a", "job-0"), "10.77.1.1", is_leaving=True)
    names.add_hostname(Key("a", "job-0"), "10.77.1.2", is_leaving=False)
    names.add_hostname(Key("a", "job-0"), "10.77.1.3", is_leaving=True)
    assert names.find_addresses("job-0", Key("a", "uid")) == ["10.77.1.2"]
