// What the server answers. `make docs` writes this file from `src/rowlock/answers/`: change those types.

export type Phase = "Completed" | "Creating" | "Degraded" | "Deleted" | "Deleting" | "Failed" | "Initializing" | "Pending" | "Resuming" | "Running" | "Stopped" | "Stopping";

export type WorkloadKind = "Distributed" | "Training" | "Workspace";

export type Source = "CLI" | "Control-plane" | "Other";

export interface Reference {
  id: string;
  name: string;
}

export interface TypedReference {
  id: string;
  name: string;
  type?: string;
}

export interface Child {
  id: string;
  type: string;
}

export interface Condition {
  type: string | null;
  status: string | null;
  message: string | null;
  reason: string | null;
  lastTransitionTime: string | null;
}

export interface Gpus {
  request: number;
  limit: number;
}

export interface Cores {
  request: number | null;
  limit: number | null;
}

export interface Amount {
  request: string | null;
  limit: string | null;
}

export interface ExtendedResource {
  resource: string;
  quantity: string;
}

export interface RequestedResources {
  gpuRequestType: string | null;
  gpu: Gpus;
  gpuMemory: Amount;
  cpu: Cores;
  cpuMemory: Amount;
  extendedResources: ExtendedResource[];
}

export interface AllocatedResources {
  gpu: number;
  gpuMemory: string;
  cpu: number;
  cpuMemory: string;
  extendedResources: Record<string, unknown>[];
}

export interface ActionsSupport {
  delete: boolean;
  suspend: boolean;
}

export interface RequestedPods {
  number: number;
  min: number | null;
  max: number | null;
  parallelism: number | null;
  completions: number | null;
}

export interface WorkloadIdentity {
  id: string;
  name: string;
  type: WorkloadKind;
  distributedFramework: string;
  tenantId: number;
  clusterId: string;
  projectId: string;
  projectName: string;
  departmentId: string;
  departmentName: string;
  namespace: string;
  source: Source;
  submittedBy: string;
  category: string;
  priority: number | null;
  priorityClassName: string;
  preemptible: boolean;
  sourceApi: string | null;
  aiApplicationId: string | null;
  aiApplicationName: string | null;
}

export interface WorkloadTimes {
  createdAt: string;
  updatedAt: string;
  deletedAt: string | null;
  completedAt: string | null;
  phaseUpdatedAt: string;
  k8sPhaseUpdatedAt: string;
  guaranteedRuntimeEndsAt: string | null;
  totalPendingTimeSeconds: number | null;
  totalRunningTimeSeconds: number | null;
}

export interface WorkloadState {
  phase: Phase;
  phaseMessage: string;
  phaseReason: string | null;
  k8sPhase: string;
  conditions: Condition[];
  actionsSupport: ActionsSupport;
  requestedNodePools: string[];
  currentNodePools: string[];
}

export interface WorkloadResources {
  runningPods: number;
  requestedPods: RequestedPods;
  workloadRequestedResources: RequestedResources;
  podsRequestedResources: RequestedResources;
  allocatedResources: AllocatedResources;
  idleGpus: number | null;
  idleAllocatedGpus: number | null;
}

export interface WorkloadContent {
  images: string[];
  command: string;
  arguments: string;
  environmentVariables: Record<string, unknown>;
  urls: string[];
  datasources: TypedReference[];
  environments: TypedReference[];
  externalConnections: Record<string, unknown>[];
  childrenIds: Child[];
}

export interface Port {
  name: string;
  port: number;
}

export interface AdditionalFields {
  status: string;
  reason: string | null;
  argv: string[];
  pendingPods: number;
  succeededPods: number;
  failedPods: number;
  nodes: string[];
  chief: string;
  commandLine: string;
  startedAt: string | null;
  kind: string;
  image: string;
  ports: Port[];
  gpusSimulated?: boolean;
  ranForSeconds?: number | null;
  cronJob?: string;
  sweep?: string;
  sweepParameters?: Record<string, unknown>;
  retried?: string;
}

export interface Workload extends WorkloadIdentity, WorkloadTimes, WorkloadState, WorkloadResources, WorkloadContent {
  additionalFields: AdditionalFields;
}

export interface PendingMessage {
  nodePool: string;
  phaseReason: string | null;
  reason: string | null;
  orgType: string;
  userMessage: string;
}

export interface WorkloadDetailed extends Workload {
  pendingSchedulingMessages: PendingMessage[];
}

export interface AwaitedWorkload extends WorkloadDetailed {
  reachedPhase: Phase | null;
}

export interface StandardWorkload {
  name: string;
  requestedName: string;
  workloadId: string;
  projectId: string;
  departmentId: string;
  clusterId: string;
  createdBy: string;
  createdAt: string;
  deletedAt: string | null;
  desiredPhase: "Running" | "Stopped" | "Deleted";
  actualPhase: Phase;
  spec: Record<string, unknown>;
}

export interface DistributedWorkload extends StandardWorkload {
  masterSpecSameAsWorker: boolean | null;
  masterSpec: Record<string, unknown> | null;
}

export interface Workloads {
  workloads: Workload[];
  next?: number;
}

export interface BatchFailure {
  id: string;
  code: number;
  message: string;
}

export interface Batch {
  id: string;
  succeeded: string[];
  failed: BatchFailure[];
}

export interface KindName {
  group: string;
  version: string;
  kind: string;
}

export interface ManifestMetadata {
  name: string;
  projectId: string;
  priority: string;
  category: string;
  preemptibility: string;
  id: string;
  gvk: KindName;
  projectName: string;
  clusterId: string;
  tenantId: number;
  departmentId: string;
  departmentName: string;
  createdAt: string;
  createdBy: string;
  updatedAt: string;
  updatedBy: string;
  deletedAt: string | null;
  deletedBy: string | null;
}

export interface ManifestWorkload {
  metadata: ManifestMetadata;
  desiredPhase: string;
  workloadManifest: Record<string, unknown>;
  rawManifest: Record<string, unknown>;
}

export interface SyncInfo {
  status: string;
  message: string;
}

export interface SyncedWorkload {
  workload: ManifestWorkload;
  syncInfo: SyncInfo;
}

export interface PodContainer {
  name: string;
  image: string;
  startedAt: string | null;
}

export interface LaunchedRanks {
  first: number;
  count: number;
}

export interface PodFields {
  name: string;
  id: string;
  workloadId: string;
  workloadName: string;
  clusterId: string;
  projectId: string;
  projectName: string;
  tenantId: number;
  priorityClassName: string;
  createdAt: string;
  updatedAt: string;
  completedAt: string | null;
  deletedAt: string | null;
  k8sPhase: string;
  k8sPhaseUpdatedAt: string;
  nodeName: string | null;
  ip: string | null;
  hostIp: string | null;
  containers: PodContainer[];
  currentNodePool: string;
  requestedNodePools: string[];
  requestedResources: RequestedResources;
  allocatedResources: AllocatedResources;
  tolerations: Record<string, unknown>[];
  nodeAffinity: Record<string, unknown> | null;
  revisionId: string | null;
  status: string;
  ready: boolean;
  role: string;
  index: number;
  restarts: number;
  exitCode: number | null;
  message: string;
}

export interface RankFields {
  rank: string;
  launchedRanks: LaunchedRanks | null;
}

export interface Pod extends PodFields, RankFields {
}

export interface Pods {
  pods: Pod[];
  next?: number;
}

export interface StructureObject {
  id: string;
  owner: string | null;
  kind: string;
  name: string;
  status: string;
}

export interface Structure {
  objects: StructureObject[];
}

export interface InvolvedObject {
  uid: string;
  kind: string;
  name: string;
  namespace: string;
}

export interface Event {
  id: string;
  createdAt: string;
  type: string;
  clusterId: string;
  message: string;
  reason: string;
  source: string;
  count: number;
  involvedObject: InvolvedObject;
}

export interface Events {
  events: Event[];
  next?: number;
}

export interface HistoryMeta {
  creationTimestamp: string;
  type: "Event" | "PhaseUpdate";
}

export interface PhaseUpdate {
  phase: string;
  phaseMessage: string;
}

export interface HistorySpec {
  event?: Event;
  phaseUpdate?: PhaseUpdate;
}

export interface HistoryRecord {
  meta: HistoryMeta;
  spec: HistorySpec;
}

export interface History {
  records: HistoryRecord[];
  next?: number;
}

export interface Holder {
  projectName: string;
  workloadId: string;
  workloadName: string;
  phase: string;
  gpus: number;
  pods: number;
}

export interface ExplanationFields {
  name: string;
  projectName: string;
  phase: Phase;
  since: string;
  reason: string;
  message: string;
  podGroup: string;
  minMember: number | null;
  queue: string;
  record: Record<string, unknown>;
  evicted: Event | null;
  warnings: Event[];
}

export interface Explanation extends ExplanationFields {
  heldBy: string;
  holders: Holder[];
}

export interface PodExplanation {
  name: string;
  projectName: string;
  workloadName: string;
  phase: string;
  since: string;
  reason: string;
  message: string;
  record: Record<string, unknown>;
  heldBy: string;
  holders: Holder[];
}

export interface ContainerStop {
  pod: string;
  at: string;
  sentence: string;
  count: number;
}

export interface Remark {
  kind: string;
  sentence: string;
}

export interface Diagnosis {
  name: string;
  phase: Phase;
  sentence: string;
  incidents: Record<string, unknown>[];
  verdict: Record<string, unknown> | null;
  ranks: Record<string, unknown>[];
  ends: ContainerStop[];
  remarks: Remark[];
}

export interface WhatIf {
  verdict: string;
  message: string;
  hint: string;
  changes: string[];
}

export interface MetricValue {
  value: string;
  timestamp: string;
}

export interface Measurement {
  type: string;
  labels: Record<string, unknown>;
  values: MetricValue[];
}

export interface Metrics {
  measurements: Measurement[];
}

export interface Used {
  cpuCores: number | null;
  memoryBytes: number | null;
  diskReadBytes: number | null;
  diskWriteBytes: number | null;
  netReceiveBytes: number | null;
  netTransmitBytes: number | null;
  gpuMemoryBytes: number | null;
  gpuUtilization: number | null;
}

export interface UsageOfWorkload {
  id: string;
  name: string;
  projectName: string;
  phase: Phase;
  podCount: number;
  gpus: number;
  usage: Used;
  idleSeconds: number | null;
}

export interface UsageOfNode {
  name: string;
  cpuCores: number | null;
  memoryBytes: number | null;
  gpus: number;
  pods: number;
  usage: Used;
}

export interface Usage {
  measured: boolean;
  workloads: UsageOfWorkload[];
  nodes: UsageOfNode[];
}

export interface UsageOfGpu {
  gpu: string;
  gpuUtilization: number | null;
  gpuMemoryBytes: number | null;
}

export interface UsageOfPod {
  name: string;
  rank: string;
  node: string;
  phase: string;
  gpus: number;
  usage: Used;
  perGpu: UsageOfGpu[];
}

export interface WorkloadUsage extends UsageOfWorkload {
  measured: boolean;
  pods: UsageOfPod[];
}

export interface HoursRow {
  projectName: string;
  userName: string;
  workloadName: string;
  workloadId: string;
  runs: number;
  failedRuns: number;
  gpuHoursHeld: number;
  gpuHoursUsed: number | null;
  gpuHoursIdle: number | null;
  gpuHoursWasted: number;
  gpuHoursNotMeasured: number;
  hoursWaited: number;
  gpusSimulated: boolean;
}

export interface UsageHours {
  by: string;
  since: string;
  until: string;
  rows: HoursRow[];
  total: HoursRow;
  rowsInAll: number;
  cut: string;
  problem: string;
}

export interface Curve {
  metric: string;
  axis: string;
  points: unknown[][];
}

export interface Curves {
  rank: string;
  curves: Curve[];
  notes: string[];
}

export interface EventFile {
  path: string;
  place: string;
  begunAt: string;
}

export interface EventFiles {
  files: EventFile[];
}

export interface NotifyTrial {
  target: string;
  delivered: boolean;
  status: number | null;
  answer: string;
  reason: string;
  signed: boolean;
}

export interface RunHeader {
  id: string;
  name: string;
  projectName: string;
  kind: string;
  createdAt: string;
  finishedAt: string | null;
  deletedAt: string | null;
  phase: Phase;
  attempts: number;
  verdict: string;
  durationSeconds: number | null;
  tags: string[];
  note: string;
  favourite: boolean;
}

export interface Runs {
  runs: RunHeader[];
  cut: string;
  problem: string;
  next?: number;
}

export interface RunPhase {
  at: string;
  phase: string;
  message: string;
}

export interface RunPod {
  id: string;
  createdAt: string;
  completedAt: string | null;
  deletedAt: string | null;
  nodeName: string | null;
  status: string;
  exitCode: number | null;
  restarts: number;
}

export interface RunAttempt {
  attempt: number;
  startedAt: string;
  endedAt: string | null;
  pod: string;
  restart: number;
  logBytes: number | null;
}

export interface RunRank {
  rank: string;
  pod: string;
  pods: RunPod[];
  attempts: RunAttempt[];
}

export interface Run extends RunHeader {
  phases: RunPhase[];
  ranks: RunRank[];
  why: Record<string, unknown> | null;
  events: number;
  ends: ContainerStop[];
  checkpointsOf: string;
  ran: Record<string, unknown>;
  manifest: Record<string, unknown>;
}

export interface RowFields {
  id: string;
  name: string;
  type: WorkloadKind;
  distributedFramework: string;
  category: string;
  phase: Phase;
  phaseReason: string | null;
  phaseUpdatedAt: string;
  projectName: string;
  departmentName: string;
  namespace: string;
  submittedBy: string;
  priorityClassName: string;
  preemptible: boolean;
  createdAt: string;
  completedAt: string | null;
  runningPods: number;
  images: string[];
  clusterId: string;
  why: string;
  requestedPods: number;
  minPods: number | null;
  maxPods: number | null;
  failedPods: number;
  nodePool: string;
  nodes: string[];
  gpuRequest: number;
  gpuAllocation: number;
  gpuMemoryAllocation: string;
  kind: string;
  startedAt: string | null;
  canStop: boolean;
}

export interface DataSource {
  name: string;
  type: string;
}

export interface RowExtras {
  cpuRequest?: number;
  cpuAllocation?: number;
  cpuMemoryRequest?: string;
  cpuMemoryAllocation?: string;
  gpuMemoryRequest?: string;
  dataSources?: DataSource[];
  aiApplication?: string;
  cronJob?: string;
  requestedRuns?: number;
  ranAt?: string;
  guaranteedUntil?: string;
  connections?: Port[];
  idleGpus?: number;
}

export interface Row extends RowFields, RowExtras {
}

export interface Quota {
  deserved: number;
  limit: number;
  overQuotaWeight: number;
}

export interface MemoryQuota {
  deserved: number;
  limit: number;
  overQuotaWeight: number;
  units: string;
}

export interface Resources {
  nodePool: Reference;
  gpu: Quota;
  cpu: Quota;
  memory: MemoryQuota;
  priority: string;
}

export interface TotalResources {
  gpuQuota: number;
  cpuQuota: number;
  memoryQuota: number;
}

export interface QuotaAmounts {
  gpu: number;
  cpu: number;
  memory: number;
}

export interface QuotaStatus {
  allocated: QuotaAmounts;
  allocatedNonPreemptible: QuotaAmounts;
  requested: QuotaAmounts;
  fairShare: QuotaAmounts;
}

export interface RangeMeans {
  averageGpuAllocation: number | null;
  averageGpuUtilization: number | null;
  averageGpuMemoryUtilization: number | null;
  updatedAt: string | null;
}

export interface OvertimeData {
  range24hData: RangeMeans;
  range7dData: RangeMeans;
  range30dData: RangeMeans;
}

export interface ProjectStatus {
  namespace: string;
  phase: "Ready" | "NotReady" | "Deleting";
  phaseMessage: string;
  quotaStatus: QuotaStatus;
  nodePoolQuotaStatuses: Record<string, unknown>[];
}

export interface Parent {
  id: string;
  name: string;
  type: string;
}

export interface Project {
  id: string;
  name: string;
  clusterId: string;
  parentId: string;
  description: string;
  status: ProjectStatus;
  totalResources: TotalResources;
  resources: Resources[];
  effective: Record<string, unknown>;
  enforceRunaiScheduler: boolean;
  parent: Parent;
  defaultNodePools: string[];
  nodeTypes: Record<string, unknown> | null;
  schedulingRules: Record<string, unknown> | null;
  overtimeData: OvertimeData | null;
  createdAt: string;
  updatedAt: string;
}

export interface Projects {
  projects: Project[];
  next?: number;
}

export interface DepartmentStatus {
  quotaStatus: QuotaStatus;
}

export interface Department {
  id: string;
  name: string;
  clusterId: string;
  description: string;
  createdAt: string;
  updatedAt: string;
  createdBy: string | null;
  updatedBy: string | null;
  children: Reference[];
  status: DepartmentStatus;
  totalResources: TotalResources;
  resources: Resources[];
  defaultNodePools: string[];
  nodeTypes: Record<string, unknown> | null;
  schedulingRules: Record<string, unknown> | null;
  overtimeData: OvertimeData | null;
}

export interface Departments {
  departments: Department[];
  next?: number;
}

export interface QueuePriority {
  name: string;
  value: number;
  isDefault: boolean;
}

export interface Ranks {
  priorities: QueuePriority[];
}

export interface ClusterStatus {
  state: string;
  conditions: Record<string, unknown>[];
}

export interface Cluster {
  uuid: string;
  tenantId: number;
  name: string;
  createdAt: string;
  updatedAt: string;
  deletedAt: string | null;
  deleteRequestedAt: string | null;
  lastLiveness: string;
  domain: string | null;
  version: string;
  status: ClusterStatus;
}

export interface PlacementStrategy {
  cpu: string;
  gpu: string;
}

export interface NodePool {
  id: string;
  name: string;
  labelKey: string;
  labelValue: string;
  clusterId: string;
  clusterName: string;
  tenantId: number;
  isDefault: boolean;
  phase: "Ready" | "Empty" | "Unschedulable";
  phaseMessage: string;
  overProvisioningRatio: number;
  placementStrategy: PlacementStrategy;
  createdBy: string;
  createdAt: string;
  updatedBy: string;
  updatedAt: string;
  deletedAt: string | null;
  deletedBy: string | null;
  nodes: string[];
}

export interface NodePools {
  nodepools: NodePool[];
  next?: number;
}

export interface NodeCondition {
  type: string;
  reason: string;
  message: string;
}

export interface Taint {
  key: string;
  value: string;
  effect: string;
}

export interface GpuInfo {
  gpuType: string;
  gpuCount: number;
}

export interface Node {
  id: string;
  name: string;
  status: "Ready" | "NotReady" | "Unknown";
  conditions: NodeCondition[];
  taints: Taint[];
  nodePool: string;
  gpuInfo: GpuInfo | null;
  gpusSimulated: boolean;
  nvLinkDomainUid: string | null;
  nvLinkCliqueId: string | null;
  clusterUuid: string;
  createdAt: string;
  updatedAt: string;
}

export interface Nodes {
  nodes: Node[];
  next?: number;
}

export interface TelemetryGroup {
  key: string;
  value: string;
}

export interface TelemetryValue {
  value: string;
  groups: TelemetryGroup[];
}

export interface Telemetry {
  type: string;
  timestamp: string;
  values: TelemetryValue[];
}

export interface CardHolder {
  pod: string;
  namespace: string;
  projectName: string;
  workloadId: string;
  workloadName: string;
  leaving: boolean;
  share: number;
}

export interface TopologyLabel {
  label: string;
  value: string;
}

export interface Card {
  index: number;
  allocated: number;
  holders: CardHolder[];
  usedMemory: number | null;
  utilization: number | null;
  idleSeconds: number | null;
}

export interface NodeCards {
  name: string;
  status: string;
  unschedulable: boolean;
  nodePool: string;
  gpuType: string;
  gpusSimulated: boolean;
  cardMemory: number;
  allocated: number;
  clusterUuid: string;
  createdAt: string | null;
  readyGpus: number;
  totalGpus: number;
  cpu: number;
  allocatedCpu: number;
  memory: number;
  allocatedMemory: number;
  pods: number;
  nvLinkDomainUid: string | null;
  nvLinkCliqueId: string | null;
  topology: TopologyLabel[];
  cards: Card[];
  elsewhere: CardHolder[];
}

export interface Cards {
  nodes: NodeCards[];
}

export interface NodeAllocation {
  name: string;
  status: string;
  address: string;
  nodePool: string;
  gpuType: string;
  gpus: number;
  gpusSimulated: boolean;
  allocatedGpus: number;
  gpuMemory: number;
  cpu: string;
  allocatedCpu: number;
  memory: string;
  allocatedMemory: string;
  createdAt: string | null;
  pods: number;
}

export interface Allocations {
  nodes: NodeAllocation[];
}

export interface WaitingGang {
  position: number;
  workloadId: string;
  name: string;
  projectName: string;
  hint: string;
}

export interface ProjectNotify {
  projectName: string;
  target: string;
  on: string[];
  signed: boolean;
  setAt: string | null;
  problem: string;
}

export interface MovedGang {
  name: string;
  projectName: string;
  priority: number;
  order: string[];
}

export interface EndingPods {
  endingPods: string[];
}

export interface WaitingOrder {
  isOrdered: boolean;
  total: number;
  waiting: WaitingGang[];
}

export interface GangName {
  workloadId: string;
  name: string;
  projectName: string;
  pods: number;
}

export interface YieldingGang extends GangName {
  action: string;
}

export interface FairShare {
  projectId: string;
  gpu: number;
}

export interface QuotaOutcome {
  starts: GangName[];
  startsAfter: GangName[];
  waits: GangName[];
  yields: YieldingGang[];
  total: number;
  fairShares: FairShare[];
}

export interface Outcomes {
  outcomes: Record<string, unknown>[];
}

export interface CheckResult {
  kind: string;
  name: string;
  refused: string;
  hint: string;
  remarks: unknown[];
}

export interface CheckResults {
  results: CheckResult[];
}

export interface WorkloadType {
  id: string;
  name: string;
  group: string;
  categoryId: string;
  categoryName: string;
  category: string;
  priorityId: string;
  priorityName: string;
}

export interface WorkloadTypes {
  types: WorkloadType[];
}

export interface Priority {
  id: string;
  name: string;
  value: number;
}

export interface Priorities {
  priorities: Priority[];
}

export interface Categories {
  categories: Reference[];
}

export interface ComplianceIssue {
  field: string;
  details: string;
  rule: string;
}

export interface Error {
  code: number;
  message: string;
  details: string;
  complianceIssues?: ComplianceIssue[];
}

export interface Accepted {
  code: number;
  message: string;
}

export interface Count {
  count: number;
}

export interface Token {
  accessToken: string;
  expiresIn: number;
  tokenType: string;
}

export interface Application {
  id: string;
  name: string;
  clientId: string;
  enabled: boolean;
  user: string;
  createdAt: string;
  createdBy: string;
}

export interface NewApplication extends Application {
  clientSecret: string;
}

export interface Applications {
  applications: Application[];
}

export interface User {
  id: string;
  userId: string;
  username: string;
  email: string;
  entityType: string;
  createdAt: string;
  updatedAt: string;
  createdBy: string;
  tenantId: number;
  lastLogin: string | null;
  isLocal: boolean;
  groups: string[];
  tempPassword?: string;
}

export interface Me {
  username: string;
  groups: string[];
  isLocalAccount: boolean;
}

export interface Role {
  id: number;
  name: string;
  description: string;
  enabled: boolean;
  effectiveEnabled: boolean;
  custom: boolean;
  createdAt: string;
  updatedAt: string;
  deletedAt: string | null;
  createdBy: string;
  permissions: Record<string, unknown>[];
  clusterRole: string;
}

export interface AccessRule {
  id: number;
  subjectId: string;
  subjectType: string;
  roleId: number;
  roleName: string;
  scopeId: string;
  scopeName: string;
  scopeType: string;
  clusterId: string;
  tenantId: number;
  createdAt: string;
  updatedAt: string;
  deletedAt: string | null;
  createdBy: string;
  status: Record<string, unknown>;
  binding: string;
}

export interface AccessRules {
  accessRules: AccessRule[];
  totalRecords: number;
  displayRecords: number;
  next?: number;
}

export interface MyAccessRules {
  accessRules: AccessRules;
}

export interface AssetMeta {
  id: string;
  kind: string;
  name: string;
  description: string | null;
  scope: string;
  clusterId: string | null;
  departmentId: string | null;
  projectId: number | null;
  projectName: string | null;
  tenantId: number;
  private: boolean;
  autoDelete: boolean;
  createdBy: string;
  createdAt: string;
  updatedBy: string;
  updatedAt: string;
  workloadSupportedTypes?: Record<string, unknown>;
}

export interface Asset {
  meta: AssetMeta;
  spec: Record<string, unknown>;
}

export interface Assets {
  entries: Asset[];
}

export interface TemplateMeta {
  id: string;
  name: string;
  description: string | null;
  workloadType: string;
  scopeType: string;
  scopeId: string;
  clusterId: string;
  departmentId: string | null;
  projectId: number | null;
  createdBy: string;
  createdAt: string;
  updatedBy: string;
  updatedAt: string;
}

export interface Runnable {
  isRunnable: boolean;
  issue: string | null;
}

export interface Template {
  meta: TemplateMeta;
  spec: Record<string, unknown>;
  assets: Record<string, unknown> | null;
  masterSpecSameAsWorker: boolean | null;
  master: Record<string, unknown> | null;
  runnable: Runnable;
  combinedSpec: Record<string, unknown>;
  combinedMasterSpec: Record<string, unknown> | null;
}

export interface Pagination {
  limit: number;
  offset: number;
  nextOffset: number | null;
}

export interface Templates {
  entries: Template[];
  pagination: Pagination;
}

export interface Availability {
  available: boolean;
}

export interface PolicyMeta {
  id: string;
  tenantId: number;
  name: string;
  scope: string;
  clusterId: string;
  projectId: number | null;
  projectName: string | null;
  departmentId: string | null;
  createdBy: string;
  createdAt: string;
  updatedBy: string;
  updatedAt: string;
}

export interface Policy {
  meta: PolicyMeta;
  policy: Record<string, unknown>;
  effective: Record<string, unknown>;
  effectiveUpdatedAt: string;
}

export interface PolicyHeader {
  type: string;
  meta: PolicyMeta;
  status: Record<string, unknown>;
}

export interface Policies {
  policies: PolicyHeader[];
}

export type SweepPhase = "Running" | "Stopped" | "Completed" | "Refused";

export interface SweepCounts {
  total: number;
  begun: number;
  unfinished: number;
  completed: number;
  failed: number;
  stopped: number;
  suspended: number;
  deleted: number;
}

export interface RunMetric {
  best: number | null;
  last: number | null;
}

export interface SweepRun {
  index: number;
  name: string;
  id: string;
  phase: string;
  message: string;
  parameters: Record<string, unknown>;
  metric: RunMetric | null;
  command: string[];
}

export interface Sweep {
  id: string;
  name: string;
  projectName: string;
  namespace: string;
  createdAt: string;
  createdBy: string;
  phase: SweepPhase;
  message: string;
  search: string;
  seed: number;
  maxParallel: number;
  metric: string;
  order: "min" | "max";
  stop: string;
  stopAfter: number;
  parameters: string[];
  submitCommand: string;
  runs: SweepCounts;
}

export interface SweepDetailed extends Sweep {
  metrics: string[];
  unread: number;
  best: number | null;
  entries: SweepRun[];
}

export interface Sweeps {
  sweeps: Sweep[];
}
