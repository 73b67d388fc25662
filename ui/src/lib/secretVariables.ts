// Variables that look like secrets: a kept draft has their names, never their values.

import type { Environment, Training, Variable } from "./training";

const SECRET = /TOKEN|KEY|SECRET|PASS|CREDENTIAL/i;

type Form = Pick<Training, "environment" | "masterEnvironment">;

interface Draft {
  training: Training;
  copied: Partial<Training>;
  untold: string[];
}

function variablesOf(environment: Environment | undefined): Variable[] {
  return environment?.spec.environmentVariables ?? [];
}

function blank(environment: Environment | undefined): Environment | undefined {
  if (!environment?.spec.environmentVariables) return environment;
  const environmentVariables = environment.spec.environmentVariables.map((one) => (one.value && SECRET.test(one.name) ? { ...one, value: "" } : one));
  return { ...environment, spec: { ...environment.spec, environmentVariables } };
}

function blankForm<T extends Partial<Form>>(form: T): T {
  const { environment, masterEnvironment } = form;
  return { ...form, ...(environment ? { environment: blank(environment) } : {}), ...(masterEnvironment ? { masterEnvironment: blank(masterEnvironment) } : {}) };
}

/** The draft without values that look like secrets; `untold` names those variables. */
export function withoutSecrets<T extends Draft>(draft: T): T {
  const named = [draft.training, draft.copied].flatMap((form) => [...variablesOf(form.environment), ...variablesOf(form.masterEnvironment)]);
  const told = named.filter((one) => one.value && SECRET.test(one.name)).map((one) => one.name);
  return { ...draft, training: blankForm(draft.training), copied: blankForm(draft.copied), untold: [...new Set([...draft.untold, ...told])] };
}

/** The variables of `untold` whose values the form still lacks. */
export function lackedSecrets({ environment, masterEnvironment, isMasterDifferent }: Training, untold: string[]): string[] {
  const asked = [...variablesOf(environment), ...(isMasterDifferent ? variablesOf(masterEnvironment) : [])];
  return [...new Set(asked.filter((one) => one.value === "" && untold.includes(one.name)).map((one) => one.name))];
}

export function sayLacked(names: string[]): string {
  if (!names.length) return "";
  return `Values that look like secrets are not kept when the page is loaded again: type ${names.length === 1 ? "the value" : "the values"} of ${names.join(", ")} again.`;
}
