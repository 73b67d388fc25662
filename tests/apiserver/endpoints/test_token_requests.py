"""`POST …/serviceaccounts/NAME/token`: what a token opens, and for how long."""

from __future__ import annotations

import httpx

from rowlock.authentication.service_account_tokens import ISSUER


def test_a_token_opens_what_its_account_may_do(client: httpx.Client) -> None:
    space = "/api/v1/namespaces/default"
    assert client.post(f"{space}/serviceaccounts", json={"metadata": {"name": "robot"}}).status_code == 201
    token = client.post(f"{space}/serviceaccounts/robot/token", json={}).json()["status"]["token"]
    robot = {"authorization": f"Bearer {token}"}
    review = client.post("/apis/authentication.k8s.io/v1/tokenreviews", json={"spec": {"token": token}}).json()
    assert review["status"]["authenticated"] and review["status"]["audiences"] == [ISSUER]
    who = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}, headers=robot).json()
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
    assert client.get(f"{space}/pods", headers=robot).status_code == 403
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {"metadata": {"name": "robot"}, "roleRef": role, "subjects": [subject]}
    made = client.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", json=binding)
    assert made.status_code == 201, made.text
    assert client.get(f"{space}/pods", headers=robot).status_code == 200
    assert client.delete(f"{space}/serviceaccounts/robot").status_code == 200
    assert client.get(f"{space}/pods", headers=robot).status_code == 401
