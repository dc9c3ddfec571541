import { describe, expect, it } from "vitest";
import { whatIfCommand } from "../src/page/command";
import { heightsIn } from "../src/timeline/timelines";
import { View } from "../src/timeline/view";

const view = (extent: [number, number], window: [number, number]) => new View(extent, window, () => undefined);

describe("views that are linked", () => {
  const pair = (): [View, View] => {
    const [a, b] = [view([0, 10_000], [1_000, 3_000]), view([0, 4_000], [500, 2_500])];
    a.link(b, -500);
    return [a, b];
  };

  it("go together, whichever is moved", () => {
    const [a, b] = pair();
    a.set(2_000, 3_000);
    expect([b.from, b.to]).toEqual([1_500, 2_500]);
    b.pan(200);
    expect([a.from, a.to]).toEqual([2_200, 3_200]);
  });

  it("go as far as either has something to show", () => {
    const [a, b] = pair();
    b.set(8_000, 9_000);
    expect([b.from, b.to]).toEqual([8_000, 9_000]);
    expect(a.to).toBe(9_500);
  });

  it("keep to their own recordings once they are apart", () => {
    const [a, b] = pair();
    b.unlink();
    b.set(8_000, 9_000);
    expect(b.to).toBe(4_080);
    expect([a.from, a.to]).toEqual([1_000, 3_000]);
  });
});

describe("heights of timelines", () => {
  it("are what each needs, where there is room", () => expect(heightsIn(600, [200, 250], false)).toEqual([200, 250]));
  it("are even where both need more", () => expect(heightsIn(600, [900, 800], false)).toEqual([300, 300]));
  it("give the high one what the low one leaves", () => expect(heightsIn(600, [200, 900], true)).toEqual([200, 400]));
  it("fill the window where both need less", () => expect(heightsIn(600, [100, 100], true)).toEqual([300, 300]));
  it("fill the window with a single one", () => expect(heightsIn(600, [900], true)).toEqual([600]));
});

describe("commands", () => {
  const typed = (path: string, edits: string[]) => whatIfCommand(path, edits).join(" ");

  it("quote what a shell would take apart", () => {
    expect(typed("a b.json", ["x'y"])).toBe("unstall whatif 'a b.json' --edit 'x'\\''y'");
  });
  it("never begin a path with a dash", () => expect(typed("-x.json", [])).toBe("unstall whatif ./-x.json"));
  it("leave standard input alone", () => expect(typed("-", ["graph"])).toBe("unstall whatif - --edit 'graph'"));
  it("hold nothing that a terminal acts on", () => {
    expect(typed("a", ["b\n\u001b[201~c\t"])).toBe("unstall whatif a --edit 'b\ufffd\ufffd[201~c\ufffd'");
  });
});
