import "./style/colours.css";
import "./style/page.css";
import "./style/figures.css";
import "./style/timeline.css";
import type { Comparison } from "./comparison";
import { decodeBlock, decodeResult } from "./decode";
import { h } from "./dom";
import { type Editor, useEditor } from "./editor";
import { helpDialog, listenToKeys } from "./keys";
import { diffPage } from "./page/diff";
import { explainPage } from "./page/explain";
import { openAddressed } from "./page/findings";
import type { Shell } from "./page/header";
import type { Page } from "./page/page";
import { whatIfPage } from "./page/whatif";
import type { Result, WhatIf } from "./result";
import { watchTheme } from "./theme";
import { type Picture, pictureOf } from "./timeline/picture";
import { Tooltip } from "./tooltip";

const dataOf = (id: string) => document.getElementById(id)?.textContent ?? "";

/** The result's schema says what the page is about. */
function pageOf(result: { schema: string }, pictures: Picture[], shell: Shell): Page {
  const [name] = result.schema.split("/");
  if (name === "unstall.whatif") return whatIfPage(result as WhatIf, pictures, shell);
  if (name === "unstall.diff") return diffPage(result as unknown as Comparison, pictures, shell);
  return explainPage(result as Result, pictures, shell);
}

async function start(root: HTMLElement): Promise<void> {
  const result = await decodeResult(dataOf("result-data"));
  const blocks = dataOf("picture-data").split("\n").filter(Boolean);
  const pictures = await Promise.all(blocks.map(async (block) => pictureOf(await decodeBlock(block))));
  useEditor((result as { editor?: Editor }).editor);
  let page: Page | null = null;
  const help = helpDialog(pictures.length > 1);
  const shell = { tooltip: new Tooltip(), theme: watchTheme(() => page?.timelines?.recolour()), help: () => help.showModal() };
  page = pageOf(result, pictures, shell);
  root.append(page.header, h("main", {}, ...page.sections));
  listenToKeys(page.timelines, help);
  openAddressed();
  addEventListener("hashchange", openAddressed);
  document.title = `${page.title} · unstall`;
  document.documentElement.dataset["ready"] = "true";
}

const root = document.getElementById("page")!;
start(root).catch((error: unknown) => {
  root.append(h("p", { class: "warning" }, `This page's data cannot be read: ${error instanceof Error ? error.message : String(error)}`));
});
