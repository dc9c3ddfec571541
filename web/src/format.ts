/** Figures and texts as the page shows them. */

const UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
] as const;

/** Three significant digits: "57.6 ms". */
export function duration(ns: number): string {
  const size = Math.abs(ns);
  for (const [unit, name] of UNITS) {
    if (size >= unit * 0.9995) return `${digits(ns / unit)} ${name}`;
  }
  return `${Math.round(ns)} ns`;
}

function digits(value: number): string {
  const size = Math.abs(value);
  return size >= 99.95 ? grouped(Math.round(value)) : value.toFixed(size >= 9.995 ? 1 : 2);
}

/** "1,234,567 ns": the exact figure. */
export function exact(ns: number): string {
  return `${grouped(ns)} ns`;
}

export function grouped(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

export function percent(part: number, whole: number): string {
  if (whole <= 0 || part === 0) return "0 %";
  const share = (100 * part) / whole;
  return share < 0.1 ? "< 0.1 %" : `${share.toFixed(share >= 99.95 ? 0 : 1)} %`;
}

/** Whether a gain, or a loss, is too small a part of a step to measure. */
export function isNothing(ns: number, stepNs: number): boolean {
  return Math.abs(ns) < 0.0005 * stepNs;
}

/** A change with its sign: "−1.20 ms", "+3.00 µs", "0". */
export function signed(ns: number): string {
  const size = duration(Math.abs(ns));
  return size === "0 ns" ? "0" : `${ns < 0 ? "−" : "+"}${size}`;
}

export function signedPercent(part: number): string {
  const size = Math.abs(100 * part).toFixed(1);
  return `${size === "0.0" ? "" : part < 0 ? "−" : "+"}${size} %`;
}

/** "8.24x as fast"; where that is little, by how much less, or more. */
export function times(from: number, to: number): string {
  const ratio = from / Math.max(to, 1);
  if (ratio >= 1.1) return `${ratio.toPrecision(3)}x as fast`;
  return to === from ? "the same" : to < from ? `${percent(from - to, from)} less` : `${percent(to - from, from)} more`;
}

/** "a → b", or what both are. */
export function became(a: string, b: string): string {
  return a === b ? a : `${a} → ${b}`;
}

/** A count per step, which need not be whole. */
export function perStep(count: number): string {
  if (count > 0 && count < 0.1) return "< 0.1";
  return count.toLocaleString("en-US", { maximumFractionDigits: 1 });
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** Bytes in binary units: "512 B", "1.50 GiB". */
export function size(bytes: number): string {
  const power = bytes < 1024 ? 0 : Math.min(Math.floor(Math.log2(bytes * 1.0005) / 10), SIZES.length - 1);
  return power ? `${digits(bytes / 1024 ** power)} ${SIZES[power]}` : `${grouped(bytes)} B`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}

/** A count over `steps` steps as a mean of one, in as many digits as tell small ones apart. */
export function rate(count: number, steps: number): string {
  if (count % steps === 0 || count >= 10 * steps) return grouped(count / steps);
  return 20 * count >= steps ? (count / steps).toFixed(1) : "< 0.1";
}

/** How often something was seen: "16x a step", "48x in 1 of 3 steps", "once in 5 steps"; nothing for once in all. */
export function often(count: number, seen: number | null, steps: number): string {
  const total = count > 1 ? `${grouped(count)}x` : "once";
  if (count === 0 || steps === 1) return count > 1 ? total : "";
  if (count > 1 && seen !== null && seen < steps) return `${total} in ${grouped(seen)} of ${grouped(steps)} steps`;
  return count % steps === 0 ? `${grouped(count / steps)}x a step` : `${total} in ${grouped(steps)} steps`;
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const LONGEST = 4000;

/** Text from a trace: what would be invisible, or turn the line's direction, is shown as a mark instead. */
export function visible(text: string): string {
  return text.slice(0, LONGEST).replace(UNSEEN, "\ufffd");
}
