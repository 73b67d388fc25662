// A new training or template: the choices, the server's answers about the current choice, and the submit.
// Nothing is created before `create` or `keepTemplate`.

import { ApiError, call, request, sentenceOf } from "./api";
import { refusalOf, type Asset } from "./assets";
import { rows } from "./live.svelte";
import { Newest } from "./newest";
import type { KeptDraft } from "./keptDraft";
import { remember, remembered } from "./prefs";
import { copyOf, ofType, submission, workloadType, type Compute, type Environment, type Source, type Training } from "./training";
import type { Project } from "./types";

export interface Outcome {
  verdict: string;
  message: string;
  changes: string[];
  record: { hint?: string };
}
export interface Issue {
  field: string;
  details: string;
}

const UNDECIDED = [0, 500, 503, 504]; // after these the training may exist: the answer was lost, or the server did not know

const BLANK: Partial<Training> = { sources: [], environment: undefined, compute: undefined, general: {}, priority: "", isMasterDifferent: false, masterEnvironment: undefined, masterCompute: undefined, isMasterMounting: true };

export class Draft {
  training = $state<Training>({
    projectId: "", projectName: "", clusterId: "", type: "Training", architecture: "Distributed", framework: "PyTorch", configuration: "Workers & master", name: "",
    environment: undefined, compute: undefined, workers: 2, priority: "", sources: [], general: {}, isMasterDifferent: false, masterEnvironment: undefined, masterCompute: undefined, isMasterMounting: true,
  });
  projects = $state.raw<Project[]>([]);
  cluster = $state("");
  priorities = $state.raw<string[]>([]);
  kept = $state.raw<{ environments: Environment[]; computes: Compute[]; sources: Source[] }>({ environments: [], computes: [], sources: [] });
  templates = $state.raw<Asset[]>([]);
  /** The template that filled the form. */
  templateId = $state("");
  copied = $state.raw<Partial<Training>>({});
  issues = $state.raw<Issue[]>([]);
  problem = $state("");
  outcomes = $state.raw<Outcome[]>([]);
  remarks = $state.raw<string[]>([]); // what its pods request and do not get on this machine
  /** Why it is unknown whether the job would start now; "" where it is known, or where the user may not ask. */
  unforeseen = $state("");
  manifest = $state("");
  yaml = $state("");
  isYaml = $state(remembered("manifest", "yaml") === "yaml");
  description = $state("");
  /** Variables whose values were not kept when the page was loaded again. */
  untold = $state.raw<string[]>([]);
  /** The template that is changed; undefined for a training, null for a new template. */
  readonly template: { id: string } | null | undefined;

  /** The assets of the project chosen last. */
  #loading: Promise<void> = Promise.resolve();
  #newest = new Newest();
  /** The last submit and its idempotency key: the same body sent again counts as the same submit. */
  #sent = { text: "", key: "" };
  #unanswered = $state(""); // a submit whose result is unknown

  constructor(template: { id: string } | null | undefined, type = "Distributed") {
    this.template = template;
    Object.assign(this.training, ofType(type));
  }

  get isTemplate(): boolean {
    return this.template !== undefined;
  }

  /** Templates that the project may use, for the chosen architecture. */
  get fitting(): Asset[] {
    const type = workloadType(this.training);
    return this.templates.filter(({ meta }) => meta.workloadType === type && (meta.scopeType !== "project" || String(meta.projectId) === this.training.projectId));
  }

  async open(): Promise<void> {
    this.projects = (await call<{ projects: Project[] }>("GET", "org-unit/projects?limit=500")).projects;
    this.cluster = (await call<{ name: string }[]>("GET", "clusters"))[0]?.name ?? "";
    this.priorities = (await call<{ priorities: { name: string }[] }>("GET", "workload-priorities")).priorities.map((one) => one.name);
    this.templates = (await call<{ entries: Asset[] }>("GET", "workload-templates?limit=500")).entries;
    await this.chooseProject(remembered("project", this.projects[0]?.id ?? ""));
  }

  async chooseProject(id: string): Promise<void> {
    const project = this.projects.find((one) => one.id === id) ?? this.projects[0];
    if (!project) return;
    const { training } = this;
    training.projectId = project.id;
    training.projectName = project.name;
    training.clusterId = project.clusterId;
    training.sources = [];
    if (!this.fitting.some((one) => one.meta.id === this.templateId)) this.templateId = "";
    remember("project", project.id);
    this.#loading = this.loadAssets();
    await this.#loading;
  }

  /** Run an action of the form; its error is shown in the form. */
  async attempt(act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      this.problem = sentenceOf(error);
    }
  }

  /** Fill the form with the request of another workload. */
  async copyWorkload(id: string): Promise<void> {
    const path = `workloads/distributed/${encodeURIComponent(id)}`;
    const original = await call<{ name: string; projectId: string; spec: Record<string, unknown>; masterSpec: Record<string, unknown> | null }>("GET", path);
    const type = original.spec["distributedFramework"] ? "Distributed" : (rows.get(id)?.type ?? "Distributed"); // a job of one pod is also called a training
    const copied = copyOf(original.name, original.spec, original.masterSpec);
    this.#fill({ compute: { name: `as-${original.name}`, spec: {} }, ...copied, ...ofType(type), name: freeName(original.name) });
    await this.chooseProject(original.projectId);
  }

  /** Fill the form from a template; "" for an empty form. */
  async useTemplate(id: string): Promise<void> {
    this.templateId = id;
    this.problem = "";
    const template = this.templates.find((one) => one.meta.id === id);
    if (!template) return this.#fill(BLANK);
    const { meta, spec, master } = template;
    this.#fill({ ...BLANK, ...copyOf(meta.name, spec ?? {}, master?.spec ?? null), ...ofType(meta.workloadType ?? "Distributed") });
    if (meta.scopeType === "project" && String(meta.projectId) !== this.training.projectId) await this.chooseProject(String(meta.projectId));
    await this.#loading; // the project may have been chosen just now
    if (this.templateId !== id) return;
    const wanted = template.assets?.datasources ?? [];
    this.training.sources = this.kept.sources.filter((source) => wanted.some(({ id: word }) => word === source.id || word === source.name));
    const lost = wanted.length - this.training.sources.length;
    const unmounted = lost ? `This template names ${lost === 1 ? "a data source" : `${lost} data sources`} that the project ${this.training.projectName} does not have: choose others, or go on without.` : "";
    const refusal = refusalOf(template).replace(/^It /, `The template ${meta.name} `);
    this.problem = [refusal, unmounted].filter(Boolean).join(" ");
  }

  /** Fill the form with what was typed before the page was reloaded; assets that no longer exist are left out. */
  async restore({ training, templateId, copied, description, untold }: KeptDraft): Promise<void> {
    const projectId = training.projectId || this.training.projectId;
    this.#fill(training);
    this.copied = copied;
    this.description = description;
    this.untold = untold ?? []; // missing in a draft of an older version
    this.templateId = templateId;
    await this.chooseProject(projectId);
    for (const part of ["environment", "masterEnvironment"] as const) {
      const known = this.kept.environments.find((one) => one.name === this.training[part]?.name);
      if (known) this.training[part] = known; // an asset of the project: the server has the current values
    }
    this.training.sources = this.kept.sources.filter(({ id }) => training.sources.some((one) => one.id === id));
  }

  #fill(values: Partial<Training>): void {
    this.copied = values;
    this.training = { ...this.training, ...values };
  }

  async loadAssets(): Promise<void> {
    const { projectId } = this.training;
    const isNewest = this.#newest.begin(projectId);
    const load = async <T>(kind: string): Promise<{ meta: Source; spec: T }[]> => (await call<{ entries: { meta: Source; spec: T }[] }>("GET", `asset/${kind}?complyToProject=${encodeURIComponent(projectId)}`)).entries;
    const [environments, computes, sources] = await Promise.all([load<Environment["spec"]>("environment"), load<Compute["spec"]>("compute"), load("datasource")]);
    if (!isNewest()) return;
    this.kept = {
      environments: environments.map(({ meta, spec }) => ({ name: meta.name, spec })),
      computes: computes.map(({ meta, spec }) => ({ name: meta.name, spec })),
      sources: sources.map(({ meta: { id, kind, name } }) => ({ id, kind, name })),
    };
  }

  /** Create an asset in the project. Returns the server's message if it is refused. */
  async keep(kind: "environment" | "compute", name: string, spec: Record<string, unknown>): Promise<string> {
    try {
      await call("POST", `asset/${kind}`, { meta: { name, scope: "project", projectId: this.training.projectId }, spec });
      await this.loadAssets();
    } catch (error) {
      return sentenceOf(error);
    }
    if (kind === "environment") this.training.environment = { name, spec };
    else this.training.compute = { name, spec };
    return "";
  }

  /** A dry run. Fields of later steps, and those that a template leaves open, are left out. */
  async check(step: number): Promise<boolean> {
    this.issues = [];
    this.problem = "";
    const { path, asked } = this.#question(step === 1);
    try {
      const answer = await call<{ objects: { kind: string }[]; remarks: string[] }>("POST", `${path}?dryRun=true`, asked);
      this.remarks = step > 1 ? answer.remarks : []; // there is no environment before step 2
      this.manifest = JSON.stringify(answer.objects.length === 1 ? answer.objects[0] : { apiVersion: "v1", kind: "List", items: answer.objects }, null, 2);
      this.yaml = this.isYaml && step > 1 && !this.isTemplate ? await this.#readYaml() : ""; // there is no image before step 2
      if (step === 2 && !this.isTemplate) await this.#foresee(answer.objects);
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.issues = error.issues;
      if (!error.issues.length) this.problem = error.message;
      return false;
    }
  }

  /** The request for a dry run; `isOpen`: what it runs is not chosen yet. */
  #question(isOpen: boolean): { path: string; asked: Record<string, unknown> } {
    const { path, body } = submission(this.training);
    const spec = body["spec"] as { image?: string };
    const stand = isOpen || (this.isTemplate && !spec.image) ? { spec: { ...spec, image: "image" } } : {};
    return { path, asked: { ...body, ...stand, ...(this.isTemplate ? { name: "template", useGivenNameAsPrefix: true } : {}) } };
  }

  /** Let the server check the name while it is typed. */
  async checkName(): Promise<void> {
    const { name } = this.training;
    if (!name || this.isTemplate) return;
    const { path, asked } = this.#question(true);
    let found: Issue[] = [];
    try {
      await call("POST", `${path}?dryRun=true`, asked);
    } catch (error) {
      found = error instanceof ApiError ? error.issues.filter((issue) => issue.field === "name") : []; // other errors are shown at CONTINUE
    }
    if (name === this.training.name) this.issues = [...this.issues.filter((issue) => issue.field !== "name"), ...found];
  }

  /** The manifest as YAML, written by the server. */
  async #readYaml(): Promise<string> {
    const { path, body } = submission(this.training);
    const headers = { "Content-Type": "application/json", Accept: "application/yaml" };
    return (await request(`${path}?dryRun=true`, { method: "POST", body: JSON.stringify(body), headers })).text();
  }

  async showManifest(inYaml: boolean): Promise<void> {
    this.isYaml = inYaml;
    remember("manifest", inYaml ? "yaml" : "json");
    try {
      if (inYaml && !this.yaml) this.yaml = await this.#readYaml();
    } catch (error) {
      this.problem = sentenceOf(error);
    }
  }

  /** Ask whether it would start now; the training can be created without an answer. */
  async #foresee(objects: { kind: string }[]): Promise<void> {
    this.outcomes = [];
    this.unforeseen = "";
    try {
      const jobs = objects.filter((object) => object.kind.endsWith("Job"));
      this.outcomes = (await call<{ outcomes: Outcome[] }>("POST", "scheduler/what-if", { objects: jobs, project: this.training.projectName })).outcomes;
    } catch (error) {
      if (error instanceof ApiError && error.status === 403) return; // only users who may see the whole cluster may ask
      this.unforeseen = sentenceOf(error);
    }
  }

  /** Whether the answer to this very submit was lost, so that an existing workload of that name may be its own. */
  get isUnanswered(): boolean {
    return this.#unanswered !== "" && this.#unanswered === JSON.stringify(submission(this.training));
  }

  /** Submit and return the workload's id. The same form sent again has the same key and creates nothing twice. Throws ApiError. */
  async create(): Promise<string> {
    const submit = submission(this.training);
    const text = JSON.stringify(submit);
    if (text !== this.#sent.text) this.#sent = { text, key: newKey() };
    try {
      const made = await call<{ workloadId: string }>("POST", submit.path, submit.body, { "Idempotency-Key": this.#sent.key });
      this.#unanswered = "";
      return made.workloadId;
    } catch (error) {
      if (!(error instanceof ApiError) || !UNDECIDED.includes(error.status)) throw error;
      this.#unanswered = text;
      throw new ApiError(error.status, `${error.message} Nobody knows whether it was made: send it again as it is, and there will be one.`);
    }
  }

  /** Save the form as a template of the project, or update the template that it came from. Throws ApiError. */
  async keepTemplate(): Promise<void> {
    const { body } = submission(this.training);
    const path = `workload-templates/${{ Distributed: "distributed", Training: "trainings", Workspace: "workspaces" }[workloadType(this.training)]}`;
    const content = { spec: body["spec"], ...(body["assets"] ? { assets: body["assets"] } : {}), ...(body["masterSpec"] ? { master: { spec: body["masterSpec"] } } : {}) };
    const meta = { name: this.training.name.trim(), description: this.description.trim() };
    if (this.template) await call("PUT", `${path}/${encodeURIComponent(this.template.id)}`, { meta, ...content });
    else await call("POST", path, { meta: { ...meta, scopeType: "project", scopeId: this.training.projectId }, ...content });
  }
}

/** A unique word. (`randomUUID` is missing on pages that were loaded over plain HTTP.) */
function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function freeName(name: string): string {
  const base = name.replace(/-\d+$/, "");
  const taken = new Set([...rows.values()].map((row) => row.name));
  for (let number = 2; ; number += 1) if (!taken.has(`${base}-${number}`)) return `${base}-${number}`;
}
