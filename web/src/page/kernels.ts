/** Device time by the name of a kernel or copy: of the steps, or of a stretch that was chosen on the timeline. */

import { h, replaceChildren } from "../dom";
import { duration, exact, grouped, percent, rate } from "../format";
import { over, type Result } from "../result";
import type { Picture } from "../timeline/picture";
import type { Timelines } from "../timeline/timelines";
import { type OpTotal, totalsOf } from "../timeline/totals";
import { ns } from "./lines";
import { searchIn } from "./page";
import { sortable } from "./table";

const SHOWN_AT_FIRST = 15;

interface Row extends OpTotal {
  share: string;
  /** What counts and times are divided by. */
  steps: number;
}

/** Null where the page holds no events. */
export function kernels(result: Result, picture: Picture | undefined, timelines: Timelines | null): HTMLElement | null {
  if (!picture || !timelines) return null;
  const search = searchIn(timelines);
  const table = sortable<Row>(
    {
      one: "name",
      placeholder: "Filter by name",
      label: "Filter the kernels",
      columns: [
        { title: "Kernel or copy", hint: "its name", key: ({ name }) => name, cell: ({ name }) => h("span", { class: "code kernel", title: name }, name) },
        { title: "Device", hint: "device time; ops that run at once count each", key: (row) => row.ns, cell: (row) => ns(row.ns / row.steps) },
        { title: "Share", hint: "of the device time of all", key: (row) => row.ns, cell: (row) => row.share },
        { title: "Count", hint: "how many there are", key: ({ count }) => count, cell: (row) => rate(row.count, row.steps) },
        { title: "Each", hint: "mean device time of one", key: (row) => row.ns / row.count, cell: (row) => ns(row.ns / row.count) },
      ],
      text: ({ name }) => name,
      search: search && (({ name }) => search(name)),
    },
    SHOWN_AT_FIRST,
  );
  const title = h("h2", { id: "kernels-title" });
  const summary = h("span", { class: "muted", "aria-live": "polite" });
  const clear = h("button", { click: () => timelines.choose(null) }, "Back to the steps");
  const inSight = h("button", { click: () => timelines.choose([timelines.current.view.from, timelines.current.view.to]) }, "Of what is in sight");
  const show = (span: [number, number] | null) => {
    const [from, to] = span ?? picture.window;
    const { ops, count, idleNs, accountedNs } = totalsOf(picture, from, to);
    const deviceNs = ops.reduce((sum, op) => sum + op.ns, 0);
    const steps = span ? 1 : Math.max(result.steps.count, 1);
    replaceChildren(title, span ? `Kernels, of the ${duration(to - from)} that are selected` : `Kernels, ${over(result)}`);
    const idle = accountedNs > 0 ? ` · device idle ${duration(idleNs)} (${percent(idleNs, accountedNs)})` : "";
    replaceChildren(summary, span ? `${grouped(count)} ops · ${duration(deviceNs)} of device time${idle}` : "");
    summary.title = span ? `${exact(to - from)} are selected, with ${exact(deviceNs)} of device time` : "";
    clear.hidden = !span;
    table.show(ops.map((op) => ({ ...op, steps, share: percent(op.ns, deviceNs) })));
  };
  timelines.chosen = show;
  show(null);
  return h(
    "section",
    { "aria-labelledby": "kernels-title", class: "kernels" },
    title,
    h("div", { class: "toolbar scope" }, summary, inSight, clear),
    table.element,
  );
}
