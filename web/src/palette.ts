/** One colour for each cause and kind, everywhere: CSS variables in `style/colours.css`, read once a theme. */

export const CAUSES = ["sync", "launch", "input", "copy", "allocator", "comm", "startup", "python", "event", "latency", "unknown"] as const;
export const WORK = ["compute", "copy", "both", "comm"] as const;

/** Kinds of events by number, as `src/unstall/report/picture.py` numbers them; idle causes follow. */
export const KINDS = [
  { label: "operator", colour: "op" },
  { label: "launch", colour: "call-launch" },
  { label: "graph launch", colour: "call-graph" },
  { label: "copy call", colour: "busy-copy" },
  { label: "memset call", colour: "busy-copy" },
  { label: "wait", colour: "idle-sync" },
  { label: "event record", colour: "idle-event" },
  { label: "stream wait", colour: "idle-event" },
  { label: "allocation", colour: "idle-allocator" },
  { label: "free", colour: "idle-allocator" },
  { label: "loading", colour: "idle-startup" },
  { label: "call", colour: "call" },
  { label: "annotation", colour: "annotation" },
  { label: "Python", colour: "frame" },
  { label: "recorder's overhead", colour: "overhead" },
  { label: "kernel", colour: "busy-compute" },
  { label: "copy", colour: "busy-copy" },
  { label: "memset", colour: "busy-copy" },
  { label: "collective", colour: "busy-comm" },
  { label: "step", colour: "step" },
  ...CAUSES.map((cause) => ({ label: `idle: ${cause}`, colour: `idle-${cause}` })),
] as const;

export const IDLE_KIND = 20;

/** Shades of one kind: three to tell neighbours apart, then four for part-covered pixels, from weak to full. */
export const SHADES = 3;
export const STRENGTHS = [0.28, 0.5, 0.75, 1] as const;
export const STYLES = SHADES + STRENGTHS.length;

export interface Colours {
  /** By kind × STYLES + style. */
  fill: string[];
  /** The readable text colour on each kind. */
  ink: string[];
  text: string;
  muted: string;
  faint: string;
  line: string;
  background: string;
  accent: string;
  mark: string;
  queue: string;
}

type Rgb = readonly [number, number, number];

export function readColours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const value = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const background = rgbOf(value("canvas"));
  const isDark = luminance(background) < 0.2;
  const fill: string[] = [];
  const ink: string[] = [];
  for (const { colour } of KINDS) {
    const base = rgbOf(value(colour));
    const toward: Rgb = isDark ? [255, 255, 255] : [0, 0, 0];
    fill.push(text(base), text(mix(base, toward, 0.06)), text(mix(base, background, 0.12)));
    for (const strength of STRENGTHS) fill.push(text(mix(background, base, strength)));
    ink.push(luminance(base) > 0.3 ? "#10151c" : "#ffffff");
  }
  return {
    fill,
    ink,
    text: value("text"),
    muted: value("muted"),
    faint: value("faint"),
    line: value("line"),
    background: value("canvas"),
    accent: value("accent"),
    mark: value("mark"),
    queue: value("queue"),
  };
}

/** Of "#rrggbb", or "#rgb", which the build may shorten it to. */
function rgbOf(hex: string): Rgb {
  const digits = hex.length === 4 ? hex.replace(/[^#]/g, "$&$&") : hex;
  const number = Number.parseInt(digits.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function mix(a: Rgb, b: Rgb, part: number): Rgb {
  return [a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part, a[2] + (b[2] - a[2]) * part];
}

function text([red, green, blue]: Rgb): string {
  return `rgb(${Math.round(red)},${Math.round(green)},${Math.round(blue)})`;
}

/** Relative luminance, WCAG 2. */
function luminance(colour: Rgb): number {
  const [red, green, blue] = colour.map((channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
