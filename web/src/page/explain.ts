/** The page of `unstall explain`: where the time went, which line, and why. */

import { h } from "../dom";
import { duration, exact, grouped, percent, plural } from "../format";
import { type Result, stepsFoundBy } from "../result";
import type { Picture } from "../timeline/picture";
import { accounts } from "./accounts";
import { findings, wrongs } from "./findings";
import { aboutSource, baseName, type Figure, figureList, knownError, masthead, type Shell, verdict } from "./header";
import { kernels } from "./kernels";
import { lines } from "./lines";
import { memory } from "./memory";
import { notes, warning } from "./notes";
import { type Page, searchIn, timelineSection, timelinesOf } from "./page";
import { plan } from "./plan";
import { howKnown, isTrusted, isUndistorted, undistortedStep } from "./replay";

export function explainPage(result: Result, pictures: Picture[], shell: Shell): Page {
  const { tooltip } = shell;
  const timelines = timelinesOf(pictures, [{ name: "", about: "" }], tooltip);
  const show = timelines && ((title: string, spans: [number, number][]) => timelines.showSpans(title, spans));
  return {
    title: baseName(result.source.path),
    timelines,
    header: h(
      "header",
      { class: "top" },
      masthead("", [result.source], aboutSource(result.source), shell),
      ...verdict(result.verdict.text),
      figureList(figures(result), tooltip),
      knownError([result.source]),
    ),
    sections: [
      warning(result.integrity),
      wrongs(result, tooltip, show),
      accounts(result, tooltip),
      plan(result, tooltip),
      findings(result, tooltip, show),
      timelineSection(timelines, "Timeline", "This page was made from a saved result, which holds no events. Explain the trace itself to see its timeline."),
      kernels(result, pictures[0], timelines),
      lines(result, searchIn(timelines)),
      memory(result, tooltip),
      notes(result, pictures.flatMap((picture) => picture.notes)),
    ],
  };
}

function figures({ accounts, steps, source, replay, plan, floor_ns }: Result): Figure[] {
  const busy = Object.values(accounts.busy_ns).reduce((total, part) => total + part, 0);
  const list: Figure[] = [
    [steps.count === 1 ? "window" : "mean step", duration(steps.mean_ns), [exact(steps.mean_ns), `${exact(steps.wall_ns)} over ${plural(steps.count, "step")}`]],
  ];
  if (replay && isTrusted(replay) && isUndistorted(replay)) {
    const step = replay.undistorted_mean_step_ns;
    list.push(["without the recorder", undistortedStep(replay, step), [exact(step), howKnown(replay, step)]]);
  }
  const planned = plan?.at(-1)?.step_ns;
  if (planned !== undefined) list.push(["after the plan", duration(planned), [exact(planned), `with all ${plural(plan!.length, "change")} made`]]);
  if (floor_ns !== null) list.push(["floor", duration(floor_ns), [exact(floor_ns), "device busy time after all changes of the plan"]]);
  return [
    ...list,
    ["device busy", percent(busy, accounts.wall_ns), [`${exact(busy)} of ${exact(accounts.wall_ns)}`]],
    ["steps", grouped(steps.count), [`found by ${stepsFoundBy(steps)}`]],
    ["device ops", grouped(source.device_ops), [`${grouped(source.device_ops)} device ops and ${plural(source.host_events, "host event")} were read`]],
  ];
}
