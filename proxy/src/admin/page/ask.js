// Asks the API, with the token where one is wanted.

let token = null;
try { token = sessionStorage.getItem("token"); } catch { /* private windows may refuse */ }
let asking = null;

async function request(path) {
  for (;;) {
    const response = await fetch(path, { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store" });
    if (response.ok) return response;
    if (response.status !== 401) throw new Error((await response.text()).trim() || response.statusText);
    asking ??= askForToken();
    await asking;
    asking = null;
  }
}

export async function ask(path) { return (await request(path)).json(); }

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
