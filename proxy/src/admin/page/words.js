// Numbers and instants as people say them.

export function count(n) { return Math.round(n).toLocaleString("en-US"); }

export function rate(n) { return n >= 100 ? count(n) : n >= 10 ? n.toFixed(0) : n.toFixed(1); }

export function percent(share) {
  const text = `${(share * 100).toFixed(1)} %`;
  if (text === "100.0 %") return share < 1 ? "99.9 %" : "100 %";
  if (text === "0.0 %") return share > 0 ? "<0.1 %" : "0 %";
  return text;
}

export function duration(seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// Nanoseconds since 1970.
export function when(nanos) {
  const date = new Date(nanos / 1e6), today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString("en-GB");
  return today ? time : `${date.toISOString().slice(0, 10)} ${time}`;
}
