// Asks the API, with the token where one is wanted.

let token = null;
try { token = sessionStorage.getItem("token"); } catch { /* private windows may refuse */ }
let asking = null;

async function tried(path, more = {}) {
  for (;;) {
    const headers = { ...more.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const response = await fetch(path, { ...more, headers, cache: "no-store" });
    if (response.status !== 401) return response;
    asking ??= askForToken();
    await asking;
    asking = null;
  }
}

async function request(path) {
  const response = await tried(path);
  if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
  return response;
}

export async function ask(path) { return (await request(path)).json(); }

// Sends JSON; an answer that refuses is an answer too.
export async function send(path, value) {
  const response = await tried(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
  const text = await response.text();
  let said = { what: text.trim() || response.statusText };
  try { said = JSON.parse(text); } catch { /* words, not JSON */ }
  return { ok: response.ok, said };
}

// Fetches a file, so that the token travels in a header and never in an address.
export async function download(id, kind) {
  const response = await request(`/api/violations/${encodeURIComponent(id)}/${kind}`);
  const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? `${id}.${kind}`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function askForToken() {
  const dialog = document.getElementById("ask"), input = document.getElementById("token");
  return new Promise((resolve) => {
    input.value = "";
    dialog.addEventListener("close", () => {
      token = input.value.trim();
      try { sessionStorage.setItem("token", token); } catch { /* then it is asked for again */ }
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
    input.focus();
  });
}
