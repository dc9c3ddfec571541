const FAN = 16;

/** Answers "where is the largest value of this range": each level holds the winners of blocks of 16 of the one below. */
export class Peaks {
  private readonly levels: Uint32Array[] = [];

  constructor(private readonly values: Float64Array) {
    let below = values.length;
    while (below > FAN) {
      const finer = this.levels.at(-1);
      const level = new Uint32Array(Math.ceil(below / FAN));
      for (let block = 0; block < level.length; block++) {
        const end = Math.min((block + 1) * FAN, below);
        let best = finer ? finer[block * FAN]! : block * FAN;
        for (let i = block * FAN + 1; i < end; i++) best = this.better(best, finer ? finer[i]! : i);
        level[block] = best;
      }
      this.levels.push(level);
      below = level.length;
    }
  }

  /** The index of the largest value in [first, last), the earliest of equals; `first` of an empty range. */
  at(first: number, last: number): number {
    let best = first;
    let level = -1;
    const take = (i: number) => (best = this.better(best, level < 0 ? i : this.levels[level]![i]!));
    while (first < last) {
      const isTop = level + 1 >= this.levels.length;
      while (first < last && (isTop || first % FAN !== 0)) take(first++);
      while (first < last && last % FAN !== 0) take(--last);
      first /= FAN;
      last /= FAN;
      level++;
    }
    return best;
  }

  private better(a: number, b: number): number {
    const difference = this.values[b]! - this.values[a]!;
    return difference > 0 || (difference === 0 && b < a) ? b : a;
  }
}
