/** The page of `unstall whatif`: what edits would make of a run, and both runs under each other. */

import { h } from "../dom";
import { duration, exact, times } from "../format";
import { isSimulated, unit, type WhatIf } from "../result";
import type { Picture } from "../timeline/picture";
import { comparedAccounts, type Side } from "./accounts";
import { aboutSource, baseName, type Figure, figureList, knownError, masthead, type Shell, verdict } from "./header";
import { notes, warning } from "./notes";
import { type Page, timelineSection, timelinesOf } from "./page";
import { howKnown, inBrief, isUndistorted, sentences, undistortedStep } from "./replay";
import { waterfall } from "./waterfall";

export function whatIfPage(result: WhatIf, pictures: Picture[], shell: Shell): Page {
  const { tooltip } = shell;
  const { steps } = result;
  const side = (name: string, accounts: WhatIf["before"]): Side => ({ name, about: duration(accounts.wall_ns / steps.count), steps: steps.count, accounts });
  const [before, after] = [side("before", result.before), side("after", result.after)];
  const runs = [
    { name: "Before", about: isUndistorted(result) ? "replayed without the recorder" : isSimulated(result.source) ? "replayed as simulated" : "replayed as recorded" },
    { name: "After", about: result.edits.map(({ edit }) => edit).join(" · ") || "no edit" },
  ];
  const timelines = timelinesOf(pictures, runs, tooltip);
  return {
    title: `${baseName(result.source.path)}, what if`,
    timelines,
    header: h(
      "header",
      { class: "top" },
      masthead("what if", [result.source], aboutSource(result.source), shell),
      ...verdict(result.conclusion),
      figureList(figures(result), tooltip),
      knownError([result.source]),
    ),
    sections: [
      warning(result.integrity),
      edits(result, shell),
      comparedAccounts(`Where ${unit(result.steps)} goes, before and after`, [before, after], tooltip, [result.undistorted_step_ns, result.predicted_step_ns]),
      timelineSection(timelines, "Timelines, before and after", "This page was made from a saved answer, which holds no events."),
      notes(result, pictures.flatMap((picture) => picture.notes)),
    ],
  };
}

function figures(result: WhatIf): Figure[] {
  const { measured_step_ns: measured, undistorted_step_ns: undistorted, predicted_step_ns: predicted, floor_ns: floor } = result;
  const given: [string, string] = isSimulated(result.source) ? ["as simulated", "mean step on the virtual GPU"] : ["as recorded", "mean step with the recorder at work"];
  const list: Figure[] = [[given[0], duration(measured), [exact(measured), given[1]]]];
  if (isUndistorted(result)) list.push(["without the recorder", undistortedStep(result, undistorted), [exact(undistorted), howKnown(result, undistorted)]]);
  if (result.edits.length) {
    const [was, is] = result.bound_by;
    list.push(["with the edits", duration(predicted), [exact(predicted), times(undistorted, predicted)]]);
    list.push(["bound by", was === is ? is : `${was} → ${is}`, [`what holds ${unit(result.steps)} up, before and after`]]);
  }
  list.push(["floor", duration(floor), [exact(floor), "device busy time after all edits"]]);
  return list;
}

/** The edits in the order in which they were made, and what each leaves of the step. */
function edits(result: WhatIf, { tooltip }: Shell): HTMLElement {
  const { measured_step_ns: measuredNs, replayed_step_ns: replayedNs, undistorted_step_ns: stepNs } = result;
  const error = replayedNs / Math.max(measuredNs, 1) - 1;
  return h(
    "section",
    { "aria-labelledby": "edits-title" },
    h("h2", { id: "edits-title" }, "The edits, one after the other"),
    h(
      "figure",
      { class: "panel" },
      waterfall(
        {
          start: { title: isUndistorted(result) ? "As it is, without the recorder" : "As it is", about: inBrief(result, result.source), ns: stepNs },
          falls: result.edits.map((step) => ({ step: { ...step, notes: [step.about, ...step.notes].filter(Boolean) }, title: "" })),
          floorNs: result.floor_ns,
          errorNs: result.error_ns,
          unit: unit(result.steps),
        },
        tooltip,
      ),
    ),
    h("p", { class: "basis" }, sentences(result, result.source, unit(result.steps), { measuredNs, replayedNs, error, stepNs })),
  );
}
