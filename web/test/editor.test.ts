import { afterEach, expect, test } from "vitest";

import { addressOf, digest, type Editor, useEditor } from "../src/editor";

const PAGE = new URL("file:///home/ada/my%20runs/report.html");
const VSCODE: Editor = {
  name: "VS Code",
  address: "vscode://file/{path}:{line}",
  page: digest("/home/ada/my runs/report.html"),
  paths: { "train.py": "train.py", "/home/ada/net.py": "../net.py", "odd": "a?b#c&d%41:7/{line}.py" },
};

afterEach(() => useEditor(undefined, PAGE));

test("the digest is that of src/unstall/report/editor.py", () => {
  expect(digest("/home/ada/my runs/report.html")).toBe(2388910751);
});

test.each<[string, Partial<Editor>, string]>([
  ["train.py", {}, "vscode://file/home/ada/my%20runs/train.py:41"],
  ["/home/ada/net.py", {}, "vscode://file/home/ada/net.py:41"],
  ["odd", {}, "vscode://file/home/ada/my%20runs/a%3Fb%23c%26d%2541%3A7/%7Bline%7D.py:41"],
  ["train.py", { address: "pycharm://open?file=/{path}&line={line}" }, "pycharm://open?file=/home/ada/my%20runs/train.py&line=41"],
])("the address of a line in %s with %o", (file, of, address) => {
  useEditor({ ...VSCODE, ...of }, PAGE);
  expect(addressOf(file, 41, PAGE)).toBe(address);
});

test.each<[string, Partial<Editor>, string]>([
  ["an unknown scheme", { address: "javascript:alert({line})" }, PAGE.href],
  ["an unknown scheme that ends like a known one", { address: "xvscode://file/{path}:{line}" }, PAGE.href],
  ["another place", {}, "file:///home/ada/report.html"],
  ["a server", {}, "https://ci.test/home/ada/my%20runs/report.html"],
  ["a broken address", {}, "file:///home/%ff/report.html"],
])("there are no links with %s", (_, of, page) => {
  useEditor({ ...VSCODE, ...of }, new URL(page));
  expect(addressOf("train.py", 41, new URL(page))).toBeNull();
});

test.each<[string | null, number | null]>([
  ["model.py", 1],
  ["toString", 1],
  ["train.py", null],
  ["train.py", -1],
  [null, 1],
])("there is no link to %s, line %s", (file, line) => {
  useEditor(VSCODE, PAGE);
  expect(addressOf(file, line, PAGE)).toBeNull();
});
