/** Light or dark: as the system has it, until the reader chooses. */

/** Sets the theme and returns what switches it; `changed` is told of every later change. */
export function watchTheme(changed: () => void): () => void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  let isChosen = false;
  const set = (isDark: boolean) => {
    root.dataset["theme"] = isDark ? "dark" : "light";
    changed();
  };
  dark.addEventListener("change", () => {
    if (!isChosen) set(dark.matches);
  });
  set(dark.matches);
  return () => {
    isChosen = true;
    set(root.dataset["theme"] !== "dark");
  };
}
