"""Users, applications, access rules and tokens; assets, templates and policies."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from rowlock.answers import Json, Time

# ---------------------------------------------------------------- who comes in

Token = TypedDict("Token", {"accessToken": str, "expiresIn": float, "tokenType": str})
Application = TypedDict("Application", {
    "id": str, "name": str, "clientId": str, "enabled": bool, "user": str, "createdAt": Time, "createdBy": str,
})  # fmt: skip


class NewApplication(Application):
    """The only answer that has the application's secret."""

    clientSecret: str


Applications = TypedDict("Applications", {"applications": list[Application]})
User = TypedDict("User", {
    "id": str, "userId": str, "username": str, "email": str, "entityType": str, "createdAt": Time, "updatedAt": Time,
    "createdBy": str, "tenantId": int, "lastLogin": Time | None, "isLocal": bool, "groups": list[str],
    "tempPassword": NotRequired[str],
})  # fmt: skip
Users = list[User]
Me = TypedDict("Me", {"username": str, "groups": list[str], "isLocalAccount": bool})
Role = TypedDict("Role", {
    "id": int, "name": str, "description": str, "enabled": bool, "effectiveEnabled": bool, "custom": bool, "createdAt": Time,
    "updatedAt": Time, "deletedAt": Time | None, "createdBy": str, "permissions": list[Json], "clusterRole": str,
})  # fmt: skip
Roles = list[Role]
AccessRule = TypedDict("AccessRule", {
    "id": int, "subjectId": str, "subjectType": str, "roleId": int, "roleName": str, "scopeId": str, "scopeName": str,
    "scopeType": str, "clusterId": str, "tenantId": int, "createdAt": Time, "updatedAt": Time, "deletedAt": Time | None,
    "createdBy": str, "status": Json, "binding": str,
})  # fmt: skip
AccessRules = TypedDict("AccessRules", {
    "accessRules": list[AccessRule], "totalRecords": int, "displayRecords": int, "next": NotRequired[int],
})  # fmt: skip
MyAccessRules = TypedDict("MyAccessRules", {"accessRules": AccessRules})

# ---------------------------------------------------------------- assets, templates, policies

AssetMeta = TypedDict("AssetMeta", {
    "id": str, "kind": str, "name": str, "description": str | None, "scope": str, "clusterId": str | None,
    "departmentId": str | None, "projectId": int | None, "projectName": str | None, "tenantId": int, "private": bool,
    "autoDelete": bool, "createdBy": str, "createdAt": Time, "updatedBy": str, "updatedAt": Time,
    "workloadSupportedTypes": NotRequired[Json],
})  # fmt: skip
Asset = TypedDict("Asset", {"meta": AssetMeta, "spec": Json})
Assets = TypedDict("Assets", {"entries": list[Asset]})
TemplateMeta = TypedDict("TemplateMeta", {
    "id": str, "name": str, "description": str | None, "workloadType": str, "scopeType": str, "scopeId": str, "clusterId": str,
    "departmentId": str | None, "projectId": int | None, "createdBy": str, "createdAt": Time, "updatedBy": str, "updatedAt": Time,
})  # fmt: skip
Runnable = TypedDict("Runnable", {"isRunnable": bool, "issue": str | None})
Template = TypedDict("Template", {
    "meta": TemplateMeta, "spec": Json, "assets": Json | None, "masterSpecSameAsWorker": bool | None, "master": Json | None,
    "runnable": Runnable, "combinedSpec": Json, "combinedMasterSpec": Json | None,
})  # fmt: skip
Pagination = TypedDict("Pagination", {"limit": int, "offset": int, "nextOffset": int | None})
Templates = TypedDict("Templates", {"entries": list[Template], "pagination": Pagination})
Availability = TypedDict("Availability", {"available": bool})
PolicyMeta = TypedDict("PolicyMeta", {
    "id": str, "tenantId": int, "name": str, "scope": str, "clusterId": str, "projectId": int | None,
    "projectName": str | None, "departmentId": str | None, "createdBy": str, "createdAt": Time, "updatedBy": str, "updatedAt": Time,
})  # fmt: skip
Policy = TypedDict("Policy", {"meta": PolicyMeta, "policy": Json, "effective": Json, "effectiveUpdatedAt": Time})
PolicyHeader = TypedDict("PolicyHeader", {"type": str, "meta": PolicyMeta, "status": Json})
Policies = TypedDict("Policies", {"policies": list[PolicyHeader]})
