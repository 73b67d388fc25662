// All pages but Workloads, in a file of their own that is loaded after the first page, or when one of them is the first.

export { default as Access } from "../pages/Access.svelte";
export { default as Assets } from "../pages/Assets.svelte";
export { default as Cluster } from "../pages/Cluster.svelte";
export { default as Compare } from "../pages/Compare.svelte";
export { default as DeletedWorkloads } from "../pages/DeletedWorkloads.svelte";
export { default as Hours } from "../pages/Hours.svelte";
export { default as NewTraining } from "../pages/NewTraining.svelte";
export { default as Nodes } from "../pages/Nodes.svelte";
export { default as Overview } from "../pages/Overview.svelte";
export { default as Projects } from "../pages/Projects.svelte";
export { default as Queue } from "../pages/Queue.svelte";
export { default as Run } from "../pages/Run.svelte";
export { default as Runs } from "../pages/Runs.svelte";
export { default as Sweep } from "../pages/Sweep.svelte";
export { default as Sweeps } from "../pages/Sweeps.svelte";
