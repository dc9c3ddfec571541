/** The results' JSON forms, `unstall.explain/1` and `unstall.whatif/1`: what `src/unstall/result.py` defines, as far as the page shows it. */

export interface Caller {
  file: string;
  line: number;
  function: string;
}

export interface Where {
  file: string | null;
  line: number | null;
  line_is: "exact" | "def" | null;
  function: string | null;
  op: string | null;
  called_from: Caller | null;
}

export interface Finding {
  rule: string;
  title: string;
  where: Where;
  count: number;
  steps_seen: number | null;
  wait_ns: number;
  exposed_ns: number;
  gain_ns: number | null;
  /** The replay's own error, if the gain is within it. */
  gain_below_ns: number | null;
  edit: string | null;
  saw: string;
  fix: string;
  safe_if: string;
  confidence: "high" | "medium" | "low";
  harmless: boolean;
  /** Paid only once, and so by no later step. Older results lack it. */
  once?: boolean;
  wrong: boolean;
  spans: [number, number][];
  /** Of the device, if the finding is about one. Older results lack it. */
  fault?: { kind: string } | null;
}

export interface LineCost {
  where: Where;
  launches: number;
  device_ops: number;
  device_ns: number;
  wait_ns: number;
  idle_ns: number;
  idle_cause: string | null;
}

export interface Accounts {
  wall_ns: number;
  busy_ns: Record<string, number>;
  idle_ns: Record<string, number>;
  comm_ns?: number;
}

export interface DeviceAccounts extends Accounts {
  device: number;
  name: string | null;
}

export interface Source {
  path: string;
  reader: string;
  recorder: "cupti" | "torch" | "virtual" | null;
  known_error: string | null;
  device: string | null;
  torch: string | null;
  cuda: string | null;
  rank: number | null;
  world_size: number | null;
  has_stacks: boolean;
  host_events: number;
  device_ops: number;
}

export interface Integrity {
  ok: boolean;
  notes: string[];
}

export interface Steps {
  found_by: "annotation" | "optimizer" | "period" | "whole";
  name: string | null;
  marks: "optimizer" | "loader" | "forward" | "explicit" | null;
  count: number;
  start_ns: number;
  wall_ns: number;
  mean_ns: number;
}

const FOUND_BY = {
  annotation: "annotation",
  optimizer: "optimizer step",
  period: "the repeating launches",
  whole: "none: the whole run counts as one",
};

const MARKS = {
  optimizer: "optimizer steps",
  loader: "the batches or items of a loop",
  forward: "model calls",
  explicit: "unstall.step()",
};

/** What told the steps apart: "annotation ProfilerStep". */
export function stepsFoundBy({ found_by, name, marks }: Steps): string {
  if (marks) return MARKS[marks];
  const called = found_by === "optimizer" ? name?.replace(/^Optimizer\.step#/, "") : name;
  return `${FOUND_BY[found_by]}${called ? ` ${called}` : ""}`;
}

/** How the step without the recorder is known. */
export interface Undistorted {
  undistorted_by: "plain step time" | "host-only steps" | "usual cost" | "nothing";
  usual_error: number | null;
  plain_step_ns: number | null;
}

export interface Replay extends Undistorted {
  mean_step_ns: number;
  error: number;
  error_ns: number;
  undistorted_mean_step_ns: number;
  host_free_step_ns: number;
  accounts: Accounts;
}

export interface PlanStep {
  edit: string;
  step_ns: number;
  gain_ns: number;
  notes: string[];
}

export interface LineMemory {
  where: Where;
  bytes: number;
  count: number;
  /** At the times of `DeviceMemory.allocated`; only the first lines have it. */
  over_time: number[];
}

/** Of one device: the highest value of each of as many equal intervals as there are values. */
export interface DeviceMemory {
  device: number;
  start_ns: number;
  end_ns: number;
  peak_ns: number;
  allocated_bytes: number;
  reserved_bytes: number | null;
  allocated: number[];
  reserved: number[];
  lines: LineMemory[];
}

/** What all results say of the run that they are of. */
export interface Recorded {
  schema: string;
  version: string;
  source: Source;
  integrity: Integrity;
  steps: Steps;
}

export interface Result extends Recorded {
  replay: Replay | null;
  accounts: Accounts;
  by_device: DeviceAccounts[];
  verdict: { bound_by: string; basis: "recorded" | "undistorted"; text: string };
  findings: Finding[];
  lines: LineCost[];
  /** Older results lack it. */
  memory?: DeviceMemory[];
  plan: PlanStep[] | null;
  floor_ns: number | null;
  /** Numbers of the costly findings that lie between the plan and the floor, from 1 on; the page is given them besides. */
  unplanned: number[];
}

export interface WhatIf extends Recorded, Undistorted {
  measured_step_ns: number;
  replayed_step_ns: number;
  error_ns: number;
  undistorted_step_ns: number;
  predicted_step_ns: number;
  floor_ns: number;
  edits: (PlanStep & { about: string })[];
  before: Accounts;
  after: Accounts;
  bound_by: [string, string];
  /** The answer in a sentence, which the page is given besides. */
  conclusion: string;
}

/** Whether it ran on a virtual GPU: nothing was recorded, and no recorder slowed it. */
export function isSimulated({ recorder }: Source): boolean {
  return recorder === "virtual";
}

/** Whether there was anything for accounts and findings to be about. */
export function hasDeviceWork(result: Result): boolean {
  return result.verdict.bound_by !== "none";
}

/** The findings worth acting on for what they cost, in their order. */
export function costly({ findings }: Result): Finding[] {
  return findings.filter((finding) => !finding.harmless && !finding.wrong);
}

/** What the figures of findings and lines are for. */
export function over(result: Recorded): string {
  return result.steps.found_by === "whole" ? "in all" : "per step";
}

/** What a figure is of: a step, or the run if it has no steps. */
export function unit(steps: Steps): string {
  return steps.found_by === "whole" ? "the run" : "a step";
}

/** Whatever a file does not say of a place is left out: "train.py:41 step". */
export function placeText(where: Where): string {
  const at = where.file === null ? "" : where.line === null || where.line < 0 ? where.file : `${where.file}:${where.line}`;
  return at || where.function || where.op || "";
}
