import "./style/colours.css";
import "./style/page.css";
import "./style/timeline.css";
import { decodeBlock, decodeResult } from "./decode";
import { h } from "./dom";
import { helpDialog, listenToKeys } from "./keys";
import { accounts } from "./page/accounts";
import { findings } from "./page/findings";
import { header } from "./page/header";
import { lines } from "./page/lines";
import { notes, warning } from "./page/notes";
import { watchTheme } from "./theme";
import { pictureOf } from "./timeline/picture";
import { Timeline } from "./timeline/timeline";
import { Tooltip } from "./tooltip";

const dataOf = (id: string) => document.getElementById(id)?.textContent ?? "";

async function start(page: HTMLElement): Promise<void> {
  const result = await decodeResult(dataOf("result-data"));
  const packed = dataOf("picture-data");
  const picture = packed ? pictureOf(await decodeBlock(packed)) : null;
  const tooltip = new Tooltip();
  const timeline = picture && new Timeline(picture, tooltip);
  const help = helpDialog();
  const search = timeline && ((text: string) => {
    timeline.search(text);
    timeline.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
  });
  const theme = watchTheme(() => timeline?.recolour());
  page.append(
    header(result, tooltip, { theme, help: () => help.showModal() }),
    h(
      "main",
      {},
      warning(result),
      accounts(result, tooltip),
      findings(result, tooltip, timeline && ((title, spans) => timeline.showSpans(title, spans))),
      h(
        "section",
        { class: "timeline-section", "aria-labelledby": "timeline-title" },
        h("h2", { id: "timeline-title" }, "Timeline"),
        timeline?.element ?? h("p", { class: "none" }, "This page was made from a saved result, which holds no events. Explain the trace itself to see its timeline."),
      ),
      lines(result, search),
      notes(result, picture?.notes ?? []),
    ),
  );
  listenToKeys(timeline, help);
  document.title = `${result.source.path.split(/[/\\]/).at(-1)} · unstall`;
  document.documentElement.dataset["ready"] = "true";
}

const page = document.getElementById("page")!;
start(page).catch((error: unknown) => {
  page.append(h("p", { class: "warning" }, `This page's data cannot be read: ${error instanceof Error ? error.message : String(error)}`));
});
