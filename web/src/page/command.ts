/** A command for a shell, to be copied. */

import { h, replaceChildren } from "../dom";
import { visible } from "../format";

const TOLD_MS = 1600;

/**
 * What to type for these edits, in parts that belong on one line. Names in it come from the trace: quoted, they are one word to a shell, and what a
 * terminal would act on when it is pasted is a mark by then.
 */
export function whatIfCommand(path: string, edits: string[], more: string[] = []): string[] {
  const trace = path.startsWith("-") && path !== "-" ? `./${path}` : path;
  const start = `unstall whatif ${/^[\w@%+=:,./-]+$/.test(trace) ? trace : quoted(trace)}`;
  return [start, ...edits.map((edit) => `--edit ${quoted(edit)}`), ...more];
}

function quoted(text: string): string {
  return `'${visible(text).replace(/[\n\t]/g, "\ufffd").replaceAll("'", "'\\''")}'`;
}

export function command(parts: string[]): HTMLElement {
  const text = parts.join(" ");
  const code = h("code", { class: "code", tabindex: 0, "aria-label": "Command" }, ...parts.flatMap((part, i) => [i > 0 && " ", h("span", {}, part)]));
  const button = h("button", { class: "copy", title: "Copy the command", click: () => void copy() }, "Copy");
  const copy = async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    if (!isCopied) getSelection()?.selectAllChildren(code);
    replaceChildren(button, isCopied || document.execCommand("copy") ? "Copied" : "Selected");
    setTimeout(() => replaceChildren(button, "Copy"), TOLD_MS);
  };
  return h("span", { class: "command" }, code, button);
}
