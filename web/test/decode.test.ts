import { expect, test } from "vitest";
import { decodeBlock, unpack } from "../src/decode";

function block(columns: unknown[], bytes: number[]): Uint8Array {
  const header = new TextEncoder().encode(JSON.stringify({ columns, strings: ["é"], window: [0, 9], notes: [] }));
  const whole = new Uint8Array(4 + header.length + bytes.length);
  new DataView(whole.buffer).setUint32(0, header.length, true);
  whole.set(header, 4);
  whole.set(bytes, 4 + header.length);
  return whole;
}

test("a column is its smallest value plus its planes, lowest bytes first", () => {
  const { numbers } = unpack(block([["a", 3, 2, -1, false]], [0, 1, 2, 0, 0, 1]));
  expect([...numbers("a")]).toEqual([-1, 0, 257]);
});

test("a rising column holds differences", () => {
  const { numbers } = unpack(block([["none", 0, 0, 0, false], ["time", 3, 1, 5, true]], [0, 1, 2]));
  expect([...numbers("time")]).toEqual([5, 11, 18]);
  expect([...numbers("none")]).toEqual([]);
});

test("nanoseconds of a day-long run stay exact", () => {
  const { numbers } = unpack(block([["time", 2, 6, 0, false]], [1, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 31]));
  expect([...numbers("time")]).toEqual([1, 0x1f_ff_ff_ff_ff_ff]);
});

test("a block lies in the page deflated, as base64", async () => {
  const bytes = new Blob([block([["a", 1, 1, 3, false]], [4]) as BlobPart]);
  const deflated = await new Response(bytes.stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer();
  const base64 = btoa(String.fromCharCode(...new Uint8Array(deflated)));
  const decoded = await decodeBlock(`\n${base64}\n`);
  expect(decoded.strings).toEqual(["é"]);
  expect([...decoded.numbers("a")]).toEqual([7]);
});
