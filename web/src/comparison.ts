/** The JSON form `unstall.diff/1`: what `src/unstall/changes/result.py` defines, as far as the page shows it. */

import type { Integrity, Source, Steps, Where } from "./result";

/** ns per step; a change of `noise` or less may be chance. */
export interface Time {
  a: number;
  b: number;
  noise: number | null;
}

/** Per step. */
export interface Count {
  a: number;
  b: number;
}

export interface Side {
  source: Source;
  integrity: Integrity;
  steps: Steps;
  shortest_step_ns: number;
  longest_step_ns: number;
  bound_by: string;
}

interface Change {
  status: "new" | "gone" | "changed" | "within noise";
  where_a: Where | null;
  where_b: Where | null;
}

export interface WaitChange extends Change {
  count: Count;
  wait_ns: Time;
  exposed_ns: Time;
}

export interface CopyChange extends Change {
  direction: string;
  became: string[];
  count: Count;
  pageable: Count;
  pinned: Count;
  blocking: Count;
  bytes: Count;
  device_ns: Time;
}

export interface KernelChange extends Change {
  name: string;
  count: Count;
  device_ns: Time;
}

export interface LineChange extends Change {
  launches: Count;
  cost_ns: Time;
  device_ns: Time;
  idle_ns: Time;
  wait_ns: Time;
}

export type AnyChange = WaitChange | CopyChange | KernelChange | LineChange;

export interface Comparison {
  schema: string;
  version: string;
  a: Side;
  b: Side;
  matched_by: "line" | "function" | "operator";
  caveats: { code: string; text: string }[];
  summary: { faster: "a" | "b" | null; ratio: number | null; text: string };
  step_ns: Time | null;
  accounts: { key: string; kind: "busy" | "idle"; time_ns: Time }[];
  waits: WaitChange[];
  copies: CopyChange[];
  launches: { calls: Count; graph_launches: Count; kernels: Count; kernels_in_graphs: Count } | null;
  kernels: KernelChange[];
  lines: LineChange[];
  unchanged: { waits: number; copies: number; kernels: number; lines: number };
}
