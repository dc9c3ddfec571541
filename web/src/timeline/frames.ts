/** One frame for all that is drawn: first everything moves, then what asked for it is drawn. */

export interface Drawn {
  /** Tells whether it is still moving. */
  advance(now: number): boolean;
  draw(): void;
}

export class Frames {
  private due = new Set<Drawn>();

  /** What moves may ask for others that move along. */
  ask(part: Drawn): void {
    if (!this.due.size) requestAnimationFrame((now) => this.frame(now));
    this.due.add(part);
  }

  private frame(now: number): void {
    const moving = [...this.due].filter((part) => part.advance(now));
    const parts = this.due;
    this.due = new Set();
    for (const part of parts) part.draw();
    for (const part of moving) this.ask(part);
  }
}
