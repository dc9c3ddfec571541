/** Round times for the ruler's marks. */

export interface Ticks {
  step: number;
  times: number[];
}

/** Times at a round distance, 1, 2 or 5 times a power of ten, that are at least `room` pixels apart. */
export function ticksOf(from: number, to: number, width: number, room: number): Ticks {
  const least = ((to - from) / width) * room;
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10);
  const times: number[] = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) times.push(time + 0); // no -0
  return { step, times };
}

/** A mark's text, with as many digits as tell it from its neighbours. */
export function tickText(time: number, step: number): string {
  const [unit, name] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 1e2 ? [1e3, "µs"] : [1, "ns"];
  const places = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
  const digits = { minimumFractionDigits: places, maximumFractionDigits: places };
  return `${(time / unit).toLocaleString("en-US", digits)} ${name}`;
}
