// A small plot: one or two lines over the last minutes.

import { element } from "./story.js";

const SVG = "http://www.w3.org/2000/svg", WIDTH = 300, HEIGHT = 72;

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// `a` and `b` are values per second; null is «nothing to say».
export function plot({ title, figure, unit, a, b, names, label, most }) {
  const seen = [...a, ...(b ?? [])].filter((value) => value !== null);
  const top = most ?? Math.max(1e-9, ...seen) * 1.12;
  const x = (index) => (a.length < 2 ? 0 : (index / (a.length - 1)) * WIDTH), y = (value) => HEIGHT - 2 - (value / top) * (HEIGHT - 6);
  const path = (values) => {
    let d = "", pen = false;
    values.forEach((value, index) => {
      if (value === null) { pen = false; return; }
      d += `${pen ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    });
    return d;
  };
  const highest = seen.length ? Math.max(...seen) : 0;
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: now ${figure}, at most ${label(highest)}` });
  svg.append(drawn("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 }));
  if (a.length > 1) {
    if (!a.includes(null)) svg.append(drawn("path", { class: "area", d: `${path(a)}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}z` }));
    if (b) svg.append(drawn("path", { class: "b", d: path(b) }));
    svg.append(drawn("path", { class: "a", d: path(a) }));
  }
  const minutes = a.length >= 120 ? `${Math.round(a.length / 60)} min` : `${a.length} s`;
  return element("section", { class: "plot" }, element("h2", {}, title), element("div", { class: "figure" }, figure, " ", element("small", {}, unit)), svg,
    element("div", { class: "foot" }, element("span", {}, minutes),
      names ? element("span", {}, element("span", { class: "key a1" }, names[0]), " · ", element("span", { class: "key b1" }, names[1])) : null,
      element("span", {}, `max ${label(highest)}`)));
}
