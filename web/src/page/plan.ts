/** The plan: the changes in the order to make them, down to the floor. */

import { h } from "../dom";
import { duration, times } from "../format";
import { costly, isSimulated, placeText, type Result, unit } from "../result";
import type { Tooltip } from "../tooltip";
import { command, whatIfCommand } from "./command";
import { inBrief, isUndistorted } from "./replay";
import { waterfall } from "./waterfall";

export function plan(result: Result, tooltip: Tooltip): HTMLElement | null {
  const { plan: steps, replay, findings, source } = result;
  if (!steps?.length || !replay) return null;
  const start = replay.undistorted_mean_step_ns;
  const end = steps.at(-1)!.step_ns;
  const unplanned = result.unplanned.map((number) => costly(result)[number - 1]!);
  const titles = new Map(findings.map(({ edit, title }) => [edit, title]));
  return h(
    "section",
    { "aria-labelledby": "plan-title" },
    h("h2", { id: "plan-title" }, "Plan: the changes in the order to make them"),
    h(
      "figure",
      { class: "panel" },
      h("figcaption", {}, h("b", {}, `${duration(start)} → ${duration(end)}`), ` ${unit(result.steps) === "a step" ? "a step" : "in all"}, ${times(start, end)}, as replayed with all of them made`),
      waterfall(
        {
          start: { title: isUndistorted(replay) ? "As it is, without the recorder" : "As it is", about: inBrief(replay, source), ns: start },
          falls: steps.map((step) => ({ step, title: titles.get(step.edit) ?? "" })),
          floorNs: result.floor_ns,
          errorNs: result.replay?.error_ns ?? 0,
          unit: unit(result.steps),
        },
        tooltip,
      ),
      ...unplanned.map(({ title, where, exposed_ns }) =>
        h("div", { class: "panel-foot" }, `Not modelled is what is gained by mending this: ${title}, at ${placeText(where)} (at most ${duration(Math.min(exposed_ns, end - (result.floor_ns ?? 0)))})`),
      ),
      h("div", { class: "panel-foot" }, h("span", {}, "See it"), command(whatIfCommand(source.path, steps.map(({ edit }) => edit), [...undistortedBy(result), "-o what_if.html"]))),
    ),
  );
}

/** What makes `whatif` take the recorder's cost out as this report did. */
export function undistortedBy({ replay, source }: Result): string[] {
  if (isSimulated(source)) return [];
  if (replay?.undistorted_by === "nothing") return ["--as-recorded"];
  return replay?.plain_step_ns ? [`--plain-step-ms ${replay.plain_step_ns / 1e6}`] : [];
}
