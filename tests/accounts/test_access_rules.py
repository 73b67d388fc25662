"""Users, roles and access rules: what the REST API says is what Kubernetes' bindings say, and nobody gives what he has not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.test_tenants import MINE, OWNER, PASSWORD, THEIRS, TYPIST, Tenancy, play

from rowlock import kinds
from rowlock.objects import name

RULES, USERS, ME = "/api/v1/authorization/access-rules", "/api/v1/users", "/api/v1/authorization/me/access-rules"
MINE_SPACE = "runai-mine-plain"
ADMIN, EDITOR, VIEWER = "admin" * 8, "editor" * 8, "viewer" * 8


def rule(tenancy: Tenancy, who: str, role: str, whose: str = MINE, **more: Any) -> dict[str, Any]:
    scope = {"scopeType": "project", "scopeId": tenancy.ids[f"{whose} project"]}
    return {"subjectType": "user", "subjectId": who, "roleName": role, **scope, **more}


def test_a_rule_is_a_binding_and_a_binding_is_a_rule() -> None:
    async def check(tenancy: Tenancy) -> None:
        made = await tenancy.ask(OWNER, "POST", RULES, rule(tenancy, "eve", "viewer"))
        assert made.status_code == 201, made.text
        (binding,) = [one for one in tenancy.store.view.all(kinds.ROLE_BINDING) if name(one) == made.json()["binding"]]
        assert binding["roleRef"]["name"] == "rowlock:viewer" and binding["subjects"][0]["name"] == "eve"
        assert (await tenancy.ask(OWNER, "POST", RULES, rule(tenancy, "eve", "viewer"))).status_code == 409
        listed = (await tenancy.ask(OWNER, "GET", RULES)).json()
        rules = {(one["subjectId"], one["roleName"], one["scopeName"]) for one in listed["accessRules"]}
        assert rules == {(who, who, "mine-plain") for who in ("admin", "editor", "viewer")} | {
            ("eve", "viewer", "mine-plain"),
            ("oidc:team", "editor", "mine-plain"),
            ("somebody-plain", "viewer", "mine-plain"),
            ("somebody-hush", "viewer", "theirs-hush"),
        }
        assert listed["totalRecords"] == 7
        filtered = await tenancy.ask(OWNER, "GET", f"{RULES}?filterBy=subjectId==eve")
        assert [one["id"] for one in filtered.json()["accessRules"]] == [made.json()["id"]]
        assert (await tenancy.ask(OWNER, "DELETE", f"{RULES}/{made.json()['id']}")).status_code == 202
        assert all(name(one) != made.json()["binding"] for one in tenancy.store.view.all(kinds.ROLE_BINDING))

    play(check)


def test_one_subject_of_a_binding_goes_alone() -> None:
    async def check(tenancy: Tenancy) -> None:
        group = kinds.ROLE.group
        subjects = [{"kind": "User", "apiGroup": group, "name": who} for who in ("eve", "dan")]
        role = {"apiGroup": group, "kind": "ClusterRole", "name": "edit"}
        made = {"metadata": {"name": "two", "namespace": MINE_SPACE}, "roleRef": role, "subjects": subjects}
        await tenancy.store.create(kinds.ROLE_BINDING, made)
        listed = (await tenancy.ask(ADMIN, "GET", f"{RULES}?subjectIds=eve")).json()["accessRules"]
        assert [(one["subjectId"], one["roleName"]) for one in listed] == [("eve", "edit")]
        assert (await tenancy.ask(ADMIN, "DELETE", f"{RULES}/{listed[0]['id']}")).status_code == 202
        left = tenancy.store.view.get(kinds.ROLE_BINDING, MINE_SPACE, "two")
        assert left is not None and left["subjects"] == subjects[1:]

    play(check)


@pytest.mark.parametrize(
    ("token", "role", "code"),
    [
        (ADMIN, "viewer", 201), (ADMIN, "editor", 201), (ADMIN, "admin", 201), (ADMIN, "system-admin", 403),
        (EDITOR, "viewer", 403), (VIEWER, "viewer", 403), ("nobody" * 8, "viewer", 400),
    ],
)  # fmt: skip
def test_nobody_gives_what_he_has_not(token: str, role: str, code: int) -> None:
    """The escalation check is the Kubernetes API's: the REST API is no way around it."""

    async def check(tenancy: Tenancy) -> None:
        before = len(list(tenancy.store.view.all(kinds.ROLE_BINDING)))
        answer = await tenancy.ask(token, "POST", RULES, rule(tenancy, "eve", role))
        assert answer.status_code == code, answer.text
        assert len(list(tenancy.store.view.all(kinds.ROLE_BINDING))) == before + (code == 201)
        everywhere = {**rule(tenancy, "eve", role), "scopeType": "cluster"}
        assert (await tenancy.ask(token, "POST", RULES, everywhere)).status_code == 403

    play(check)


def test_rules_of_another_project_are_not_there() -> None:
    async def check(tenancy: Tenancy) -> None:
        theirs = await tenancy.ask(OWNER, "POST", RULES, rule(tenancy, "eve", "viewer", THEIRS))
        everywhere = await tenancy.ask(OWNER, "POST", RULES, {**rule(tenancy, "dan", "viewer"), "scopeType": "cluster"})
        own = (await tenancy.ask(OWNER, "GET", f"{RULES}?search=editor")).json()["accessRules"][0]["id"]
        for person in (ADMIN, EDITOR, "nobody" * 8):
            listed = (await tenancy.ask(person, "GET", RULES)).text
            assert "eve" not in listed and "dan" not in listed, listed
            for hidden in (theirs.json()["id"], everywhere.json()["id"]):
                for method in ("GET", "DELETE"):
                    secret = await tenancy.ask(person, method, f"{RULES}/{hidden}")
                    absent = await tenancy.ask(person, method, f"{RULES}/1")
                    assert secret.status_code == 404 and secret.text.replace(str(hidden), "1") == absent.text
        assert (await tenancy.ask(VIEWER, "DELETE", f"{RULES}/{own}")).status_code in (403, 404)
        assert (await tenancy.ask(OWNER, "GET", f"{RULES}/{own}")).status_code == 200

    play(check)


def test_a_person_from_account_to_deletion() -> None:
    """Rights come and go with rules, tokens with the account: both count for the next request."""

    async def check(tenancy: Tenancy) -> None:
        workloads = f"/api/v1/workloads/{tenancy.ids['mine workload']}"
        assert (await tenancy.ask(TYPIST, "GET", workloads)).status_code == 200
        (mine,) = (await tenancy.ask(TYPIST, "GET", ME)).json()["accessRules"]["accessRules"]
        assert (mine["roleName"], mine["scopeName"]) == ("editor", "mine-plain")
        assert (await tenancy.ask(TYPIST, "GET", "/api/v1/me")).json()["isLocalAccount"] is True
        assert (await tenancy.ask(OWNER, "DELETE", f"{RULES}/{mine['id']}")).status_code == 202
        assert (await tenancy.ask(TYPIST, "GET", workloads)).status_code == 404
        await tenancy.ask(OWNER, "POST", RULES, rule(tenancy, "typist", "viewer"))
        assert (await tenancy.ask(TYPIST, "GET", workloads)).status_code == 200
        body = {"currentPassword": "wrong wrong", "newPassword": "a new horse"}
        assert (await tenancy.ask(TYPIST, "POST", "/api/v1/me/password", body)).status_code == 403
        body["currentPassword"] = PASSWORD
        assert (await tenancy.ask(TYPIST, "POST", "/api/v1/me/password", body)).status_code == 202
        assert (await tenancy.ask(TYPIST, "GET", workloads)).status_code == 401
        form = {"grantType": "password", "username": "typist", "password": "a new horse"}
        tenancy.typed = (await tenancy.ask("", "POST", "/api/v1/token", form)).json()["accessToken"]
        assert (await tenancy.ask(TYPIST, "GET", workloads)).status_code == 200
        pods = f"/api/v1/namespaces/{MINE_SPACE}/pods"
        assert (await tenancy.ask(TYPIST, "GET", pods)).status_code == 200  # the same token at the Kubernetes API
        assert (await tenancy.ask(OWNER, "DELETE", f"{USERS}/typist")).status_code == 202
        for path in (workloads, pods):
            assert (await tenancy.ask(TYPIST, "GET", path)).status_code == 401
        assert "typist" not in (await tenancy.ask(OWNER, "GET", RULES)).text

    play(check)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"roleName": "editr"}, 'Did you mean "editor"?'), ({"subjectType": "robot"}, "subjectType must be one of"),
        ({"scopeType": "department"}, "for each project"), ({"scopeType": "planet"}, "scopeType must be project"),
        ({"subjectId": "system:masters", "subjectType": "group"}, "Kubernetes' own"), ({"subjectId": ""}, "subjectId must be"),
        ({"subjectType": "service-account", "subjectId": "a"}, "NAMESPACE:NAME"), ({"rule": 1}, "there is no field 'rule'"),
    ],
)  # fmt: skip
def test_a_rule_that_says_nothing_is_one_sentence(change: dict[str, Any], said: str) -> None:
    async def check(tenancy: Tenancy) -> None:
        answer = await tenancy.ask(OWNER, "POST", RULES, rule(tenancy, "eve", "viewer", **change))
        assert (answer.status_code, said in answer.json()["message"]) == (400, True), answer.text

    play(check)
