// Walks through the page as a person would, and keeps a picture of every step.
//
// In: addresses and places in the environment. Out: a line «ok STEP» per step; the first failure ends it.

import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import assert from "node:assert/strict";

const require = createRequire(import.meta.url);
const { chromium } = require(process.env.PLAYWRIGHT);
const { PAGE, GUARDED, REPORT, SHOTS, PROFILE, CHROMIUM } = process.env;

// However slow the machine.
const PATIENCE = 180_000;
const context = await chromium.launchPersistentContext(PROFILE, {
  executablePath: CHROMIUM, headless: true, timeout: PATIENCE, viewport: { width: 1280, height: 900 }, acceptDownloads: true,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
context.setDefaultTimeout(PATIENCE);
const troubles = [];
const page = await context.newPage();
page.on("pageerror", (error) => troubles.push(`error in the page: ${error.message}`));
page.on("console", (message) => { if (message.type() === "error" && !/\b(401|422)\b/.test(message.text()) && !message.location().url.includes("no_such_rule")) troubles.push(`console: ${message.text()}`); });
page.on("request", (request) => { const url = request.url(); if (!url.startsWith(PAGE) && !url.startsWith(GUARDED) && !/^(file|blob|data):/.test(url)) troubles.push(`a request to ${url}`); });

// What is drawn after an event may take a moment: looks until it is so.
async function holds(is, what) {
  for (const end = Date.now() + PATIENCE; !(await is()); ) {
    assert.ok(Date.now() < end, what ?? is.toString());
    await page.waitForTimeout(50);
  }
}

async function step(name, act) {
  await act();
  assert.deepEqual(troubles, [], name);
  await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: true });
  console.log(`ok ${name}`);
}

try {
  await step("overview", async () => {
    await page.goto(PAGE);
    await page.getByText("stories that no correct database explains").waitFor();
    await page.locator(".plot .figure").first().waitFor();
    await holds(async () => (await page.locator(".plot").count()) === 4);
    await holds(async () => ((await page.locator(".plot path.a").first().getAttribute("d")) ?? "").length > 20, "the plot has a line");
  });
  await step("violations", async () => {
    await page.getByRole("link", { name: "Violations" }).click();
    await page.locator(".cards a").first().waitFor();
    await holds(async () => (await page.locator(".cards a").count()) === 3);
    await page.getByLabel("Rule").selectOption("write_skew");
    await holds(async () => (await page.locator(".cards a").count()) === 1);
    await page.getByLabel("Rule").selectOption("");
  });
  await step("story", async () => {
    await page.locator(".cards a", { hasText: "Lost update" }).click();
    await page.getByText("the deposit of t1 is lost").waitFor();
    await page.locator("svg.story .bar").first().waitFor();
    await holds(async () => (await page.locator("svg.story .bar.statement").count()) === 4);
    await holds(async () => (await page.locator("svg.story .edge").count()) === 2);
    await holds(() => page.getByText("if t1 came first, t2 reads 110").isVisible());
  });
  await step("edge", async () => {
    const button = page.locator(".edges button", { hasText: "t2 ─rw→ t1" });
    await holds(async () => (await button.getAttribute("aria-expanded")) === "false");
    await page.locator("svg.story .edge.rw text").click();
    await page.locator("svg.story .edge.rw.chosen").waitFor();
    await holds(async () => (await button.getAttribute("aria-expanded")) === "true");
    await holds(() => page.locator(".detail", { hasText: "t2 must come before t1" }).isVisible());
    await page.locator("svg.story .bar.culprit rect").click();
    await holds(() => page.locator(".detail", { hasText: "No correct database gives this answer here" }).isVisible());
    await button.click();
    await button.focus();
  });
  await step("download", async () => {
    for (const [kind, name, inside] of [["json", "v-5d1e0c94b7aa-1.json", '"rule": "lost_update"'], ["script", "v-5d1e0c94b7aa-1.script", "t1: BEGIN"], ["spec", "v-5d1e0c94b7aa-1.spec", "permutation"], ["html", "v-5d1e0c94b7aa-1.html", "<!doctype html>"]]) {
      const [download] = await Promise.all([page.waitForEvent("download"), page.locator(`[data-download="${kind}"]`).click()]);
      assert.equal(download.suggestedFilename(), name);
      assert.ok((await readFile(await download.path(), "utf8")).includes(inside), kind);
    }
  });
  await step("runbook", async () => {
    await page.getByText("What to do now").click();
    await page.getByRole("heading", { name: "How to confirm" }).waitFor();
  });
  await step("keyboard", async () => {
    await page.locator(".picture-scroll").focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    await holds(() => page.locator(".detail", { hasText: "step 2 of 8" }).isVisible());
    await page.keyboard.press("+");
    await page.keyboard.press("-");
    await holds(async () => (await page.locator(".rows .row.chosen").count()) === 1);
  });
  await step("scale", async () => {
    await page.getByRole("button", { name: "To scale" }).click();
    await page.locator("svg.story .tick").first().waitFor({ state: "attached" });
  });
  await step("coverage", async () => {
    await page.getByRole("link", { name: "Coverage" }).click();
    await page.getByText("function to_tsvector()").first().waitFor();
    await page.getByLabel("Find a statement").fill("log");
    await holds(async () => (await page.locator("tbody td.shape").count()) === 1);
    await page.getByLabel("Find a statement").fill("");
  });
  await step("wide", async () => {
    await page.goto(`${PAGE}#/violations/v-0123456789ab-1`);
    await page.locator("svg.story .bar").first().waitFor();
    await holds(async () => (await page.locator("svg.story *").count()) < 3000, "only what is in view is drawn");
    await holds(async () => (await page.locator(".rows .row").count()) < 100, "only the rows in view exist");
    await page.getByRole("button", { name: "Whole story" }).click();
    await page.locator("svg.story .run").first().waitFor();
    await holds(async () => (await page.locator("svg.story *").count()) < 8000, "narrow bars become runs");
    await page.screenshot({ path: `${SHOTS}/wide-whole.png` });
    await page.getByRole("button", { name: "Wrong answer" }).click();
    await page.locator("svg.story .bar.culprit.chosen").waitFor();
  });
  await step("editor", async () => {
    await page.getByRole("link", { name: "Trace editor" }).click();
    const says = (level, words) => page.locator(`[data-level="${level}"]`, { hasText: words }).waitFor();
    await says("read-committed", "allowed");
    await says("serializable", "lost update");
    await holds(async () => (await page.locator(".numbers .wrong").textContent()) === "✗ 10");
    await page.locator("#shown svg.story .bar.culprit").waitFor();
    const text = page.getByLabel("The trace"), was = await text.inputValue();
    // PostgreSQL would have refused the second update: with that answer every level allows the story.
    await text.fill(was.replace("balance = 120 where id = 1 => UPDATE 1", "balance = 120 where id = 1 => error 40001").replace(/t2: commit\s*$/, "t2: rollback\n"));
    await says("repeatable-read", "allowed");
    await says("serializable", /allowed|nothing wrong/);
    await page.locator("#shown h2", { hasText: "SERIALIZABLE allows this" }).waitFor();
    await holds(async () => (await page.locator(".numbers .wrong").count()) === 0);
    await text.fill("t1: select 1 => (1)\nt2 select 2");
    await page.getByText("Line 2: expected «session: statement => answer»").waitFor();
  });
  await step("editor-levels", async () => {
    await page.getByLabel("Example").selectOption("verdict/write_skew");
    await page.locator('[data-level="repeatable-read"]', { hasText: "allowed" }).waitFor();
    const chosen = page.locator('[data-level="serializable"][aria-checked="true"]', { hasText: "write skew" });
    await chosen.waitFor();
    await chosen.focus();
    await page.keyboard.press("ArrowUp");
    await page.locator("#shown h2", { hasText: "REPEATABLE READ allows this" }).waitFor();
    await page.keyboard.press("ArrowDown");
    await page.locator("#shown svg.story .edge.rw").first().waitFor();
    await holds(() => page.url().endsWith("#/editor/verdict/write_skew"));
  });
  await step("editor-profiles", async () => {
    // A standby may lag, and of the paper's levels only the strict ones promise real time.
    await page.getByLabel("Example").selectOption("verdict/stale_read");
    await page.locator('[data-level="read-committed"]', { hasText: "stale read" }).waitFor();
    await page.getByLabel("Levels of").selectOption("postgres-standby");
    await page.locator('[data-level="read-committed"]', { hasText: "allowed" }).waitFor();
    await page.getByLabel("Levels of").selectOption("paper");
    await page.locator('[data-level="strict-si"]', { hasText: "stale read" }).waitFor();
    await page.locator('[data-level="si"]', { hasText: "allowed" }).waitFor();
    await holds(async () => (await page.locator("[data-level]").count()) === 5, "five levels");
    await page.getByLabel("Levels of").selectOption("postgres");
    await page.locator('[data-level="serializable"]', { hasText: "stale read" }).waitFor();
  });
  await step("editor-upload", async () => {
    await page.getByLabel("Upload a trace").setInputFiles({ name: "mine.txt", mimeType: "text/plain", buffer: Buffer.from("a: create table k (v int)\na: insert into k values (1)\nb: select v from k => (2)\n") });
    await page.locator('[data-level="read-committed"]', { hasText: "garbage read" }).waitFor();
  });
  await step("runbook-page", async () => {
    // Where the alerts lead.
    await page.goto(`${PAGE}#/runbooks/stale_read`);
    await page.getByRole("heading", { name: "stale_read" }).waitFor();
    await page.getByRole("heading", { name: "What to do" }).waitFor();
    await page.goto(`${PAGE}#/runbooks/no_such_rule`);
    await page.getByText("there is no such runbook").waitFor();
  });
  await step("dark", async () => {
    await page.emulateMedia({ colorScheme: "dark" });
    await page.goto(`${PAGE}#/violations/v-a2417f0c55e1-1`);
    await page.getByText("Whoever came second").waitFor();
    await page.locator("svg.story .bar").first().waitFor();
    await page.locator("svg.story .edge text").first().click();
  });
  await step("dark-overview", async () => {
    await page.getByRole("link", { name: "Overview" }).click();
    await page.locator(".plot").first().waitFor();
  });
  await step("phone", async () => {
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(`${PAGE}#/violations/v-5d1e0c94b7aa-1`);
    await page.locator("svg.story .bar").first().waitFor();
    await holds(() => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), "nothing sticks out on a phone");
  });
  await step("phone-steps", async () => {
    // Every answer can be read, not only every question.
    const answer = page.locator(".rows .row.culprit .answer").first();
    await answer.scrollIntoViewIfNeeded();
    await holds(() => answer.isVisible(), "the wrong answer is in the list of steps");
    const box = await answer.boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= 390 && box.height > 8, JSON.stringify(box));
    await page.goto(`${PAGE}#/violations/v-0123456789ab-1`);
    await page.locator(".rows.virtual .row .answer:not(:empty)").first().waitFor();
    const tops = await page.locator(".rows.virtual .row").evaluateAll((rows) => rows.map((row) => row.offsetTop).sort((a, b) => a - b));
    const gaps = new Set(tops.slice(1).map((top, n) => top - tops[n]));
    assert.deepEqual([...gaps], [74], "rows do not lie on each other");
  });
  await step("phone-coverage", async () => {
    await page.goto(`${PAGE}#/coverage`);
    await holds(() => page.locator(".shapes").getByText("function to_tsvector()").isVisible(), "the reason is in view");
    await holds(() => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), "nothing sticks out on a phone");
  });
  await step("phone-overview", async () => {
    await page.goto(`${PAGE}#/`);
    await page.locator(".plot").first().waitFor();
    await holds(() => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), "nothing sticks out on a phone");
  });
  await step("phone-editor", async () => {
    await page.goto(`${PAGE}#/editor/verdict/stale_read`);
    await page.locator('[data-level="read-committed"]', { hasText: "stale read" }).waitFor();
    await holds(() => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), "nothing sticks out on a phone");
  });
  await page.setViewportSize({ width: 1280, height: 900 });
  await step("token", async () => {
    await page.goto(GUARDED);
    await page.locator("#token").fill("correct horse battery");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("stories that no correct database explains").waitFor();
  });
  await step("report", async () => {
    await page.goto(`file://${REPORT}`);
    await page.locator("svg.story .bar").first().waitFor();
    await holds(async () => (await page.locator(".picture").count()) === 2, "stories come alive without a server");
    await page.locator(".edges button").first().click();
  });
} finally {
  await context.close();
}
