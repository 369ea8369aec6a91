// Pieces of the page. Everything that comes from a log becomes text, never markup.

export function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// What is there already is left alone: a screen reader reads what changes, a reader's place stays.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

// Makes the children of an element those of a list, one by one.
export function setList(parent, items, create, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, at) => {
    if (at >= parent.children.length) parent.append(create(item));
    update(parent.children[at], item);
  });
}

const split = (cell) => (typeof cell === "string" ? [cell, ""] : cell);

export function setFacts(list, facts) {
  setList(list, facts, () => make("div", {}, make("dt"), make("dd")), (pair, [name, value]) => {
    const [text, state] = split(value);
    setText(pair.children[0], name);
    setText(pair.children[1], text);
    setClass(pair.children[1], state);
  });
}

const ROWS = 50; // shown at once, however many there are

// A table of one place, which remembers where its reader is in it.
export class Table {
  constructor(id, onPick) {
    this.page = 0;
    this.isOrdered = null;
    this.onPick = onPick;
    this.picked = null;
    this.title = make("h3", { id });
    this.range = make("span", { class: "muted" });
    this.order = make("button", { type: "button" });
    this.back = make("button", { type: "button", text: "Back" });
    this.next = make("button", { type: "button", text: "Next" });
    this.order.addEventListener("click", () => this.turn(() => { this.isOrdered = !this.isOrdered; this.page = 0; }));
    this.back.addEventListener("click", () => this.turn(() => { this.page -= 1; }));
    this.next.addEventListener("click", () => this.turn(() => { this.page += 1; }));
    this.head = make("tr");
    this.body = make("tbody");
    const table = make("table", { "aria-labelledby": id }, make("thead", {}, this.head), this.body);
    this.element = make("div", {},
      make("div", { class: "table-head" }, this.title, this.range, this.order, this.back, this.next),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": id }, table));
  }

  turn(change) {
    change();
    this.show(this.data);
  }

  show(data) {
    this.data = data;
    const many = data.rows.length > ROWS;
    if (this.isOrdered === null) this.isOrdered = many && data.order.length > 0;
    const places = this.isOrdered && data.order.length ? data.order : data.rows.map((_, at) => at);
    const last = Math.max(0, Math.ceil(places.length / ROWS) - 1);
    this.page = Math.min(Math.max(this.page, 0), last);
    const shown = places.slice(this.page * ROWS, (this.page + 1) * ROWS);
    setText(this.title, data.caption);
    setText(this.range, many ? `${this.page * ROWS + 1} to ${this.page * ROWS + shown.length}` : "");
    setText(this.order, this.isOrdered ? "By number" : "Longest recovery first");
    this.order.hidden = !data.order.length || places.length < 2;
    this.back.hidden = this.next.hidden = !many;
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
    setList(this.head, data.columns, () => make("th", { scope: "col" }), (cell, column) => {
      setText(cell, column[0]);
      setClass(cell, look(column));
    });
    setList(this.body, shown, () => make("tr"), (row, at) => this.showRow(row, data, data.rows[at]));
  }

  showRow(row, data, cells) {
    const create = (cell) => make(row.children.length ? "td" : "th");
    setList(row, cells, create, (cell, value) => {
      const at = Array.prototype.indexOf.call(row.children, cell);
      const [text, state] = split(value);
      setClass(cell, `${look(data.columns[at])} ${state}`.trim());
      if (at === 0) cell.scope = "row";
      if (at === 0 && data.picks) this.showPick(cell, text);
      else setText(cell, text);
    });
    setClass(row, data.picks && this.picked === cells[0] ? "picked" : "");
  }

  showPick(cell, text) {
    let button = cell.querySelector("button");
    if (button === null) {
      button = make("button", { type: "button" });
      button.addEventListener("click", () => {
        this.picked = this.picked === button.textContent ? null : button.textContent;
        this.show(this.data);
        this.onPick(this.picked);
      });
      cell.replaceChildren(button);
    }
    setText(button, text);
    button.setAttribute("aria-pressed", String(this.picked === text));
    button.setAttribute("aria-label", `Draw bucket ${text}`);
  }
}

const look = (column) => `${column[1] ? "number" : ""} ${column[2] ? "minor" : ""}`.trim();
