// Draws one violation: the picture on a time line, the answers, the dependencies, the steps.
//
// In: the JSON of one violation. Out: elements under `root`.
// Always true: only what is in view is drawn, so ten thousand statements are as quick as ten;
// text of the traffic is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const LANE = 96, TOP = 26, BAR = 28, STEP = 24, BAR_MIN = 132, BAR_MAX = 340, CHAR = 6.95;
// A short story has room for whole statements.
const SHORT = 60;

const MEANING = {
  ww: "write, then write: the second replaced the first one's version, so the first came before.",
  wr: "write, then read: the second saw what the first wrote, so the first came before.",
  rw: "read, then write: the first read a version that the second then replaced, so the first did not see the second and must come before it.",
  "real-time": "real time: the first was finished before the second began.",
  session: "session: both ran in one session, in this order.",
};

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function oneLine(text) { return text.split(/\s+/).join(" ").trim(); }

function cut(text, room) { return text.length <= room ? text : room < 2 ? "" : text.slice(0, room - 1) + "…"; }

export function relative(at, origin) {
  if (at === null) return "never";
  const ms = (at - origin) / 1e6;
  return ms >= 10_000 ? `+${(ms / 1000).toFixed(2)} s` : `+${ms.toFixed(3)} ms`;
}

// Everything about one violation, from the most to the least urgent.
export function showStory(root, violation) {
  const chosen = new EventTarget();
  const model = lay(violation);
  root.replaceChildren(
    element("p", { class: "prose" }, violation.brief ?? violation.story),
    answers(violation),
    element("h2", { id: "picture" }, "What happened"),
    picture(violation, model, chosen),
    ...(violation.edges.length ? [element("h2", {}, "Why no order explains it"), edges(violation, chosen)] : []),
    ...(violation.initial.length ? [element("h2", {}, "It started from"),
      element("ul", { class: "initial" }, ...violation.initial.map((row) => element("li", {}, row)))] : []),
    element("h2", {}, "Every step, in the order it was sent"),
    rows(violation, model, chosen),
  );
}

// A trace without a verdict: the picture alone, a lane per session.
export function showTrace(root, trace) {
  root.replaceChildren(picture({ rule: "a trace", level: "", observed: `${trace.statements.length} statements`, ...trace }, lay(trace), new EventTarget()));
}

function answers(violation) {
  return element("div", { class: "answers" },
    element("div", { class: "observed" }, element("h3", {}, "✗ The database answered"), ...(violation.answers ?? [violation.observed]).map((answer) => element("p", {}, answer))),
    element("div", { class: "expected" }, element("h3", {}, violation.expected.length > 1 ? "✓ Any of these would have been right" : "✓ Right would have been"),
      element("ul", {}, ...violation.expected.map((right) => element("li", {}, right)))));
}

function edges(violation, chosen) {
  const name = (index) => violation.transactions[index]?.name ?? "?";
  const items = violation.edges.map((edge, index) => {
    const meaning = element("span", { class: "meaning", hidden: true }, MEANING[edge.kind] ?? "");
    const button = element("button", {
      "aria-expanded": "false", "data-edge": index,
      onclick: () => chosen.dispatchEvent(new CustomEvent("edge", { detail: { index, toggle: true } })),
    }, element("span", { class: "kind" }, `${name(edge.from)} ─${edge.kind}→ ${name(edge.to)}`),
      element("span", {}, element("span", { class: "why" }, edge.why), meaning));
    chosen.addEventListener("edge", ({ detail }) => {
      const open = detail.index === index && !(detail.toggle && button.getAttribute("aria-expanded") === "true");
      button.setAttribute("aria-expanded", String(open));
      meaning.hidden = !open;
    });
    return element("li", {}, button);
  });
  return element("ul", { class: "edges" }, ...items);
}

// Places of every instant in two scales: in order (readable) and in proportion to time.
function lay(violation) {
  const steps = violation.statements;
  const latest = Math.max(0, ...violation.transactions.map((t) => t.commit?.done ?? 0));
  let last = latest;
  for (const step of steps) last = Math.max(last, step.window.done ?? step.window.sent);
  let origin = Infinity;
  for (const step of steps) origin = Math.min(origin, step.window.sent);
  if (!Number.isFinite(origin)) origin = 0;
  const open = last + 1;
  const done = (step) => step.window.done ?? open;
  const instants = [...new Set(steps.flatMap((step) => [step.window.sent, done(step)]))].sort((a, b) => a - b);
  const index = new Map(instants.map((at, place) => [at, place]));
  const gaps = new Float64Array(instants.length).fill(STEP);
  if (gaps.length) gaps[0] = 14;
  const x = new Float64Array(instants.length);
  const enough = new Float64Array(instants.length);
  // A bar needs room for its words: whatever it lacks is put before its end.
  const ending = new Map();
  for (const step of steps) {
    if (step.act === "begin") continue;
    const end = index.get(done(step)), words = Math.max(oneLine(step.sql).length, step.answer.split("\n")[0].length + 2);
    const needs = steps.length > SHORT ? BAR_MIN : step.act === "statement" ? Math.min(BAR_MAX, Math.max(BAR_MIN, words * CHAR + 18)) : 92;
    ending.set(end, [...(ending.get(end) ?? []), [index.get(step.window.sent), needs]]);
  }
  for (let place = 0; place < instants.length; place++) {
    x[place] = (place ? x[place - 1] : 0) + gaps[place];
    for (const [start, needs] of ending.get(place) ?? []) enough[place] = Math.max(enough[place], x[start] + needs);
    x[place] = Math.max(x[place], enough[place]);
  }
  const span = Math.max(1, (instants.at(-1) ?? 1) - origin);
  const inOrder = (at) => x[index.get(at ?? open)] ?? 0;
  const width = (x.at(-1) ?? 0) + 60;
  const inTime = (at) => 14 + (((at ?? open) - origin) / span) * (width - 74);
  return { steps, origin, width, scales: { order: inOrder, time: inTime } };
}

function picture(violation, model, chosen) {
  const lanes = violation.transactions.length;
  const height = TOP + LANE * lanes + 8;
  const svg = drawn("svg", { class: "story", height, role: "img", "aria-label": `${violation.rule} at ${violation.level}: ${violation.observed}` });
  const room = element("div", { class: "picture-room" });
  const scroll = element("div", { class: "picture-scroll", tabindex: "0", role: "application", "aria-label": "Time line. Left and right move from step to step, plus and minus zoom." }, svg, room);
  const detail = element("div", { class: "detail", "aria-live": "polite" }, element("span", { class: "soft" }, "Choose a bar or an arrow to see what it means."));
  const view = { scale: "order", zoom: 1, step: null, edge: null };
  const where = (at) => model.scales[view.scale](at) * view.zoom;
  const total = () => model.width * view.zoom;
  let asked = false;

  function redraw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  }

  function paint() {
    room.style.width = `${total()}px`;
    const width = scroll.clientWidth, left = scroll.scrollLeft;
    svg.setAttribute("width", width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const parts = [tip()];
    for (let lane = 0; lane < lanes; lane++) {
      const y = TOP + LANE * lane + 32;
      parts.push(drawn("g", { class: `lane lane${lane % 5}` }, drawn("line", { x1: 0, x2: width, y1: y, y2: y })));
    }
    parts.push(...ticks(width, left));
    parts.push(...bars(width, left));
    violation.edges.forEach((edge, index) => { const made = arrow(edge, index, width, left); if (made) parts.push(made); });
    svg.replaceChildren(...parts);
  }

  function tip() {
    return drawn("defs", {}, drawn("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, drawn("path", { class: "tip", d: "M0 0L8 4L0 8z" })));
  }

  function ticks(width, left) {
    if (view.scale !== "time") return [drawn("text", { class: "note", x: 8, y: 15 }, "time runs to the right; distances are not to scale")];
    const span = (model.width - 74) * view.zoom, total = (model.steps.length ? Math.max(...[model.steps.at(-1)].map((s) => s.window.done ?? s.window.sent)) - model.origin : 1) || 1;
    const nice = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11].flatMap((n) => [n, 2 * n, 5 * n]).find((n) => (n / total) * span > 110) ?? 1e12;
    const made = [];
    for (let at = 0; at <= total * 1.05; at += nice) {
      const x = 14 * view.zoom + (at / total) * span - left;
      if (x < -80 || x > width) continue;
      made.push(drawn("line", { class: "tick", x1: x, x2: x, y1: TOP - 6, y2: height }), drawn("text", { class: "note", x: x + 4, y: 15 }, relative(at, 0)));
    }
    return made;
  }

  // Bars too narrow to tell apart become one run, so the number of shapes is bounded by the pixels.
  function bars(width, left) {
    const made = [], runs = new Map();
    const flush = (lane) => {
      const run = runs.get(lane);
      if (!run) return;
      runs.delete(lane);
      made.push(drawn("g", { class: `lane${lane % 5}` }, drawn("rect", { class: "run", x: run.from, y: TOP + LANE * lane + 18, width: Math.max(1, run.to - run.from), height: BAR })));
      for (const x of run.wrong) made.push(drawn("rect", { class: "run culprit", x: x - 1, y: TOP + LANE * lane + 12, width: 3, height: BAR + 12 }));
    };
    const snapshots = firsts();
    model.steps.forEach((step, index) => {
      const from = where(step.window.sent) - left, to = where(step.window.done) - left;
      if (to < -40 || from > width + 40) return;
      const y = TOP + LANE * step.transaction + 18, lane = step.transaction;
      if (step.act === "begin") { if (view.zoom > 0.2) made.push(drawn("line", { class: "begin", x1: from - 3, x2: from - 3, y1: y - 6, y2: y + BAR + 6 })); return; }
      if (to - from < 4 && view.step !== index) {
        const run = runs.get(lane);
        if (run && from - run.to < 2) { run.to = Math.max(run.to, to); if (step.culprit) run.wrong.push(from); }
        else { flush(lane); runs.set(lane, { from, to, wrong: step.culprit ? [from] : [] }); }
        return;
      }
      made.push(bar(step, index, from, to, y, snapshots.has(index)));
    });
    for (const lane of [...runs.keys()]) flush(lane);
    return made;
  }

  function bar(step, index, from, to, y, takesSnapshot) {
    const classes = ["bar", step.act, `lane${step.transaction % 5}`];
    if (step.culprit) classes.push("culprit");
    if (step.window.done === null) classes.push("open");
    if (view.step === index) classes.push("chosen");
    // Words stay in view while their bar is.
    const left = Math.max(from, 0), space = Math.floor((to - left - 14) / CHAR), words = oneLine(step.sql);
    const group = drawn("g", { class: classes.join(" "), "data-step": index },
      drawn("title", {}, `${words}\n${step.answer}`),
      drawn("rect", { x: from, y, width: Math.max(2, to - from), height: BAR, rx: 5 }));
    if (space > 2) group.append(drawn("text", { x: left + 8, y: y + 18 }, cut(words, space)));
    // A point lies somewhere in its window: a line from end to end, and the mark in the middle.
    if (step.act === "commit" && to - from > 14) group.append(drawn("line", { class: "reach", x1: from, x2: to, y1: y - 8, y2: y - 8 }), diamond((from + to) / 2, y - 8));
    // One statement alone: its commit lies in the same window, after its snapshot.
    const ended = violation.transactions[step.transaction].commit, alone = step.act === "statement" && ended && ended.sent < (step.window.done ?? Infinity) && violation.transactions[step.transaction].committed === true;
    if (alone && to - from > 60) group.append(diamond(from + (to - from) * 0.7, y - 8));
    if (takesSnapshot) group.append(drawn("line", { class: "reach", x1: from, x2: to, y1: y - 8, y2: y - 8 }), drawn("circle", { class: "snapshot", cx: from + (to - from) * (alone ? 0.3 : 0.5), cy: y - 8, r: 3.4 }));
    // COMMIT is answered by COMMIT: nothing to see.
    const answer = step.act === "statement" ? step.answer.split("\n")[0] : "";
    if (answer && space > 2) group.append(drawn("text", { class: "answer", x: left + 8, y: y + 46 }, cut(`${step.culprit ? "✗" : "→"} ${answer}${step.answer.includes("\n") ? " …" : ""}`, space)));
    group.addEventListener("click", () => choose(index));
    return group;
  }

  function diamond(x, y) { return drawn("path", { class: "point", d: `M${x} ${y - 5}l5 5l-5 5l-5 -5z` }); }

  // Which statements take a snapshot: every one under READ COMMITTED, else the first.
  function firsts() {
    const seen = new Set(), out = new Set();
    model.steps.forEach((step, index) => {
      if (step.act !== "statement") return;
      const level = violation.transactions[step.transaction].level;
      if (level === "read-committed" || level === "rc" || !seen.has(step.transaction)) out.add(index);
      seen.add(step.transaction);
    });
    return out;
  }

  // A dependency starts and ends at the statement that read, and at the commit of who wrote.
  function ends(edge) {
    const reading = violation.transactions[edge.kind === "rw" ? edge.from : edge.to], sent = edge.read === null || edge.read === undefined ? null : reading?.reads?.[edge.read];
    const anchor = (transaction, reads) => {
      const own = model.steps.filter((step) => step.transaction === transaction && step.act !== "begin");
      const step = reads ? own.find((s) => s.window.sent === sent) ?? own.find((s) => s.culprit) ?? own[0] : own.find((s) => s.act === "commit") ?? own.at(-1);
      return step ? (where(step.window.sent) + where(step.window.done)) / 2 : null;
    };
    return [anchor(edge.from, edge.kind === "rw"), anchor(edge.to, edge.kind === "wr")];
  }

  function arrow(edge, index, width, left) {
    const [start, end] = ends(edge);
    if (start === null || end === null) return null;
    const shift = (index - (violation.edges.length - 1) / 2) * (violation.edges.length > 2 ? 38 : 18);
    const x1 = start - left + shift, x2 = end - left + shift;
    if (Math.max(x1, x2) < -60 || Math.min(x1, x2) > width + 60) return null;
    const middle = (lane) => TOP + LANE * lane + 32, down = edge.to > edge.from ? 1 : -1;
    const y1 = middle(edge.from) + down * 15, y2 = middle(edge.to) - down * 17, bend = (y2 - y1) / 2;
    const d = `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    const at = 0.5 + (index % 3 - 1) * 0.24;
    const lx = x1 + (x2 - x1) * at, ly = y1 + (y2 - y1) * at, wide = 14 + edge.kind.length * 7;
    const classes = ["edge", edge.kind];
    if (view.edge === index) classes.push("chosen"); else if (view.edge !== null) classes.push("faded");
    const group = drawn("g", { class: classes.join(" "), "data-edge": index }, drawn("title", {}, edge.why),
      drawn("path", { class: "hit", d }), drawn("path", { class: "line", d, "marker-end": "url(#tip)" }),
      drawn("rect", { x: lx - wide / 2, y: ly - 9, width: wide, height: 18, rx: 9 }),
      drawn("text", { x: lx, y: ly + 4, "text-anchor": "middle" }, edge.kind));
    group.addEventListener("click", () => chosen.dispatchEvent(new CustomEvent("edge", { detail: { index } })));
    return group;
  }

  function choose(index) { chosen.dispatchEvent(new CustomEvent("step", { detail: { index } })); }

  function reveal(from, to) {
    const left = scroll.scrollLeft, width = scroll.clientWidth;
    if (from < left + 20) scroll.scrollLeft = Math.max(0, from - 60);
    else if (to > left + width - 20) scroll.scrollLeft = Math.min(from - 60, to - width + 80);
  }

  chosen.addEventListener("step", ({ detail: { index } }) => {
    const step = model.steps[index], who = violation.transactions[step.transaction];
    view.step = index; view.edge = null;
    reveal(where(step.window.sent), where(step.window.done));
    detail.replaceChildren(...explainStep(step, who, model.origin, index, model.steps.length));
    redraw();
  });
  chosen.addEventListener("edge", ({ detail: { index, toggle } }) => {
    const edge = violation.edges[index];
    if (toggle && view.edge === index) { view.edge = null; redraw(); return; }
    view.edge = index; view.step = null;
    const [start, end] = ends(edge);
    if (start !== null && end !== null) reveal(Math.min(start, end) - 40, Math.max(start, end) + 40);
    const name = (i) => violation.transactions[i]?.name ?? "?";
    const reader = edge.kind === "rw" ? edge.from : edge.to, sent = violation.transactions[reader]?.reads?.[edge.read];
    const read = ["rw", "wr"].includes(edge.kind) ? model.steps.find((step) => step.transaction === reader && step.act === "statement" && step.window.sent === sent) : null;
    detail.replaceChildren(element("b", {}, `${name(edge.from)} must come before ${name(edge.to)}`), element("p", {}, edge.why),
      ...(read ? [element("span", { class: "soft" }, `${name(reader)} read it here, ${relative(read.window.sent, model.origin)}:`), element("pre", {}, `${filled(read)}\n→ ${read.answer}`)] : []),
      element("span", { class: "soft" }, MEANING[edge.kind] ?? ""));
    redraw();
  });

  function zoom(factor, around = scroll.clientWidth / 2) {
    const least = Math.min(1, scroll.clientWidth / model.width);
    const next = Math.min(40, Math.max(least, view.zoom * factor));
    const keep = (scroll.scrollLeft + around) / view.zoom;
    view.zoom = next;
    room.style.width = `${total()}px`;
    scroll.scrollLeft = keep * next - around;
    redraw();
  }

  scroll.addEventListener("scroll", redraw, { passive: true });
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, event.clientX - scroll.getBoundingClientRect().left);
  }, { passive: false });
  scroll.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move) {
      event.preventDefault();
      let next = view.step === null ? (move > 0 ? 0 : model.steps.length - 1) : view.step + move;
      next = Math.min(model.steps.length - 1, Math.max(0, next));
      choose(next);
    } else if (event.key === "+" || event.key === "=") zoom(1.4);
    else if (event.key === "-") zoom(1 / 1.4);
    else if (event.key === "0") zoom(0.0001);
  });
  // At first the whole story, as long as its words can be read, and the wrong answer in view.
  let fitted = false;
  new ResizeObserver(() => {
    if (!fitted && scroll.clientWidth > 0) {
      fitted = true;
      if (model.steps.length <= SHORT) view.zoom = Math.min(1, Math.max(0.55, scroll.clientWidth / model.width));
      room.style.width = `${total()}px`;
      const first = model.steps.find((step) => step.culprit);
      if (first) reveal(where(first.window.sent), where(first.window.done));
    }
    redraw();
  }).observe(scroll);

  const inOrder = element("button", { "aria-pressed": "true", onclick: () => scale("order") }, "In order");
  const inTime = element("button", { "aria-pressed": "false", onclick: () => scale("time") }, "To scale");
  function scale(name) {
    view.scale = name;
    inOrder.setAttribute("aria-pressed", String(name === "order"));
    inTime.setAttribute("aria-pressed", String(name === "time"));
    redraw();
  }
  const wrong = model.steps.findIndex((step) => step.culprit);
  const tools = element("div", { class: "picture-tools" }, inOrder, inTime,
    element("button", { onclick: () => zoom(1.5), "aria-label": "Zoom in" }, "+"),
    element("button", { onclick: () => zoom(1 / 1.5), "aria-label": "Zoom out" }, "−"),
    element("button", { onclick: () => zoom(0.0001) }, "Whole story"),
    wrong >= 0 ? element("button", { onclick: () => { if (view.zoom < 1) zoom(1 / view.zoom); choose(wrong); } }, "✗ Wrong answer") : null,
    element("span", { class: "hint" }, "← → step by step · + − zoom"));
  const names = element("div", { class: "picture-names" }, ...violation.transactions.map((t, lane) =>
    element("div", { class: `lane${lane % 5}` }, element("b", {}, t.name), `session ${t.session}`, element("br"), t.level, ...("committed" in t ? [element("br"), fate(t.committed)] : []))));
  const legend = element("div", { class: "legend" },
    element("span", {}, element("i", { class: "statement" }), "statement, from sent to answered"),
    element("span", {}, element("i", { class: "commit" }), "commit"),
    element("span", {}, element("i", { class: "diamond" }), "became visible at some instant in this window"),
    element("span", {}, element("i", { class: "ring" }), "took its snapshot at some instant in this window"),
    element("span", {}, element("i", { class: "wrong" }), "no correct database answers this"));
  return element("div", { class: "picture" }, tools, element("div", { class: "picture-body" }, names, scroll), detail, legend);
}

// A statement with its parameters.
function filled(step) { return step.parameters.length ? `${step.sql}\n[${step.parameters.join(", ")}]` : step.sql; }

function fate(committed) { return committed === true ? "committed" : committed === false ? "rolled back" : "outcome unknown"; }

function explainStep(step, who, origin, index, count) {
  const window = `sent ${relative(step.window.sent, origin)}, answered ${relative(step.window.done, origin)}`;
  const parts = [element("span", { class: "soft" }, `step ${index + 1} of ${count} · ${who.name}, session ${who.session} · ${window}`), element("pre", {}, step.sql)];
  if (step.parameters.length) parts.push(element("div", { class: "soft" }, step.parameters.map((value, n) => `$${n + 1} = ${value}`).join(", ")));
  if (step.answer) parts.push(element("pre", {}, `${step.culprit ? "✗" : "→"} ${step.answer}`));
  if (step.culprit) parts.push(element("b", {}, "No correct database gives this answer here."));
  if (step.act === "commit") parts.push(element("span", { class: "soft" }, "The transaction became visible to others at some instant inside this window."));
  return parts;
}

// The list of steps; beyond a few hundred only the rows in view exist.
function rows(violation, model, chosen) {
  // On a narrow screen the statement and its answer have a line each.
  const narrow = matchMedia("(max-width: 640px)"), tall = () => (narrow.matches ? 74 : 30);
  const virtual = model.steps.length > 200;
  const box = element("div", { class: virtual ? "rows virtual" : "rows", tabindex: virtual ? "0" : null });
  let marked = null;
  const row = (step, index) => {
    const who = violation.transactions[step.transaction];
    const made = element("button", { class: `row${step.culprit ? " culprit" : ""}${marked === index ? " chosen" : ""}`, "data-row": index,
      onclick: () => chosen.dispatchEvent(new CustomEvent("step", { detail: { index } })) },
      element("span", { class: "when" }, relative(step.window.sent, model.origin)),
      element("span", { class: `who lane${step.transaction % 5}` }, who.name),
      element("span", { class: "sql", title: step.sql }, oneLine(step.sql) + (step.parameters.length ? `  [${step.parameters.join(", ")}]` : "")),
      element("span", { class: "answer" }, step.answer && step.act === "statement" ? `${step.culprit ? "✗" : "→"} ${oneLine(step.answer)}` : ""));
    if (virtual) made.style.top = `${index * tall()}px`;
    return made;
  };
  if (!virtual) {
    box.append(...model.steps.map(row));
  } else {
    const space = element("div");
    const fill = () => {
      const each = tall();
      space.style.height = `${model.steps.length * each}px`;
      const first = Math.max(0, Math.floor(box.scrollTop / each) - 5);
      const last = Math.min(model.steps.length, first + Math.ceil((box.clientHeight || 420) / each) + 10);
      box.replaceChildren(space, ...model.steps.slice(first, last).map((step, n) => row(step, first + n)));
    };
    let asked = false;
    box.addEventListener("scroll", () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; fill(); }); } }, { passive: true });
    chosen.addEventListener("refill", fill);
    narrow.addEventListener("change", fill);
    fill();
  }
  chosen.addEventListener("step", ({ detail: { index } }) => {
    marked = index;
    if (virtual) {
      const each = tall();
      if (index * each < box.scrollTop || (index + 1) * each > box.scrollTop + box.clientHeight) box.scrollTop = (index - 3) * each;
      chosen.dispatchEvent(new Event("refill"));
    } else {
      for (const made of box.children) made.classList.toggle("chosen", Number(made.dataset.row) === index);
    }
  });
  return box;
}
