/** The one way in which the page makes elements: texts become text nodes, never markup. */

import { visible } from "./format";

type Child = Node | string | null | false | undefined;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | null | undefined>;

/** Attributes that are functions are event handlers; `true` sets a bare attribute, false and null none. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children) {
    if (child instanceof Node) element.append(child);
    else if (typeof child === "string") element.append(document.createTextNode(visible(child)));
  }
  return element;
}

export function replaceChildren(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((child) => child instanceof Node || typeof child === "string").map(
    (child) => (child instanceof Node ? child : document.createTextNode(visible(child as string))),
  ));
}
