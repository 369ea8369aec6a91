// Asks for what was seen, and puts it in its place. One question at a time: the next one waits for
// the answer to the last.
import { Charts } from "/charts.js";
import { Table, make, setClass, setFacts, setList, setText } from "/parts.js";

const byId = (id) => document.getElementById(id);
const places = new Map();
let seen = 0;
let newest = 0;
let graph = null;

class Place {
  constructor(data) {
    this.id = data.id;
    this.kind = data.kind;
    this.tables = new Map();
    this.name = make("h2", { id: `${data.id}-name` });
    this.state = make("span");
    this.about = make("p", { class: "about" });
    this.trouble = make("ul", { class: "trouble" });
    this.facts = make("dl", { class: "facts" });
    this.details = make("div");
    this.charts = null;
    this.element = make("section", { id: data.id, "aria-labelledby": `${data.id}-name` },
      make("div", { class: "place-head" }, this.name, this.state), this.about, this.trouble, this.facts);
    if (data.has_chart) {
      this.charts = new Charts();
      this.element.append(this.charts.element);
    }
    this.element.append(this.details);
  }

  show(data, history) {
    setClass(this.element, `place card ${data.state}`);
    setText(this.name, data.name);
    setClass(this.state, `state ${data.state}`);
    setText(this.state, data.word);
    setText(this.about, `${data.path}: ${data.title}`);
    this.trouble.hidden = data.trouble.length === 0;
    setList(this.trouble, data.trouble, () => make("li"), setText);
    setFacts(this.facts, data.facts);
    if (this.charts) this.charts.add(history, data.summary);
    for (const table of data.tables) {
      if (!this.tables.has(table.name)) {
        const made = new Table(`${this.id}-${table.name}`, (bucket) => this.pick(bucket));
        this.tables.set(table.name, made);
        this.details.append(made.element);
      }
      this.tables.get(table.name).show(table);
    }
    const here = new Set(data.tables.map((table) => table.name));
    for (const [name, table] of this.tables) {
      if (!here.has(name)) {
        table.element.remove();
        this.tables.delete(name);
      }
    }
  }

  async pick(bucket) {
    this.charts.pick(bucket);
    if (bucket === null) this.charts.draw();
    else await this.follow();
  }

  // The line of the bucket that was picked, from where it is known.
  async follow() {
    const bucket = this.charts && this.charts.bucket;
    if (bucket === null) return;
    const after = Math.max(0, ...this.charts.picked.keys());
    const answer = await fetch(`/api/bucket?place=${this.id}&bucket=${bucket}&after=${after}`);
    if (answer.ok && bucket === this.charts.bucket) this.charts.addPicked(await answer.json());
  }
}

function show(data) {
  performance.mark("show");
  setText(byId("summary"), data.summary);
  setClass(byId("summary"), `state ${data.state}`);
  setText(byId("looked"), `Looked at ${new Date(data.at_us / 1e3).toLocaleTimeString()}`);
  document.title = data.state === "bad" || data.state === "warning" ? `! ${data.summary} - Trailmark` : "Trailmark";
  showAttention(data.places);
  for (const place of data.places) {
    const before = places.get(place.id);
    if (before?.kind !== place.kind) { // new, or of no known kind until now
      places.set(place.id, new Place(place));
      const { element } = places.get(place.id);
      if (before) before.element.replaceWith(element);
      else byId("places").append(element);
    }
    places.get(place.id).show(place, data.history[place.id]);
  }
  const here = new Set(data.places.map((place) => place.id));
  for (const [id, place] of places) {
    if (!here.has(id)) {
      place.element.remove();
      places.delete(id);
    }
  }
  showGraph(data);
  newest = Math.max(newest, ...Object.values(data.history).map((found) => found.at_us.at(-1) ?? 0));
  seen = data.number;
  performance.measure("shown", "show");
}

function showAttention(found) {
  const troubled = found.filter((place) => place.state === "bad" || place.state === "warning");
  byId("attention").hidden = troubled.length === 0;
  setList(byId("attention").querySelector("ul"), troubled, () => make("li", {}, make("a"), make("span")), (item, place) => {
    const [link, text] = item.children;
    link.href = `#${place.id}`;
    setText(link, place.name);
    setText(text, `: ${place.word}`);
  });
}

function showGraph(data) {
  graph = data;
  const known = new Map(data.places.map((place) => [place.id, place]));
  byId("flow").hidden = data.places.length < 2;
  const node = () => make("li", {}, make("a", {}, make("b"), make("span"), make("span", { class: "word" }), make("span", { class: "hidden-text" })));
  setList(byId("flow").querySelector(".layers"), data.layers, () => make("li", {}, make("ul")), (layer, ids) => {
    setList(layer.firstElementChild, ids, node, (item, id) => {
      const place = known.get(id);
      const link = item.firstElementChild;
      const sources = data.edges.filter((edge) => edge[1] === id).map((edge) => known.get(edge[0]).name);
      link.href = `#${id}`;
      link.dataset.place = id;
      setClass(link, `node ${place.state}`);
      setText(link.children[0], place.name);
      setText(link.children[1], place.kind);
      setText(link.children[2], place.word);
      setText(link.children[3], sources.length ? `reads ${sources.join(", ")}` : "reads nothing that is shown");
    });
  });
  drawEdges();
}

const SVG = "http://www.w3.org/2000/svg";

// Curves from each place to those that read it, wherever the cards have come to lie.
function drawEdges() {
  const svg = byId("flow").querySelector("svg");
  if (graph === null || byId("flow").hidden) return;
  const origin = svg.getBoundingClientRect();
  const isColumn = getComputedStyle(byId("flow").querySelector(".layers")).flexDirection === "column";
  const box = (id) => svg.parentElement.querySelector(`[data-place="${id}"]`).getBoundingClientRect();
  const paths = graph.edges.flatMap(([source, target]) => {
    const [from, to] = [box(source), box(target)];
    const [x1, y1] = isColumn ? [from.x + from.width / 2, from.bottom] : [from.right, from.y + from.height / 2];
    const [x2, y2] = isColumn ? [to.x + to.width / 2, to.top - 7] : [to.left - 7, to.y + to.height / 2];
    return curve(x1 - origin.x, y1 - origin.y, x2 - origin.x, y2 - origin.y, isColumn);
  });
  const create = () => document.createElementNS(SVG, "path");
  setList(svg, paths, create, (path, [shape, name]) => {
    path.setAttribute("d", shape);
    path.setAttribute("class", name);
  });
}

function curve(x1, y1, x2, y2, isColumn) {
  const bend = isColumn ? (y2 - y1) / 2 : (x2 - x1) / 2;
  const line = isColumn
    ? `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const tip = isColumn ? `M${x2 - 4} ${y2}h8l-4 7z` : `M${x2} ${y2 - 4}v8l7-4z`;
  return [[line, ""], [tip, "tip"]];
}

function showLost(text) {
  setText(byId("lost"), text);
  byId("lost").hidden = text === "";
}

// The token comes behind a #, which no browser sends, or from the form; the answer is a cookie.
async function enter(token) {
  const answer = await fetch("/api/now", { headers: { Authorization: `Bearer ${token}` } });
  if (answer.ok) {
    byId("enter").hidden = true;
    show(await answer.json());
  } else setText(byId("refused"), "This is not the token.");
  return answer.ok;
}

let given = null;

// It does not stay where it can be read over a shoulder, or kept among the pages that were seen.
function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found === null) return;
  given = found;
  history.replaceState(null, "", location.pathname);
}

async function ask() {
  takeToken();
  const answer = await fetch(`/api/now?seen=${seen}&after=${newest}`);
  if (answer.status === 401) {
    const token = given;
    given = null;
    if (token && (await enter(token))) return;
    byId("enter").hidden = false;
    return;
  }
  byId("enter").hidden = true;
  if (answer.status === 200) {
    const data = await answer.json();
    if (data.number < seen) location.reload(); // another server
    show(data);
    await Promise.all([...places.values()].map((place) => place.follow()));
    wait = data.interval_s * 1e3;
  }
  showLost("");
}

let wait = 1000;

async function goOn() {
  try {
    await ask();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // a TypeError is what fetch gives without a server
    showLost("The server of this page does not answer: what you see is old. It is asked again and again.");
  } finally {
    setTimeout(goOn, document.hidden ? Math.max(wait, 5000) : seen === 0 ? 300 : wait);
  }
}

byId("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(byId("token").value.trim());
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => places.forEach((place) => place.charts?.again()));
new ResizeObserver(drawEdges).observe(document.querySelector(".graph"));
goOn();
