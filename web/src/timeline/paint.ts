/** Fills a frame's rectangles, gathered by colour so that the canvas changes its state seldom. */

import { type Colours, SHADES, STRENGTHS, STYLES } from "../palette";
import type { Rows } from "./rows";
import { type Scale, scan } from "./scan";

/** What a lane's events are called, for its labels. */
export interface Names {
  strings: string[];
  name: Int32Array;
}

const LABEL_FROM = 26; // pixels: a narrower bar has no room for a text
const PADDING = 4;

export class Painter {
  /** Rectangles of the current frame: the page's measure of its own work. */
  rectangles = 0;
  private readonly fills: number[][] = [];
  private labels: { row: number; left: number; width: number; top: number; height: number }[] = [];

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly colours: Colours,
  ) {}

  /** Neighbouring pixels of one colour become one rectangle; lanes of 12 pixels or more get labels. */
  lane(rows: Rows, names: Names | null, first: number, last: number, scale: Scale, top: number, height: number): void {
    let runStyle = -1;
    let runLeft = 0;
    let runRight = 0;
    const endRun = () => {
      if (runStyle >= 0) this.add(runStyle, runLeft, top, runRight - runLeft, height);
      runStyle = -1;
    };
    scan(rows, first, last, scale, (row, left, right, covered) => {
      const kind = rows.kind[row]! * STYLES;
      if (right - left > 1) {
        endRun();
        const shade = names ? names.name[row]! % SHADES : 0;
        const gap = right - left > 3 ? 1 : 0;
        this.add(kind + shade, left, top, right - left - gap, height);
        if (names && height >= 12 && right - left >= LABEL_FROM) {
          this.labels.push({ row, left, width: right - left, top, height });
        }
        return;
      }
      const style = kind + SHADES + strengthOf(covered);
      if (style !== runStyle || left > runRight + 0.01) {
        endRun();
        runStyle = style;
        runLeft = left;
      }
      runRight = right;
    });
    endRun();
  }

  /** Puts what was gathered on the canvas; `rows` and `names` are those the labels are of. */
  flush(rows: Rows, names: Names | null, width: number): void {
    const { context, colours } = this;
    this.fills.forEach((boxes, style) => {
      if (!boxes.length) return;
      context.fillStyle = colours.fill[style]!;
      for (let i = 0; i < boxes.length; i += 4) context.fillRect(boxes[i]!, boxes[i + 1]!, boxes[i + 2]!, boxes[i + 3]!);
      this.rectangles += boxes.length / 4;
      boxes.length = 0;
    });
    if (names) this.write(rows, names, width);
    this.labels = [];
  }

  private add(style: number, left: number, top: number, width: number, height: number): void {
    (this.fills[style] ??= []).push(left, top, width, height - 1);
  }

  private write(rows: Rows, names: Names, width: number): void {
    const { context, colours } = this;
    context.textBaseline = "middle";
    let kind = -1;
    let fontHeight = 0;
    let letter = 0;
    for (const label of this.labels) {
      if (label.height !== fontHeight) {
        fontHeight = label.height;
        context.font = `${Math.min(fontHeight - 5, 11)}px ui-sans-serif, system-ui, sans-serif`;
        letter = context.measureText("abcdefghij_:").width / 12;
      }
      if (rows.kind[label.row] !== kind) {
        kind = rows.kind[label.row]!;
        context.fillStyle = colours.ink[kind]!;
      }
      const left = Math.max(label.left, 0) + PADDING;
      const room = Math.min(label.left + label.width, width) - left - PADDING;
      const text = fitted(context, shortName(names.strings[names.name[label.row]!] ?? ""), room, letter);
      if (text) context.fillText(text, left, label.top + (label.height - 1) / 2 + 0.5);
    }
  }
}

function strengthOf(covered: number): number {
  return Math.min(Math.floor(covered * STRENGTHS.length), STRENGTHS.length - 1);
}

const FRAME = /^(?:.*\/)?([^/(]+)\((\d+)\): (.+)$/; // "torch/nn/modules/module.py(1783): _call_impl"

/** The telling part first: a frame's function, and no prefix that the track or most kernels have in common. */
function shortName(name: string): string {
  return name.replace(FRAME, "$3  $1:$2").replace(/^(?:void |std::enable_if<.*?>::type |idle: |aten::)/, "").replace(/at::native::|\(anonymous namespace\)::|cutlass::/g, "");
}

/** As much of a text as there is room for, from a guess by the width of one letter. */
function fitted(context: CanvasRenderingContext2D, text: string, room: number, letter: number): string {
  let letters = Math.floor((1.25 * room) / letter);
  if (text.length <= letters && context.measureText(text).width <= room) return text;
  for (letters = Math.min(letters, text.length); letters > 2; letters--) {
    const cut = `${text.slice(0, letters - 1)}…`;
    if (context.measureText(cut).width <= room) return cut;
  }
  return "";
}
