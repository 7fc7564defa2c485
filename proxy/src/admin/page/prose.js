// The little Markdown that runbooks are written in: headings, paragraphs, lists, quotes, code, links.
// Text is set as text; links lead only to runbooks that are here.

import { element } from "./story.js";

export function prose(markdown) {
  const made = [], lines = markdown.split("\n");
  let at = 0;
  const block = (matches) => { const taken = []; while (at < lines.length && matches(lines[at])) taken.push(lines[at++]); return taken; };
  while (at < lines.length) {
    const line = lines[at];
    if (line.startsWith("```")) {
      at++;
      made.push(element("pre", {}, block((l) => !l.startsWith("```")).join("\n")));
      at++;
    } else if (/^# /.test(line)) at++;
    else if (/^#+ /.test(line)) { made.push(element("h3", {}, line.replace(/^#+ /, ""))); at++; }
    else if (line.startsWith("> ")) made.push(element("p", { class: "soft" }, ...inline(block((l) => l.startsWith("> ")).map((l) => l.slice(2)).join(" "))));
    else if (/^([-*]|\d+\.) /.test(line)) {
      const items = [];
      for (const l of block((l) => /^([-*]|\d+\.) /.test(l) || /^ +\S/.test(l))) {
        if (/^([-*]|\d+\.) /.test(l)) items.push(l.replace(/^([-*]|\d+\.) /, "")); else items[items.length - 1] += ` ${l.trim()}`;
      }
      made.push(element(/^\d/.test(line) ? "ol" : "ul", {}, ...items.map((item) => element("li", {}, ...inline(item)))));
    } else if (line.trim() === "") at++;
    else made.push(element("p", {}, ...inline(block((l) => l.trim() !== "" && !/^(#|>|```|[-*] |\d+\. )/.test(l)).join(" "))));
  }
  return made;
}

function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*]+\*|\[[^\]]+\]\([^)]+\))/).filter(Boolean).map((part) => {
    if (part.startsWith("`")) return element("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return element("b", {}, part.slice(2, -2));
    if (/^\*[^*]+\*$/.test(part)) return element("i", {}, part.slice(1, -1));
    const link = /^\[([^\]]+)\]\(([\w-]+)\.md[^)]*\)$/.exec(part);
    if (link) return element("a", { href: `#/runbooks/${link[2]}` }, link[1]);
    return /^\[([^\]]+)\]/.exec(part)?.[1] ?? part;
  });
}
