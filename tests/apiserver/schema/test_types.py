"""The table of types, and the one constant that says which Kubernetes release it is of."""

from __future__ import annotations

import re
from pathlib import Path

from rowlock import KUBERNETES
from rowlock.apiserver.schema import structs, types

REPO = Path(__file__).parents[3]
MINOR = KUBERNETES.rpartition(".")[0]


def test_the_table_is_of_the_release_that_is_served() -> None:
    assert types.release() == KUBERNETES, "run `make types`"


def test_documents_and_the_go_client_name_the_same_release() -> None:
    page = (REPO / "docs/design/apiserver.md").read_text()
    assert re.findall(r"kube-apiserver (1\.\d+)", page) == [MINOR]
    module = (REPO / "tests/clients/go/go.mod").read_text()
    assert set(re.findall(r"k8s\.io/(?:api|apimachinery|client-go) v0\.(\S+)", module)) == {
        KUBERNETES.partition(".")[2]
    }


def test_a_struct_says_what_is_written_and_of_which_type() -> None:
    fields = structs.fields(types.schema("io.k8s.api.core.v1.Container"))
    assert fields["resources"] == structs.Field(always=True, pointer=False, go="")
    assert fields["restartPolicy"] == structs.Field(always=False, pointer=True, go="v1.ContainerRestartPolicy")
    assert fields["imagePullPolicy"] == structs.Field(always=False, pointer=False, go="v1.PullPolicy")


def test_the_fields_of_inline_parts_are_fields() -> None:
    node = types.schema("io.k8s.api.core.v1.Volume")
    assert structs.fields(node).keys() == node["properties"].keys()
    assert structs.numbers(node) == {1: "name", 2: "+io.k8s.api.core.v1.VolumeSource"}


def test_every_field_of_a_built_in_type_has_a_number() -> None:
    for name in types.type_names():
        node = types.schema(name)
        if structs.FIELDS in node and "properties" in node:
            meta = {"apiVersion", "kind"}  # TypeMeta is inline and has no number: its fields travel in the envelope
            assert structs.fields(node).keys() | meta == node["properties"].keys() | meta, name
