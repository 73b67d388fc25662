// The equivalent `runai` CLI V2 commands for the dialogs of the Assets page; "" where there is none.

import type { Asset } from "./assets";
import { flagsOf, withProgram } from "./flags";
import { shellWord } from "./format";
import type { Spec } from "./forms";
import { requestSpec } from "./training";

const NOUNS: Record<string, string> = { environment: "environment", compute: "compute", datasource: "datasource", credentials: "credential", templates: "template" };

/** `key=value` parts of one flag, from the fields of a spec; a switch is a single word. */
interface Parts {
  flag: string;
  fields: Record<string, string>;
  on?: Record<string, string>;
  off?: Record<string, string>;
}

const READ_ONLY = { readOnly: "readonly" };
const SOURCES: Record<string, Parts> = {
  "datasource/host-path": { flag: "--host-path", fields: { path: "path", mountPath: "mount" }, off: { readOnly: "readwrite" } },
  "datasource/nfs": { flag: "--nfs", fields: { server: "server", path: "path", mountPath: "mountpath" }, off: { readOnly: "readwrite" } },
  "datasource/git": { flag: "--git-sync", fields: { repository: "repository", path: "path", branch: "branch", revision: "rev", "secretRef.name": "secret" } },
  "datasource/s3": { flag: "--s3", fields: { bucket: "bucket", path: "path", url: "url", accessKeyAssetId: "accesskey" } },
  "datasource/config-map": { flag: "--configmap-map-volume", fields: { configMap: "name", mountPath: "path", subPath: "subpath" } },
  "datasource/secrets": { flag: "--secret-volume", fields: { credentialAssetId: "name", mountPath: "path" } },
};
const OLD_CLAIM: Parts = { flag: "--existing-pvc", fields: { claimName: "claimname", path: "path" }, on: { existingPvc: "", ...READ_ONLY } };
const NEW_CLAIM: Parts = {
  flag: "--new-pvc", fields: { "claimInfo.size": "size", path: "path", claimName: "claimname", "claimInfo.storageClass": "storageclass" },
  on: { "claimInfo.accessModes.readWriteMany": "accessmode-rwm", ephemeral: "ephemeral", ...READ_ONLY },
};
/** The public fields of a credential and their flags. */
const CREDENTIALS: Record<string, Record<string, string>> = {
  "credentials/access-key": { accessKeyId: "--access-key-id" },
  "credentials/password": { user: "--user" },
  "credentials/docker-registry": { user: "--user", url: "--url" },
  "credentials/ngc-api-key": {},
};

/** Create the asset of a form. `scope` is the key of a scope: `project:ID`, `cluster:UUID`. */
export function createCommand(path: string, name: string, description: string, scope: string, projectName: string, spec: Spec): string {
  const [group = ""] = path.split("/");
  const noun = NOUNS[group];
  const words = specWords(path, spec);
  if (!noun || !words) return "";
  const where = scope.startsWith("project:") ? ["-p", projectName] : ["--scope", scope.split(":")[0] ?? ""];
  const about = description ? ["--description", description] : [];
  const line = ["runai", noun, "create", name || "NAME", ...where, ...about, ...words];
  return withProgram(line, group === "environment" ? (spec as { command?: string; args?: string }) : {});
}

function specWords(path: string, spec: Spec): string[] | undefined {
  if (path === "environment") return flagsOf(requestSpec(spec));
  if (path === "compute") return flagsOf({ compute: spec });
  if (path.startsWith("credentials/")) return credentialWords(path, spec);
  const parts = path === "datasource/pvc" ? (spec["existingPvc"] ? OLD_CLAIM : NEW_CLAIM) : SOURCES[path];
  return parts && partWords(parts, spec);
}

function credentialWords(path: string, spec: Spec): string[] | undefined {
  if (spec["existingSecretName"]) return undefined;
  const type = path.split("/")[1] ?? "";
  const secret = ["--type", type, "--secret-file", "FILE"];
  const pairs = (spec["keyValuePairs"] ?? []) as { key: string }[];
  if (type === "generic-secret") return pairs.length < 2 ? ["--key", pairs[0]?.key || "KEY", ...secret] : undefined;
  const fields = CREDENTIALS[path];
  return fields && [...Object.entries(fields).flatMap(([field, flag]) => [flag, String(spec[field] ?? "") || flag.replace(/^--/, "").toUpperCase()]), ...secret];
}

function partWords({ flag, fields, on = {}, off = {} }: Parts, spec: Spec): string[] | undefined {
  const parts: string[] = [];
  for (const [path, value] of flat("", spec)) {
    const key = fields[path];
    const word = value === true ? on[path] : value === false ? off[path] : undefined;
    if (key && !String(value).includes(",")) parts.push(`${key}=${String(value)}`);
    else if (word) parts.push(word);
    else if (!(word === "" || (typeof value === "boolean" && (value ? off : on)[path] !== undefined))) return undefined; // the flag implies it
  }
  return [flag, parts.join(",")];
}

function flat(prefix: string, value: unknown): [string, unknown][] {
  if (typeof value !== "object" || value === null) return [[prefix, value]];
  return Object.entries(value).flatMap(([name, inner]) => flat(prefix ? `${prefix}.${name}` : name, inner));
}

/** The public fields of a user's own credential, by the keys of an item. */
const OWN: Record<string, Record<string, string>> = { accessKey: { accessKeyId: "access-key-id" }, password: { user: "user" }, dockerRegistry: { user: "user", url: "url" }, ngcApiKey: {} };

/** Create a user's own credential. */
export function ownCommand(type: string, name: string, description: string, spec: Spec): string {
  const pairs = (spec["keyValuePairs"] ?? []) as { key: string }[];
  if (type === "genericSecret" && pairs.length > 1) return "";
  const items = type === "genericSecret" ? [`key=${pairs[0]?.key || "KEY"}`] : Object.entries(OWN[type] ?? {}).map(([field, key]) => `${key}=${String(spec[field] ?? "") || key.toUpperCase()}`);
  const about = description ? ["--description", description] : [];
  const words = ["runai", "my-credential", "create", name || "NAME", "--type", type, ...(items.length ? ["--item", items.join(",")] : []), "--secret-file", "FILE", ...about];
  return type in OWN || type === "genericSecret" ? words.map(shellWord).join(" ") : "";
}

/** Delete an asset; `group` is its tab. */
export function deleteCommand(group: string, { meta }: Asset, projectName: string): string {
  if (group === "mine") return `runai my-credential delete ${shellWord(meta.name)}`;
  const noun = NOUNS[group];
  return noun ? ["runai", noun, "delete", meta.name, ...(projectName ? ["-p", projectName] : [])].map(shellWord).join(" ") : "";
}
