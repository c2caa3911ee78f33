// Shows the progress of a download or import: a bar on a terminal, else a line every three seconds, with bytes, rate
// and time left. Writes to standard error.
import { Presets, SingleBar } from "cli-progress";

export interface Progress {
  /** What is going on; a new label starts a new count. */
  readonly label: string;
  readonly bytes: number;
  /** 0 where it is not known. */
  readonly total: number;
}

export interface ProgressSink {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

const lineEveryMs = 3000;

/** `report` may be called as often as bytes come; `end` leaves the cursor on a fresh line. */
export class ProgressPrinter {
  private label = "";
  private startedAt = 0;
  private startBytes = 0;
  private printedAt = 0;
  private last: Progress | null = null;
  private printed: Progress | null = null;
  private bar: SingleBar | null = null;

  constructor(
    private readonly sink: ProgressSink = process.stderr,
    private readonly now: () => number = Date.now,
  ) {}

  report(progress: Progress): void {
    if (progress.label !== this.label) this.begin(progress);
    this.last = progress;
    if (this.bar !== null) {
      this.bar.setTotal(progress.total);
      this.bar.update(progress.bytes, { status: this.status(progress) });
    } else if (this.now() - this.printedAt >= lineEveryMs) {
      this.printLine(progress);
    }
  }

  end(): void {
    if (this.bar !== null) this.bar.stop();
    else if (this.last !== null && this.last !== this.printed) this.printLine(this.last);
    this.bar = null;
    this.last = null;
    this.label = "";
  }

  private begin(progress: Progress): void {
    this.end();
    this.label = progress.label;
    this.startedAt = this.now();
    this.printedAt = this.now();
    // A resumed transfer starts with bytes that this run did not move.
    this.startBytes = progress.bytes;
    if (this.sink.isTTY !== true) return;
    const format = `${progress.label} {bar} {percentage}% {status}`;
    this.bar = new SingleBar({ format, hideCursor: true, stream: process.stderr }, Presets.shades_classic);
    this.bar.start(progress.total, progress.bytes, { status: "" });
  }

  private printLine(progress: Progress): void {
    this.printedAt = this.now();
    this.printed = progress;
    this.sink.write(`${progress.label}: ${this.status(progress)}\n`);
  }

  private status({ bytes, total }: Progress): string {
    const seconds = (this.now() - this.startedAt) / 1000;
    const rate = seconds > 0 ? (bytes - this.startBytes) / seconds : 0;
    if (total === 0) return `${megabytes(bytes)} MB in ${clock(seconds)}`;
    const amount = `${megabytes(bytes)} of ${megabytes(total)} MB`;
    if (bytes >= total) return `${amount} in ${clock(seconds)}`;
    return rate > 0 ? `${amount}, ${megabytes(rate)} MB/s, ${clock((total - bytes) / rate)} left` : amount;
  }
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(1);
}

/** Seconds as `m:ss`. */
function clock(seconds: number): string {
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
