// The kinds of assets and their forms, one row for each. The server's OpenAPI document says which kinds of data sources and credentials
// exist and which fields they have; a row here adds titles, and a kind without a row is shown without them.

import type { FormField } from "./forms";

export interface AssetForm {
  /** The last part of the path below `asset/`. */
  path: string;
  /** The value of `meta.kind`. */
  kind: string;
  title: string;
  fields: FormField[];
  /** False: the server refuses this kind and says why. */
  isServed: boolean;
}

export interface Asset {
  meta: {
    id: string; kind: string; workloadType?: string; name: string; description: string | null; scope?: string; scopeType?: string; scopeId?: string;
    projectId?: number | null; projectName?: string | null; createdBy: string; createdAt: string;
  };
  spec?: Record<string, unknown>;
  master?: { spec?: Record<string, unknown> } | null;
  /** Only for a template: the data sources that it names. */
  assets?: { datasources?: { id: string; kind?: string }[] } | null;
  /** Only for a template: whether it can be submitted as it is, and why not. */
  runnable?: { isRunnable: boolean; issue: string | null };
}

const OPEN = "it has no image"; // the server's message for a template that leaves the image open

/** Why the server would now refuse a template that it once accepted; "" for a usable one. */
export function refusalOf({ runnable }: Asset): string {
  const issue = runnable?.issue ?? "";
  return issue && issue !== OPEN ? `It cannot be used as it is: ${issue}` : "";
}

const text = (path: string, title: string, placeholder = ""): FormField => ({ path, title, type: "text", placeholder });
const need = (path: string, title: string, placeholder = ""): FormField => ({ ...text(path, title, placeholder), isRequired: true });
const flag = (path: string, title: string, first = false): FormField => ({ path, title, type: "switch", first });
const number = (path: string, title: string, more: Partial<FormField> = {}): FormField => ({ path, title, type: "number", min: 0, ...more });

export const PROGRAM_FIELDS: FormField[] = [
  need("image", "Image URL"),
  text("command", "Command", "the image's own"),
  text("args", "Arguments"),
  text("workingDir", "Working directory", "the image's own"),
  { path: "environmentVariables", title: "Environment variables", type: "pairs" },
];
/** The fields for programs of this machine: no image, and no entrypoint that arguments could follow. */
export const HOST_FIELDS: FormField[] = [need("command", "Command", "python train.py"), text("workingDir", "Working directory", "/home/you/project"), ...PROGRAM_FIELDS.slice(4)];
/** The fields of a template, which may leave the image open. */
export const OPEN_FIELDS: FormField[] = PROGRAM_FIELDS.map((field) => ({ ...field, isRequired: false }));
const PULL_POLICIES = [["", "the node's default"], ["Always", "Always"], ["IfNotPresent", "IfNotPresent"], ["Never", "Never"]] as const;
export const ENVIRONMENT: AssetForm = {
  path: "environment", kind: "environment", title: "environment", isServed: true,
  fields: [
    ...PROGRAM_FIELDS,
    { path: "imagePullPolicy", title: "When to pull the image", type: "choice", options: PULL_POLICIES },
    number("runAsUid", "User id", { placeholder: "the image's own" }),
    number("runAsGid", "Group id", { placeholder: "the image's own" }),
    { path: "capabilities", title: "Linux capabilities", type: "words", placeholder: "NET_ADMIN, SYS_PTRACE" },
  ],
};
export const COMPUTE: AssetForm = {
  path: "compute", kind: "compute", title: "compute resource", isServed: true,
  fields: [
    number("gpuDevicesRequest", "GPU devices per pod", { first: 1, isRequired: true }),
    { path: "gpuRequestType", title: "GPU fractioning", type: "choice", options: [["", "whole devices"], ["portion", "a part of each device"], ["memory", "memory of each device"]] },
    number("gpuPortionRequest", "Part of each device, from 0.01 to 1", { only: ["gpuRequestType", "portion"], first: 0.5, min: 0.01, max: 1, step: 0.01, isRequired: true }),
    { ...need("gpuMemoryRequest", "Memory of each device", "4G"), only: ["gpuRequestType", "memory"], first: "4G" },
    number("cpuCoreRequest", "CPU cores per pod", { first: 0.1, step: "any", isRequired: true }),
    { ...need("cpuMemoryRequest", "CPU memory per pod"), first: "100M" },
    number("cpuCoreLimit", "At most so many CPU cores", { step: "any", placeholder: "no limit" }),
    text("cpuMemoryLimit", "At most so much CPU memory", "no limit"),
    { path: "extendedResources", title: "Other resources of each pod", type: "pairs", nameField: "resource", valueField: "quantity", placeholder: "example.com/nic=1, one a line" },
    flag("largeShmRequest", "A large /dev/shm"),
  ],
};

const row = (path: string, title: string, ...fields: FormField[]): AssetForm => ({ path, kind: "", title, fields, isServed: false });
const secret = (path: string, title: string): FormField => ({ path, title, type: "secret" });
const EXISTING = text("existingSecretName", "Or a Secret that is there", "its name in the project's namespace");
const NO_CREDENTIAL = "none: it is public";
const ANY_CREDENTIAL = ["accessKey", "password", "dockerRegistry", "genericSecret"];
const credential = (path: string, title: string, ...credentials: string[]): FormField => ({ path, title, type: "choice", placeholder: NO_CREDENTIAL, credentials });
const MOUNT = "Path in the pods";
const ROWS: AssetForm[] = [
  row("datasource/pvc", "PVC", need("path", MOUNT, "/data"), flag("existingPvc", "The claim is there already"), text("claimName", "Name of the claim", "like the data source"),
    { ...need("claimInfo.size", "Size", "10Gi"), only: ["existingPvc", ""] }, { ...text("claimInfo.storageClass", "Storage class", "the cluster's default"), only: ["existingPvc", ""] },
    { ...flag("claimInfo.accessModes.readWriteMany", "Pods of several nodes may write"), only: ["existingPvc", ""] }, { ...flag("ephemeral", "It goes with the workload"), only: ["existingPvc", ""] },
    flag("readOnly", "Read only")),
  row("datasource/host-path", "Host path", need("path", "Path on the nodes", "/srv/data"), need("mountPath", MOUNT, "/data"), flag("readOnly", "Read only", true)),
  row("datasource/nfs", "NFS", need("server", "NFS server", "nfs.example.org"), need("path", "Path on the server", "/exports/data"), need("mountPath", MOUNT, "/data"), flag("readOnly", "Read only", true)),
  row("datasource/git", "Git", need("repository", "Repository", "https://github.com/ORG/REPOSITORY.git"), text("branch", "Branch", "the repository's own"), text("revision", "Commit or tag"), need("path", MOUNT, "/code"),
    credential("credentialId", "Credential", "password"), text("secretRef.name", "Or a Secret with username and password", NO_CREDENTIAL)),
  row("datasource/s3", "S3 bucket", need("bucket", "Bucket"), need("path", MOUNT, "/data"), text("url", "Address of the service", "Amazon's own"), credential("accessKeyAssetId", "Credential with the access key", "accessKey")),
  row("datasource/config-map", "ConfigMap", need("configMap", "Name of the ConfigMap"), need("mountPath", MOUNT, "/etc/config"), text("subPath", "One key alone")),
  row("datasource/secrets", "Secret", { ...credential("credentialAssetId", "Credential", ...ANY_CREDENTIAL), isRequired: true }, need("mountPath", MOUNT, "/etc/secret")),
  row("credentials/access-key", "Access key", text("accessKeyId", "Access key id"), secret("secretAccessKey", "Secret access key"), EXISTING),
  row("credentials/password", "Username and password", text("user", "User"), secret("password", "Password"), EXISTING),
  row("credentials/docker-registry", "Registry of images", text("url", "Registry", "ghcr.io"), text("user", "User"), secret("password", "Password or token"), EXISTING),
  row("credentials/generic-secret", "Any secret", { path: "keyValuePairs", title: "Keys and values", type: "pairs", nameField: "key", placeholder: "KEY=VALUE, one a line" }, EXISTING),
  row("credentials/ngc-api-key", "NGC API key", secret("ngc_api_key", "Key"), EXISTING),
];
const UNSAID = ["passwordAssetId", "defaultMode", "mountPropagation"]; // synonyms, and fields that are hardly ever set

interface OpenApi {
  paths: Record<string, { post?: { requestBody?: { content: { "application/json": { schema: Schema } } } } }>;
  components: { schemas: Record<string, Schema> };
}
interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  enum?: string[];
  required?: string[];
  properties?: Record<string, Schema>;
}

/** A field that names a credential: a choice among those of the scope and the present value. */
export function withCredentials(field: FormField, known: Asset[], scope: string, chosen: string): FormField {
  const { credentials = [], isRequired, placeholder = "" } = field;
  const projectId = /^project:(.*)$/.exec(scope)?.[1]; // in a wider scope the name stands for each project's own credential
  const fitting = known.filter(({ meta }) => credentials.includes(meta.kind) && (projectId === undefined || String(meta.projectId) === projectId));
  const names = [...new Set(fitting.map(({ meta }) => meta.name))].sort();
  const isKnown = fitting.some(({ meta }) => chosen === meta.name || chosen === meta.id);
  const others = chosen && !names.includes(chosen) ? [[chosen, isKnown ? (fitting.find(({ meta }) => meta.id === chosen)?.meta.name ?? chosen) : `${chosen} (not here)`] as const] : [];
  const none = names.length ? (isRequired ? "choose one" : placeholder) : `${isRequired ? "" : `${placeholder}; `}Assets → Credentials makes one`;
  return { ...field, options: [["", none], ...names.map((name) => [name, name] as const), ...others] };
}

/** A user's own credential, as the REST API answers it. */
export interface OwnCredential { id: string; name: string; type: string; description: string | null; createdAt: string; spec: Record<string, unknown> }

export function assetOfOwn({ id, name, type, description, createdAt, spec }: OwnCredential): Asset {
  return { meta: { id, kind: type, name, description, scope: "yours alone", createdBy: "you", createdAt }, spec };
}

/** The forms of a user's own credentials: as a project's, but without the choice of an existing Secret. */
export function ownForms(document: OpenApi): AssetForm[] {
  return formsOf(document, "credentials").map((form) => ({ ...form, fields: form.fields.filter(({ path }) => path !== EXISTING.path) }));
}

/** The forms of a group, "datasource" or "credentials": supported ones first, then those that the server refuses. */
export function formsOf(document: OpenApi, group: string): AssetForm[] {
  const served: AssetForm[] = [];
  for (const [path, { post }] of Object.entries(document.paths)) {
    const name = new RegExp(`/asset/(${group}/[^/{]+)$`).exec(path)?.[1];
    const request = post?.requestBody?.content["application/json"].schema;
    if (!name || !request) continue;
    const spec = resolve(document, resolve(document, request).properties?.["spec"] ?? {});
    served.push(servedForm(document, name, (request.$ref ?? "").replace(/^.*\/(.*)Request$/, "$1"), spec));
  }
  const known = served.map((form) => form.path);
  return [...served, ...ROWS.filter((one) => one.path.startsWith(`${group}/`) && !known.includes(one.path))];
}

function servedForm(document: OpenApi, path: string, kind: string, { properties = {}, required = [] }: Schema): AssetForm {
  const worded = ROWS.find((one) => one.path === path);
  const first = (field: FormField): string => field.path.split(".")[0] ?? "";
  const fields = (worded?.fields ?? []).filter((field) => first(field) in properties);
  const said = [...UNSAID, ...fields.map(first)];
  const others = Object.entries(properties).filter(([name]) => !said.includes(name));
  const word = (path.split("/").pop() ?? path).replaceAll("-", " ");
  const named = [...fields, ...others.map(([name, schema]) => fieldOf(name, resolve(document, schema)))];
  return { path, kind: kind || word, isServed: true, title: worded?.title ?? `${word[0]?.toUpperCase()}${word.slice(1)}`, fields: named.map((field) => (required.includes(field.path) && field.type !== "switch" ? { ...field, isRequired: true } : field)) };
}

/** A field without a title in this file. */
function fieldOf(name: string, schema: Schema): FormField {
  const words = name.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  const base = { path: name, title: `${words[0]?.toUpperCase()}${words.slice(1)}`, placeholder: schema.description ?? "" };
  if (schema.enum) return { ...base, type: "choice", options: [["", "not said"], ...schema.enum.map((one) => [one, one] as const)] };
  if (schema.type === "boolean") return { ...base, type: "switch" };
  if (schema.type === "integer" || schema.type === "number") return { ...base, type: "number", step: schema.type === "number" ? "any" : 1 };
  if (schema.type === "array") return { ...base, type: "words" };
  return { ...base, type: /password|secretkey|privatekey|token$/i.test(name) ? "secret" : "text" };
}

function resolve(document: OpenApi, schema: Schema): Schema {
  return schema.$ref ? (document.components.schemas[schema.$ref.split("/").pop() ?? ""] ?? {}) : schema;
}
