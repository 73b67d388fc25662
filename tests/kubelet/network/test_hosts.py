"""Who is called what in the pod network."""

from rowlock.kubelet.network.hosts import HOSTS_HEADER, PodAddresses, render_hosts_file, selected_pods
from rowlock.objects import Key


def test_names_as_kubernetes_resolves_them() -> None:
    pods = {Key("a", "j-0"): "10.77.1.1", Key("b", "k-0"): "10.77.1.2"}
    text = render_hosts_file("a", pods, {Key("a", "svc"): ["10.77.1.1", "10.77.1.9"], Key("a", "j-0"): ["1.1.1.1"]})
    assert text == HOSTS_HEADER + (
        "10.77.1.1\tj-0 j-0.a j-0.a.svc j-0.a.svc.cluster.local\n"
        "10.77.1.2\tk-0.b k-0.b.svc k-0.b.svc.cluster.local\n"
        "::ffff:10.77.1.1\tj-0.a.pod.cluster.local\n"
        "::ffff:10.77.1.2\tk-0.b.pod.cluster.local\n"
        "10.77.1.1\tsvc svc.a svc.a.svc svc.a.svc.cluster.local\n"
        "10.77.1.9\tsvc svc.a svc.a.svc svc.a.svc.cluster.local\n"
    )


def test_addresses_are_kept_and_not_reused_at_once() -> None:
    addresses = PodAddresses()
    assert [addresses.address_of(u) for u in ("a", "b", "a")] == ["10.77.1.1", "10.77.1.2", "10.77.1.1"]
    addresses.release("a")
    addresses.restore("z", "10.77.1.3")
    assert addresses.address_of("c") == "10.77.1.4"


def test_services_select_by_label() -> None:
    pods = [{"metadata": {"name": n, "namespace": "a", "labels": {"app": n}}} for n in ("x", "y")]
    service = {"metadata": {"name": "s", "namespace": "a"}, "spec": {"selector": {"app": "x"}}}
    assert selected_pods(service, pods) == pods[:1]
    assert selected_pods({"metadata": {"name": "s", "namespace": "a"}, "spec": {}}, pods) == []
