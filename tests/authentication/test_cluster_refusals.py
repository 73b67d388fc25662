"""What a cluster refuses to the server is told to its owner as the server's trouble, with what to do."""

from __future__ import annotations

import pytest

from rowlock.authentication.cluster_refusals import refusal_for_owner
from rowlock.errors import Cause, Forbidden, NotFound, Unauthorized

RIGHT = 'pods is forbidden: User "system:serviceaccount:default:guard" cannot create resource "pods" in API group ""'


def test_credentials_that_are_refused_are_the_servers() -> None:
    told = refusal_for_owner(Unauthorized("write new ones"))
    assert told.code == 503 and told.message.endswith("your own token does: write new ones")


def test_a_right_that_is_missing_names_the_doctor() -> None:
    told = refusal_for_owner(Forbidden(RIGHT, details={"kind": "pods"}, causes=[Cause("a", "b")]))
    assert told.code == 403 and told.message.startswith(f"{RIGHT}; `rowlock doctor --kubeconfig FILE` lists")
    assert (told.details, told.causes) == ({"kind": "pods"}, (Cause("a", "b"),))


@pytest.mark.parametrize(
    "error",
    [Forbidden('pods "a" is forbidden: exceeded quota: team, requested: pods=1'), NotFound("there is no such job")],
)
def test_any_other_error_is_told_as_it_is(error: Forbidden | NotFound) -> None:
    assert refusal_for_owner(error) is error
