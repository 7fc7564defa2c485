// The trace editor: a small trace as text, and what every level says about it.
//
// In: examples, and verdicts from the engine itself. Out: the page. Nothing that is typed here is kept.

import { ask, send } from "./ask.js";
import { element, showStory, showTrace } from "./story.js";

const NAMES = { "read-committed": "READ COMMITTED", "repeatable-read": "REPEATABLE READ", serializable: "SERIALIZABLE",
  rc: "RC", si: "SI", "strict-si": "strict SI", s: "S", "strict-s": "strict S" };
const FIRST = "verdict/lost_update", PAUSE_MS = 250, BYTES_MAX = 60_000;

const HELP = [
  ["t1: select 1 => (1)", "session t1 asked, and was answered one row"],
  ["t1: update a set b = 2 => UPDATE 1", "the answer may be a command tag"],
  ["t1: select b from a => (1, 'x') (2, null)", "several rows; «no rows» for none"],
  ["t1: insert into a values (1) => error 23505", "an error with its SQLSTATE"],
  ["t1: commit => lost", "the connection broke: nobody knows the outcome"],
  ["t1: create table a (k int)", "without an answer: nobody looked at it"],
  ["t1: update a set b = 2 ...", "sent; it stays under way"],
  ["t1: ... => UPDATE 1", "answered here: everything between may have happened before or after"],
  ["# words", "a comment; sessions have any name"],
];

// `wanted` is an example's name such as verdict/lost_update.
export async function editorPage(root, wanted, signal) {
  const [groups, profiles] = await Promise.all([ask("/api/examples"), ask("/api/profiles")]);
  const stories = new Map(groups.flatMap((group) => group.stories.map((story) => [story.id, story])));
  const choose = element("select", { id: "example", "aria-label": "Example" },
    ...groups.map((group) => element("optgroup", { label: group.title }, ...group.stories.map((story) => element("option", { value: story.id }, story.name.replaceAll("_", " "))))),
    element("option", { value: "", hidden: true }, "your own"));
  const profile = element("select", { id: "profile", "aria-label": "Levels of" }, ...profiles.map((each) => element("option", { value: each.name }, each.description)));
  const file = element("input", { type: "file", id: "upload", "aria-label": "Upload a trace", accept: ".txt,.story,text/plain" });
  const about = element("p", { class: "soft", id: "about" });
  const text = element("textarea", { id: "story", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-label": "The trace", "aria-describedby": "trouble" });
  const numbers = element("div", { class: "numbers", "aria-hidden": "true" });
  const trouble = element("p", { class: "trouble", id: "trouble", role: "alert", hidden: true });
  const levels = element("div", { class: "levels", role: "radiogroup", "aria-label": "Isolation level" });
  const shown = element("div", { id: "shown" });
  root.append(element("h1", {}, "Trace editor"),
    element("p", { class: "soft" }, "A trace is what clients asked and what they were answered. Change a value, move a line, and see at which isolation level a correct database could still have answered like this. Nothing is executed and nothing is kept: the engine that judges the traffic judges this text."),
    element("div", { class: "filters" }, element("label", { for: "example" }, "Example"), choose, element("label", { for: "upload" }, "or your own file"), file, element("span", { class: "pair" }, element("label", { for: "profile" }, "Levels of"), profile)),
    about,
    element("div", { class: "editor" }, element("div", { class: "page-of-text" }, numbers, text), element("div", { class: "says" }, levels, trouble, help())),
    shown);

  let verdict = null, level = "serializable", asked = 0;
  const fail = ({ line, what }) => {
    levels.removeAttribute("aria-busy");
    trouble.hidden = false;
    trouble.textContent = line ? `Line ${line}: ${what}` : what;
    for (const each of levels.children) each.classList.add("stale");
    gutter(new Set(), line);
    shown.replaceChildren();
  };
  const gutter = (wrong, bad) => {
    const count = text.value.split("\n").length;
    numbers.replaceChildren(...Array.from({ length: Math.min(count, 5000) }, (_, n) => element("div", { class: wrong.has(n + 1) ? "wrong" : bad === n + 1 ? "bad" : null }, wrong.has(n + 1) ? `✗ ${n + 1}` : bad === n + 1 ? `! ${n + 1}` : String(n + 1))));
    numbers.scrollTop = text.scrollTop;
  };
  const tell = () => {
    const now = verdict.levels.find((each) => each.level === level) ?? verdict.levels.at(-1);
    level = now.level;
    gutter(new Set(now.lines));
    levels.replaceChildren(...verdict.levels.map((each) => card(each, each.level === level, () => { level = each.level; tell(); levels.querySelector("[aria-checked=true]").focus(); })));
    shown.replaceChildren();
    for (const violation of now.violations) {
      const story = element("div");
      shown.append(element("h2", {}, `${NAMES[now.level]}: ${violation.rule.replaceAll("_", " ")}`), element("p", { class: "soft" }, violation.summary ?? ""), story);
      showStory(story, violation);
    }
    if (!now.violations.length) {
      const picture = element("div");
      shown.append(element("h2", {}, `${NAMES[now.level]} allows this`), picture);
      showTrace(picture, verdict.trace);
    }
  };
  const judge = async () => {
    const turn = ++asked;
    if (new Blob([text.value]).size > BYTES_MAX) return fail({ what: "This is too long to be judged here: record it and use pgassay check." });
    levels.setAttribute("aria-busy", "true");
    for (const each of levels.children) each.classList.add("stale");
    if (!levels.childElementCount) levels.append(element("p", { class: "soft" }, "judging …"));
    const answer = await send("/api/judge", { text: text.value, profile: profile.value });
    if (turn !== asked || signal.aborted) return;
    levels.removeAttribute("aria-busy");
    if (!answer.ok) return fail(answer.said);
    trouble.hidden = true;
    verdict = answer.said;
    tell();
  };
  let waiting = null;
  const changed = () => {
    gutter(new Set());
    clearTimeout(waiting);
    waiting = setTimeout(() => judge().catch((error) => fail({ what: error.message })), PAUSE_MS);
  };
  const load = (id) => {
    const story = stories.get(id) ?? stories.get(FIRST);
    choose.value = story.id;
    text.value = story.text;
    gutter(new Set());
    about.textContent = [story.about, story.summary && story.summary !== story.about ? `(${story.summary})` : ""].join(" ");
    // An address that can be sent to somebody, without another entry in the history for each example.
    history.replaceState(null, "", `#/editor/${story.id}`);
    return judge();
  };
  choose.addEventListener("change", () => load(choose.value).catch((error) => fail({ what: error.message })));
  profile.addEventListener("change", () => judge().catch((error) => fail({ what: error.message })));
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    text.value = await file.files[0].text();
    choose.value = "";
    about.textContent = file.files[0].name;
    changed();
  });
  text.addEventListener("input", () => { choose.value = ""; changed(); });
  text.addEventListener("scroll", () => { numbers.scrollTop = text.scrollTop; }, { passive: true });
  levels.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move || !verdict) return;
    event.preventDefault();
    const all = verdict.levels, at = all.findIndex((each) => each.level === level);
    level = all[(at + move + all.length) % all.length].level;
    tell();
    levels.querySelector("[aria-checked=true]").focus();
  });
  await load(wanted ? decodeURIComponent(wanted) : FIRST);
}

function card(each, chosen, onclick) {
  const wrong = each.violations.length > 0, open = each.partial + each.unchecked;
  const rules = [...new Set(each.violations.map((v) => v.rule.replaceAll("_", " ")))].join(", ");
  const why = Object.entries(each.reasons).map(([reason, n]) => `${n} × ${reason.replaceAll("_", " ")}`).join(", ");
  return element("button", { class: `level ${wrong ? "wrong" : open ? "warn" : "right"}`, role: "radio", "aria-checked": String(chosen), tabindex: chosen ? "0" : "-1", "data-level": each.level, onclick },
    element("span", { class: "mark", "aria-hidden": "true" }, wrong ? "✗" : open ? "?" : "✓"),
    element("span", {}, element("b", {}, NAMES[each.level] ?? each.level),
      element("span", { class: "says-so" }, wrong ? rules : open ? "nothing wrong in what was checked" : "allowed: a correct database may answer like this"),
      open ? element("span", { class: "soft why" }, `${each.checked} of ${each.checked + open} statements checked whole${why ? `; not known: ${why}` : ""}`) : null));
}

function help() {
  return element("details", { class: "panel" }, element("summary", {}, "How a trace is written"),
    element("table", {}, element("tbody", {}, ...HELP.map(([line, meaning]) => element("tr", {}, element("td", {}, element("code", {}, line)), element("td", {}, meaning))))),
    element("p", { class: "soft" }, "Lines happen one after the other, from top to bottom. A transaction runs at the level that is judged, unless BEGIN names another."));
}
