/** What a page is made of, whatever it is about. */

import { h } from "../dom";
import type { Picture } from "../timeline/picture";
import { Timelines } from "../timeline/timelines";
import type { Tooltip } from "../tooltip";

export interface Page {
  title: string;
  header: HTMLElement;
  sections: (HTMLElement | null)[];
  timelines: Timelines | null;
}

/** Null where the page holds no events of one of the runs. */
export function timelinesOf(pictures: Picture[], runs: { name: string; about: string }[], tooltip: Tooltip): Timelines | null {
  if (pictures.length < runs.length) return null;
  return new Timelines(runs.map((run, i) => ({ ...run, picture: pictures[i]! })), tooltip);
}

export function timelineSection(timelines: Timelines | null, title: string, without: string): HTMLElement {
  return h(
    "section",
    { class: "timeline-section", "aria-labelledby": "timeline-title" },
    h("h2", { id: "timeline-title" }, title),
    timelines?.element ?? h("p", { class: "none" }, without),
  );
}

/** Finds a text on the timelines, and shows them. */
export function searchIn(timelines: Timelines | null): ((text: string) => void) | null {
  if (!timelines) return null;
  return (text) => {
    timelines.search(text);
    timelines.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
  };
}
