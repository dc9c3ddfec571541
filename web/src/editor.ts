/**
 * Links that open a source line in the user's editor. They are made only where the page was written: elsewhere the files that it tells of are
 * other ones, or none. `src/unstall/report/editor.py` says which files are known, and which editor it is.
 */

import { h } from "./dom";

export interface Editor {
  name: string;
  /** Of a line, with `{path}`, which is absolute, and `{line}`. */
  address: string;
  /** The digest of the page's own path. */
  page: number;
  /** By the names that the run has for files: the path from the page's folder. */
  paths: Record<string, string>;
}

const SCHEMES = /^(vscode|vscode-insiders|vscodium|cursor|windsurf|zed|pycharm):\/\//;
const PLACE = /^(.+?):(\d+)(?= |$)/;

let inUse: Editor | null = null;

/** Before anything is drawn: the editor that the links are for. */
export function useEditor(editor: Editor | undefined, address: URL | Location = location): void {
  inUse = editor && SCHEMES.test(editor.address) && isWrittenAt(address, editor.page) ? editor : null;
}

function isWrittenAt({ protocol, pathname }: URL | Location, page: number): boolean {
  return protocol === "file:" && digest(decoded(pathname)) === page;
}

/** FNV-1a in 32 bits. */
export function digest(text: string): number {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193);
  return value >>> 0;
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // an address that is no UTF-8 is not encoded as ours
  }
}

/** The address that opens a line; null if it is not known where the file is. */
export function addressOf(file: string | null, line: number | null, page: URL | Location = location): string | null {
  if (!inUse || file === null || line === null || line < 1 || !Object.hasOwn(inUse.paths, file)) return null;
  const encoded = (path: string) => path.split("/").map(encodeURIComponent).join("/");
  const path = decoded(new URL(encoded(inUse.paths[file]!), page.href).pathname);
  return inUse.address.replace("{path}", () => encoded(path.slice(1))).replace("{line}", String(line));
}

/** A link to stand beside the place; `words` if it is to say what it does, such as "Open in". */
export function editorLink(file: string | null, line: number | null, words = ""): HTMLElement | null {
  const href = addressOf(file, line);
  if (href === null) return null;
  const title = `Open ${file}:${line} in ${inUse!.name}`;
  return h("a", { class: "editor", href, title, "aria-label": words ? null : title }, words ? `${words} ${inUse!.name} ↗` : "↗");
}

/** The link of a text that begins with a place, such as "train.py:41 step". */
export function linkOfText(text: string): HTMLElement | null {
  const found = PLACE.exec(text);
  return found && editorLink(found[1]!, Number(found[2]));
}
