/** The top of the page: what was recorded, the verdict, and the figures it rests on. */

import { h } from "../dom";
import { duration, exact, grouped, percent, plural } from "../format";
import type { Result } from "../result";
import type { Tooltip } from "../tooltip";

const FOUND_BY = {
  annotation: "annotation",
  optimizer: "optimizer step",
  period: "the period of the launches",
  whole: "none: the whole run counts as one",
};

export function header(result: Result, tooltip: Tooltip, actions: { theme(): void; help(): void }): HTMLElement {
  const { source } = result;
  const rank = source.rank === null ? null : `rank ${source.rank}${source.world_size === null ? "" : ` of ${source.world_size}`}`;
  const about = [source.device, source.torch && `torch ${source.torch}`, source.cuda && `CUDA ${source.cuda}`, rank];
  return h(
    "header",
    { class: "top" },
    h(
      "div",
      { class: "masthead" },
      h("span", { class: "wordmark" }, "unstall"),
      h("span", { class: "source code", title: source.path }, baseName(source.path)),
      h("span", { class: "about" }, about.filter(Boolean).join(" · ")),
      h("span", { class: "spacer" }),
      h("button", { click: actions.theme, id: "theme", title: "Light or dark" }, "Theme"),
      h("button", { click: actions.help, title: "Keys (?)", "aria-label": "Keys" }, "?"),
    ),
    ...verdict(result.verdict.text),
    facts(result, tooltip),
  );
}

/** The first sentence large, what qualifies it below. */
function verdict(text: string): HTMLElement[] {
  const [first, ...rest] = text.split(/(?<=[.!?])\s+/);
  const title = h("h1", { class: "verdict" }, first);
  return rest.length ? [title, h("p", { class: "verdict-more" }, rest.join(" "))] : [title];
}

function facts(result: Result, tooltip: Tooltip): HTMLElement {
  const { accounts, steps, source } = result;
  const busy = sum(accounts.busy_ns);
  const figures: [string, string, string[]][] = [
    [steps.count === 1 ? "window" : "mean step", duration(steps.mean_ns), [exact(steps.mean_ns), `${exact(steps.wall_ns)} over ${plural(steps.count, "step")}`]],
    ["device busy", percent(busy, accounts.wall_ns), [`${exact(busy)} of ${exact(accounts.wall_ns)}`]],
    ["steps", grouped(steps.count), [`found by ${FOUND_BY[steps.found_by]}${steps.name ? ` ${steps.name}` : ""}`]],
    ["device ops", grouped(source.device_ops), [`${grouped(source.device_ops)} device ops and ${plural(source.host_events, "host event")} were read`]],
  ];
  if (result.replay) {
    figures.push(["unrecorded step", duration(result.replay.undistorted_mean_step_ns), ["the replayed step without the recorder's cost", exact(result.replay.undistorted_mean_step_ns)]]);
  }
  const list = h("dl", { class: "figures" });
  for (const [term, value, lines] of figures) {
    const item = h("div", { tabindex: 0 }, h("dt", {}, term), h("dd", {}, value));
    tooltip.attach(item, [term, ...lines]);
    list.append(item);
  }
  return list;
}

function baseName(path: string): string {
  return path.split(/[/\\]/).at(-1) || path;
}

export function sum(parts: Record<string, number>): number {
  return Object.values(parts).reduce((total, part) => total + part, 0);
}
