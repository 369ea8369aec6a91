// Lines over the last hour, drawn by uPlot. What they show is also said in words, beside them.
import { make, setText } from "/parts.js";

const HOUR = 3600e6;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function duration(us) {
  if (us === null || us === undefined) return "-";
  if (us === 0) return "0";
  if (us < 1e3) return `${Math.round(us)} us`;
  if (us < 1e6) return `${+(us / 1e3).toPrecision(3)} ms`;
  if (us < 6e7) return `${+(us / 1e6).toPrecision(3)} s`;
  return `${+(us / 6e7).toPrecision(3)} min`;
}

const number = (value) => (value === null || value === undefined ? "-" : Intl.NumberFormat("en").format(value));

class Chart {
  constructor(title, lines, format) {
    this.lines = lines;
    this.format = format;
    this.heading = make("h3", { text: title });
    this.plot = make("div", { class: "plot", "aria-hidden": "true" });
    this.caption = make("figcaption");
    this.element = make("figure", {}, this.heading, this.plot, this.caption);
    this.drawn = null;
  }

  draw(data) {
    this.data = data;
    if (this.plot.clientWidth === 0) return;
    if (this.drawn === null) this.drawn = new uPlot(this.options(), data, this.plot);
    else this.drawn.setData(data);
  }

  // After a change of colours or of lines.
  again() {
    if (this.drawn !== null) this.drawn.destroy();
    this.drawn = null;
    if (this.data) this.draw(this.data);
  }

  fit() {
    const width = this.plot.clientWidth;
    if (this.drawn !== null && width && width !== this.drawn.width) this.drawn.setSize({ width, height: 190 });
    else if (this.drawn === null && this.data) this.draw(this.data);
  }

  options() {
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const values = (_, splits) => splits.map(this.format);
    return {
      width: this.plot.clientWidth,
      height: 190,
      legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.15 : 1] } },
      axes: [{ ...axis, values: [[1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]], space: 80, size: 28 }, { ...axis, size: 64, values }],
      series: [{}, ...this.lines.map((line) => ({
        stroke: css(line.colour), width: 2, dash: line.dash, fill: line.fill && css(line.fill),
        points: { show: (chart) => chart.data[0].length < 3 },
      }))],
    };
  }
}

// The charts of one operator: what a recovery would take, and how much comes in.
export class Charts {
  constructor() {
    this.recovery = new Chart("Predicted recovery", [
      { colour: "--accent", fill: "--accent-soft" }, { colour: "--objective", dash: [6, 4] }, { colour: "--picked" },
    ], duration);
    this.rate = new Chart("Throughput", [{ colour: "--accent", fill: "--accent-soft" }], number);
    this.words = make("span");
    this.pickedWords = make("span");
    this.pickedKey = make("span", { class: "key picked", hidden: "" });
    this.recovery.caption.append(
      make("span", { class: "key" }), "longest of all buckets", make("span", { class: "key objective" }), "objective",
      this.pickedKey, this.pickedWords, make("br"), this.words);
    this.element = make("div", { class: "charts" }, this.recovery.element, this.rate.element);
    this.history = { at_us: [], predicted_us: [], objective_us: [], rate: [] };
    this.picked = new Map();
    this.bucket = null;
    new ResizeObserver(() => { this.recovery.fit(); this.rate.fit(); }).observe(this.element);
  }

  add(found, summary) {
    const history = this.history;
    const last = history.at_us.at(-1) ?? 0;
    found.at_us.forEach((at, place) => {
      if (at <= last) return;
      for (const name of Object.keys(history)) history[name].push(found[name][place]);
    });
    const start = history.at_us.findIndex((at) => at > (history.at_us.at(-1) ?? 0) - HOUR);
    if (start > 0) for (const name of Object.keys(history)) history[name].splice(0, start);
    setText(this.words, summary);
    const now = history.rate.findLast((value) => value !== null);
    setText(this.rate.caption, now === undefined ? "Not known yet." : `Now ${number(Math.round(now))} tuples per second, at most ${number(Math.round(Math.max(...history.rate)))}.`);
    this.draw();
  }

  pick(bucket) {
    this.bucket = bucket;
    this.picked.clear();
    this.pickedKey.hidden = bucket === null;
    setText(this.pickedWords, bucket === null ? "" : `bucket ${bucket}`);
  }

  addPicked(found) {
    found.at_us.forEach((at, place) => this.picked.set(at, found.predicted_us[place]));
    const start = (found.at_us.at(-1) ?? 0) - HOUR;
    for (const at of this.picked.keys()) {
      if (at > start) break; // the oldest come first
      this.picked.delete(at);
    }
    const now = found.predicted_us.at(-1);
    if (now !== undefined) setText(this.pickedWords, `bucket ${this.bucket}, now ${duration(now)}`);
    this.draw();
  }

  draw() {
    const { at_us, predicted_us, objective_us, rate } = this.history;
    const seconds = at_us.map((at) => at / 1e6);
    this.recovery.draw([seconds, predicted_us, objective_us, at_us.map((at) => this.picked.get(at) ?? null)]);
    this.rate.draw([seconds, rate]);
  }

  again() {
    this.recovery.again();
    this.rate.again();
  }
}
