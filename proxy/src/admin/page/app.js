// The page: which part of it is shown, and what keeps it up to date.
//
// In: the API of this address. Out: the page. Polls numbers once a second; asks for recorded data only
// when it is looked at, because every such read is logged.

import { ask, download } from "./ask.js";
import { element, showStory } from "./story.js";
import { editorPage } from "./editor.js";
import { plot } from "./plot.js";
import { prose } from "./prose.js";
import { count, duration, percent, rate, when } from "./words.js";

const main = document.getElementById("content");
const state = { live: null, samples: [], since: 0, leave: null };

const PAGES = [
  [/^#\/violations\/(.+)$/, "violations", violationPage],
  [/^#\/violations$/, "violations", violationsPage],
  [/^#\/coverage$/, "coverage", coveragePage],
  [/^#\/runbooks\/([\w-]+)$/, "runbook", runbookPage],
  [/^#\/editor(?:\/(.*))?$/, "editor", editorPage],
  [/^/, "overview", overviewPage],
];

async function route() {
  const hash = location.hash || "#/";
  const [pattern, name, page] = PAGES.find(([pattern]) => pattern.test(hash));
  state.leave?.abort();
  state.leave = new AbortController();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const root = element("div");
  main.replaceChildren(root);
  window.scrollTo(0, 0);
  try {
    await page(root, hash.match(pattern)[1], state.leave.signal);
  } catch (error) {
    root.replaceChildren(element("p", { class: "empty" }, `This could not be read: ${error.message}`));
  }
}

async function poll() {
  const badge = document.getElementById("state");
  try {
    const live = await ask(`/api/live?since=${state.since}`);
    state.live = live;
    state.samples = [...state.samples, ...live.samples].slice(-900);
    state.since = state.samples.at(-1)?.number ?? 0;
    badge.textContent = live.draining ? "draining" : live.ready ? "live" : "not ready";
    badge.className = `badge ${live.ready ? "right" : "warn"}`;
    const shown = document.getElementById("count");
    shown.hidden = live.distinct_violations === 0;
    shown.textContent = live.distinct_violations;
    document.title = live.distinct_violations ? `(${live.distinct_violations}) pgassay` : "pgassay";
    main.dispatchEvent(new Event("live"));
  } catch (error) {
    badge.textContent = "not reachable";
    badge.className = "badge wrong";
    state.since = 0;
    state.samples = [];
  }
  setTimeout(poll, document.hidden ? 5000 : 1000);
}

// ---------------------------------------------------------------------------------------- overview

async function overviewPage(root, _, signal) {
  const verdict = element("div"), notes = element("ul", { class: "notes" }), plots = element("div", { class: "plots" });
  const facts = element("dl", { class: "facts" }), latest = element("div");
  root.append(verdict, notes, plots, facts, latest);
  let known = -1;
  const show = async () => {
    const live = state.live;
    if (!live) return;
    verdict.replaceChildren(verdictOf(live));
    const said = notesOf(live);
    notes.hidden = said.length === 0;
    notes.replaceChildren(...said.map((note) => element("li", {}, note)));
    plots.replaceChildren(...plotsOf(live));
    facts.replaceChildren(...factsOf(live));
    if (known !== live.violations) {
      known = live.violations;
      const list = live.violations ? await ask("/api/violations") : [];
      latest.replaceChildren(...(list.length ? [element("h2", {}, "Latest violations"), cards(list.slice(0, 5))] : []));
    }
  };
  main.addEventListener("live", show, { signal });
  await show();
}

function verdictOf(live) {
  const { checked, partial, unchecked } = live.coverage, judged = checked + partial + unchecked;
  const say = (kind, mark, title, text, link) => element("div", { class: `verdict ${kind}` }, element("span", { class: "mark", "aria-hidden": "true" }, mark),
    element("div", {}, element("h1", {}, title), element("p", {}, text)), link ?? null);
  const share = judged ? `${percent(checked / judged)} of the statements were checked whole.` : "";
  if (live.violations > 0) {
    const kinds = live.distinct_violations;
    return say("wrong", "✗", kinds === 1 ? "The database gave an answer that no correct database gives" : `${kinds} stories that no correct database explains`,
      `${count(live.violations)} ${live.violations === 1 ? "violation" : "violations"} since ${when(live.started_at)}. ${share}`,
      element("a", { class: "button", href: "#/violations" }, "See what happened"));
  }
  if (live.record_only) return say("warn", "!", "Recording without auditing", "No answer is judged: record_only is set.");
  if (judged === 0) return say("warn", "…", "Nothing has been judged yet", live.statements ? `${count(live.statements)} statements were witnessed.` : "No statement has passed yet.");
  if (checked / judged < 0.5) return say("warn", "!", "Nothing wrong, but most of the traffic was not checked", share, element("a", { class: "button", href: "#/coverage" }, "See why"));
  return say("right", "✓", "Every checked answer was right", `${share} ${count(live.transactions)} transactions since ${when(live.started_at)}.`);
}

function notesOf(live) {
  const notes = [];
  if (!live.ready && !live.draining) notes.push("The database could not be reached when last tried.");
  if (live.draining) notes.push("The proxy is draining: it waits for open sessions and takes no new ones.");
  if (live.claim) notes.push(`Every transaction is judged as ${live.claim}, whatever it asked for (audit.claim).`);
  if (live.side_connection_up === 0) notes.push("The side connection is down: tables are learned from the traffic alone and outside writers go unnoticed.");
  if (live.gaps > 0) notes.push(`${count(live.gaps)} ${live.gaps === 1 ? "hole" : "holes"} in the recording: what happened there is unknown.`);
  if (live.shed > 0) notes.push(`${count(live.shed)} records were dropped before the audit because it could not keep up.`);
  if (live.audit_panics > 0) notes.push(`The audit crashed ${live.audit_panics === 1 ? "once" : `${count(live.audit_panics)} times`} and went on; what it was at is not judged.`);
  if (live.journal_errors > 0) notes.push(`${count(live.journal_errors)} writes of the journal failed: is the disk full?`);
  if (live.lag_seconds > 30) notes.push(`The audit is ${duration(live.lag_seconds)} behind the traffic.`);
  return notes;
}

function plotsOf(live) {
  const samples = state.samples, per = (name) => samples.map((s) => (s.seconds > 0 ? s[name] / s.seconds : 0));
  const judged = samples.map((s) => { const all = s.checked + s.partial + s.unchecked; return all ? s.checked / all : null; });
  const all = live.coverage.checked + live.coverage.partial + live.coverage.unchecked;
  const last = samples.at(-1), recent = (values) => values.length ? values.slice(-5).reduce((a, b) => a + b, 0) / Math.min(5, values.length) : 0;
  const statements = per("statements"), transactions = per("transactions");
  return [
    plot({ title: "Throughput", figure: rate(recent(statements)), unit: "statements/s", a: statements, b: transactions, names: ["statements", "transactions"], label: rate }),
    plot({ title: "Added latency", figure: duration(last?.added_p99_seconds ?? 0), unit: "p99", a: samples.map((s) => s.added_p99_seconds), b: samples.map((s) => s.added_p50_seconds), names: ["p99", "p50"], label: duration }),
    plot({ title: "Audit lag", figure: duration(live.lag_seconds), unit: `${count(live.queue)} waiting`, a: samples.map((s) => s.lag_seconds), label: duration }),
    plot({ title: "Checked whole", figure: all ? percent(live.coverage.checked / all) : "–", unit: "of statements", a: judged, label: percent, most: 1 }),
  ];
}

function factsOf(live) {
  const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
  return [
    fact("Transactions", count(live.transactions)), fact("Statements", count(live.statements)), fact("Connections open", count(live.connections_open)),
    fact("Row versions held", count(live.versions_alive)), fact("Gaps", count(live.gaps)), fact("Profile", live.profile),
    fact("Listening on", live.listen.join(", ")), fact("Running since", when(live.started_at)), fact("Version", live.version),
  ];
}

// -------------------------------------------------------------------------------------- violations

function cards(list) {
  return element("ul", { class: "cards" }, ...list.map((v) => element("li", {}, element("a", { href: `#/violations/${encodeURIComponent(v.id)}` },
    element("span", {}, element("span", { class: "rule" }, words(v.rule)), element("span", { class: "soft" }, ` at ${v.level}`)),
    element("span", { class: "when" }, when(v.at)), element("span", { class: "seen" }, ...v.answers.map((answer) => element("span", {}, answer))),
    element("span", { class: "more" }, `${v.transactions} transactions${v.repeats ? ` · seen ${count(v.repeats + 1)} times` : ""}`)))));
}

function words(rule) { const text = rule.replaceAll("_", " "); return text[0].toUpperCase() + text.slice(1); }

async function violationsPage(root, _, signal) {
  const list = element("div"), rules = element("select", { "aria-label": "Rule" }), levels = element("select", { "aria-label": "Level" });
  root.append(element("h1", {}, "Violations"), element("p", { class: "soft" }, "Answers that no correct database could have given, each confirmed by a second decider. The newest first."),
    element("div", { class: "filters" }, rules, levels), list);
  let known = -1, found = [];
  const options = (select, values, all) => {
    const chosen = select.value;
    select.replaceChildren(element("option", { value: "" }, all), ...[...new Set(values)].sort().map((v) => element("option", { value: v }, v)));
    select.value = [...select.options].some((o) => o.value === chosen) ? chosen : "";
  };
  const show = () => {
    const shown = found.filter((v) => (!rules.value || v.rule === rules.value) && (!levels.value || v.level === levels.value));
    const quiet = element("p", { class: "empty" }, found.length ? "None of this kind." : "No violation so far. See Coverage for how much of the traffic this says something about.");
    list.replaceChildren(shown.length ? cards(shown.slice(0, 500)) : quiet);
    if (shown.length > 500) list.append(element("p", { class: "soft" }, `${count(shown.length - 500)} older ones are at /api/violations.`));
  };
  const refresh = async () => {
    if (known === (state.live?.violations ?? 0)) return;
    known = state.live?.violations ?? 0;
    found = await ask("/api/violations");
    options(rules, found.map((v) => v.rule), "every rule");
    options(levels, found.map((v) => v.level), "every level");
    show();
  };
  rules.addEventListener("change", show);
  levels.addEventListener("change", show);
  main.addEventListener("live", refresh, { signal });
  await refresh();
}

async function violationPage(root, id) {
  const violation = await ask(`/api/violations/${id}`);
  const story = element("div");
  const files = [["json", "JSON"], ["html", "HTML report"], ["svg", "Picture"], ["script", "Replay script"], ["spec", "isolationtester .spec"], ["text", "Text"], ["trace", "Trace cut"]];
  root.append(
    element("p", { class: "crumbs" }, element("a", { href: "#/violations" }, "← All violations")),
    element("h1", {}, `${words(violation.rule)} `, element("span", { class: "soft" }, `at ${violation.level}`)),
    element("p", { class: "meta" }, element("b", {}, violation.summary ?? "")),
    element("div", { class: "meta" }, element("span", {}, when(violation.at)), element("code", {}, violation.id),
      violation.repeats ? element("span", {}, `the same seen ${count(violation.repeats)} more ${violation.repeats === 1 ? "time" : "times"}`) : null,
      violation.source ? element("span", {}, `the term: ${violation.source}`) : null),
    element("div", { class: "downloads", role: "group", "aria-label": "Downloads" }, element("span", { class: "soft" }, "Take it with you:"),
      ...files.map(([kind, name]) => element("button", { "data-download": kind, onclick: (event) => take(event.target, violation.id, kind) }, `↓ ${name}`))),
    story, runbook(violation.rule));
  showStory(story, violation);
}

async function take(button, id, kind) {
  try { await download(id, kind); } catch (error) { button.disabled = true; button.title = error.message; button.textContent = `${button.textContent.slice(2)}: ${error.message}`; }
}

// What to do at 3 a.m.: fetched when it is opened.
function runbook(rule) {
  const text = element("div", { class: "runbook" });
  const details = element("details", { class: "panel" }, element("summary", {}, "What to do now"), text);
  details.addEventListener("toggle", async () => {
    if (details.open && !text.childElementCount) text.replaceChildren(...prose(await (await fetch(`/runbooks/${rule}`)).text()));
  });
  return details;
}

// Where the alerts lead.
async function runbookPage(root, name) {
  const response = await fetch(`/runbooks/${name}`);
  if (!response.ok) throw new Error((await response.text()).trim());
  root.append(element("h1", {}, name), element("div", { class: "runbook" }, ...prose(await response.text())));
}

// ---------------------------------------------------------------------------------------- coverage

function share(part, big) {
  const all = part.checked + part.partial + part.unchecked || 1;
  const bar = element("div", { class: big ? "big share" : "share", role: "img", "aria-label": `${percent(part.checked / all)} checked, ${percent(part.partial / all)} partly, ${percent(part.unchecked / all)} unchecked` });
  for (const kind of ["checked", "partial", "unchecked"]) {
    const piece = element("i", { class: kind });
    piece.style.width = `${(100 * part[kind]) / all}%`;
    bar.append(piece);
  }
  return bar;
}

async function coveragePage(root) {
  const coverage = await ask("/api/coverage");
  const all = coverage.checked + coverage.partial + coverage.unchecked;
  root.append(element("h1", {}, "Coverage"),
    element("p", { class: "soft" }, "Whatever is not modelled is unknown, and unknown agrees with everything. This is how much of the traffic «no violation» speaks about."));
  if (all === 0) { root.append(element("p", { class: "empty" }, "No statement has been judged yet.")); return; }
  const key = (kind, text, n) => element("span", {}, element("i", { class: kind }), `${text} ${percent(n / all)} (${count(n)})`);
  root.append(share(coverage, true), element("div", { class: "keys" }, key("checked", "checked whole", coverage.checked), key("partial", "checked in part", coverage.partial), key("unchecked", "not checked", coverage.unchecked)));
  const why = (reason) => (reason ? [reason, ...(coverage.meanings[reason] ? [element("span", { class: "soft why" }, coverage.meanings[reason])] : [])] : []);
  const reasons = Object.entries(coverage.reasons).sort((a, b) => b[1] - a[1]);
  if (reasons.length) {
    root.append(element("h2", {}, all === coverage.checked ? "Noted besides" : "Why not"), element("div", { class: "scroll" }, element("table", { class: "reasons" }, element("tbody", {},
      ...reasons.slice(0, 100).map(([reason, n]) => element("tr", {}, element("td", { class: "number" }, count(n)), element("td", {}, ...why(reason))))))));
  }
  const shapes = [...coverage.shapes].sort((a, b) => b.unchecked + b.partial - (a.unchecked + a.partial) || b.checked - a.checked);
  if (!shapes.length) return;
  const filter = element("input", { type: "search", placeholder: "find a statement", "aria-label": "Find a statement" }), body = element("tbody");
  const show = () => {
    const wanted = filter.value.toLowerCase(), found = shapes.filter((s) => s.shape.toLowerCase().includes(wanted) || (s.reason ?? "").toLowerCase().includes(wanted));
    body.replaceChildren(...found.slice(0, 300).map((s) => element("tr", {}, element("td", { class: "shape" }, element("code", {}, s.shape)), element("td", {}, share(s)),
      element("td", { class: "number" }, count(s.checked + s.partial + s.unchecked)), element("td", {}, ...why(s.reason)))));
    if (found.length > 300) body.append(element("tr", {}, element("td", { colspan: 4, class: "soft" }, `${count(found.length - 300)} more: narrow the search`)));
  };
  filter.addEventListener("input", show);
  root.append(element("h2", {}, "By statement"), element("div", { class: "filters" }, filter), element("div", { class: "scroll" }, element("table", { class: "shapes" },
    element("thead", {}, element("tr", {}, element("th", {}, "statement"), element("th", {}, "checked"), element("th", { class: "number" }, "times"), element("th", {}, "why not"))), body)));
  show();
}

// ------------------------------------------------------------------------------------------- start

const themes = { dark: "light", light: "dark" };
document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = themes[now];
  try { localStorage.setItem("theme", themes[now]); } catch { /* private windows may refuse */ }
});
try { const kept = localStorage.getItem("theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* as above */ }
window.addEventListener("hashchange", route);
await poll();
route();
