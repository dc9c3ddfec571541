/** The top of a page: what it is of, what it says, and the figures that rests on. */

import { h } from "../dom";
import { isSimulated, type Source } from "../result";
import type { Tooltip } from "../tooltip";

/** What every page is given. */
export interface Shell {
  tooltip: Tooltip;
  theme(): void;
  help(): void;
}

/** A figure, its name, and what is said of it when pointed at. */
export type Figure = [term: string, value: string, lines: string[]];

export function masthead(verb: string, sources: Source[], about: string, shell: Shell): HTMLElement {
  const names = sources.map(({ path }) => h("span", { class: "source code", title: path }, baseName(path)));
  return h(
    "div",
    { class: "masthead" },
    h("span", { class: "wordmark" }, "unstall"),
    verb !== "" && h("span", { class: "about" }, verb),
    names[0],
    names[1] && h("span", { class: "about" }, "→"),
    names[1],
    h("span", { class: "about" }, about),
    h("span", { class: "spacer" }),
    h("button", { click: shell.theme, id: "theme", title: "Light or dark" }, "Theme"),
    h("button", { click: shell.help, title: "Keys (?)", "aria-label": "Keys" }, "?"),
  );
}

/** What was recorded or simulated, and with what. */
export function aboutSource(source: Source): string {
  const rank = source.rank === null ? null : `rank ${source.rank}${source.world_size === null ? "" : ` of ${source.world_size}`}`;
  const device = isSimulated(source) ? `simulated for ${source.device ?? "a virtual GPU"}` : source.device;
  return [device, source.torch && `torch ${source.torch}`, source.cuda && `CUDA ${source.cuda}`, rank].filter(Boolean).join(" · ");
}

/** How far off simulated times were on known programs; null where all was recorded. */
export function knownError(sources: Source[]): HTMLElement | null {
  const errors = new Set(sources.map(({ known_error }) => known_error).filter((error) => error !== null));
  return errors.size > 0 ? h("p", { class: "known-error" }, `Known error: ${[...errors].join("; ")}`) : null;
}

/** The first sentence large, what qualifies it below. */
export function verdict(text: string): HTMLElement[] {
  const [first, ...rest] = text.split(/(?<=[.!?])\s+/);
  const title = h("h1", { class: "verdict" }, first);
  return rest.length ? [title, h("p", { class: "verdict-more" }, rest.join(" "))] : [title];
}

export function figureList(figures: Figure[], tooltip: Tooltip): HTMLElement {
  const list = h("dl", { class: "figures" });
  for (const [term, value, lines] of figures) {
    const item = h("div", { tabindex: 0 }, h("dt", {}, term), h("dd", {}, value));
    tooltip.attach(item, [term, ...lines]);
    list.append(item);
  }
  return list;
}

export function baseName(path: string): string {
  return path.split(/[/\\]/).at(-1) || path;
}
