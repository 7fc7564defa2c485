// Violations that the engine found in real traffic, looked at as somebody does who was woken by them.
//
// In: the address of a proxy's page, and places in the environment. Out: a line «ok STEP» per step, and a picture.

import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import assert from "node:assert/strict";

const require = createRequire(import.meta.url);
const { chromium } = require(process.env.PLAYWRIGHT);
const { PAGE, SHOTS, PROFILE, CHROMIUM } = process.env;

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
page.on("console", (message) => { if (message.type() === "error") troubles.push(`console: ${message.text()}`); });

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

const list = await (await fetch(`${PAGE}api/violations`)).json();
const long = (v) => v.statements > 1000;
const lost = list.find((v) => v.rule === "lost_update" && !long(v)), skew = list.find((v) => v.rule === "write_skew"), wide = list.find(long);
assert.ok(lost && skew && wide, JSON.stringify(list));

try {
  await step("overview", async () => {
    await page.goto(PAGE);
    await page.getByText(`${list.length} stories that no correct database explains`).waitFor();
    await page.getByText("judged as serializable").waitFor();
    await holds(async () => ((await page.locator(".plot path.a").first().getAttribute("d")) ?? "").length > 20, "the plot has a line");
  });
  await step("lost-update", async () => {
    await page.getByRole("link", { name: "Violations" }).click();
    await page.locator(`.cards a[href$="${lost.id}"]`).click();
    await page.getByRole("heading", { name: "Lost update" }).waitFor();
    // Without touching anything: both sessions, and the wrong answer, are in view.
    await page.locator("svg.story .bar.culprit").first().waitFor();
    await holds(async () => (await page.locator(".picture-names > div").count()) === 2);
    await holds(async () => (await page.locator("svg.story .bar.commit").count()) >= 1);
    await holds(async () => (await page.locator("svg.story .snapshot").count()) >= 2, "where snapshots lie");
    await holds(async () => (await page.locator("svg.story .edge").count()) >= 1, "dependencies are drawn");
    await holds(() => page.locator(".answers .observed", { hasText: "account" }).isVisible(), "the statement is named");
    await holds(async () => (await page.locator(".answers .expected li").count()) >= 1);
  });
  await step("edge", async () => {
    const button = page.locator(".edges button").first();
    await button.click();
    await holds(async () => (await button.getAttribute("aria-expanded")) === "true");
    await page.locator("svg.story .edge.chosen").waitFor();
    await holds(() => page.locator(".detail", { hasText: "must come before" }).isVisible());
    await page.locator(".edges button", { hasText: "─rw→" }).click();
    await holds(() => page.locator(".detail", { hasText: "read it here" }).isVisible(), "the statement that read");
  });
  await step("downloads", async () => {
    const inside = { json: '"rule": "lost_update"', html: "<!doctype html>", svg: "<svg ", script: "t1: ", spec: "permutation", text: "✗ lost_update", trace: "" };
    for (const [kind, words] of Object.entries(inside)) {
      const [download] = await Promise.all([page.waitForEvent("download"), page.locator(`[data-download="${kind}"]`).click()]);
      const text = await readFile(await download.path(), "latin1");
      assert.ok(Buffer.from(text, "latin1").toString("utf8").includes(words) && text.length > 50, kind);
    }
  });
  await step("keyboard", async () => {
    await page.locator(".picture-scroll").focus();
    for (let n = 0; n < 3; n++) await page.keyboard.press("ArrowRight");
    await holds(() => page.locator(".detail", { hasText: "step 3 of" }).isVisible());
    // From the top of the page to the edges by Tab alone.
    await page.evaluate(() => { document.activeElement?.blur(); window.scrollTo(0, 0); });
    let reached = false;
    for (let n = 0; n < 60 && !reached; n++) {
      await page.keyboard.press("Tab");
      reached = await page.evaluate(() => document.activeElement?.closest(".edges") !== null);
    }
    assert.ok(reached, "the dependencies are reached by the keyboard");
    const before = await page.evaluate(() => document.activeElement.getAttribute("aria-expanded"));
    await page.keyboard.press("Enter");
    await holds(async () => (await page.evaluate(() => document.activeElement.getAttribute("aria-expanded"))) !== before);
  });
  await step("write-skew", async () => {
    await page.goto(`${PAGE}#/violations/${skew.id}`);
    await page.getByRole("heading", { name: "Write skew" }).waitFor();
    await page.locator("svg.story .edge.rw").nth(1).waitFor();
    await holds(async () => (await page.locator("svg.story .edge.rw").count()) === 2);
    await holds(() => page.locator(".answers .expected", { hasText: "came first" }).isVisible());
  });
  await step("dark", async () => {
    await page.emulateMedia({ colorScheme: "dark" });
    await page.locator("svg.story .edge.rw text").first().click();
    await page.locator("svg.story .edge.chosen").waitFor();
  });
  await step("phone", async () => {
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(`${PAGE}#/violations/${lost.id}`);
    await page.locator("svg.story .bar.culprit").first().waitFor();
    await holds(() => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), "nothing sticks out on a phone");
  });
  await step("wide", async () => {
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.goto(`${PAGE}#/violations/${wide.id}`);
    await page.locator("svg.story .bar").first().waitFor();
    await holds(async () => (await page.locator("svg.story *").count()) < 3000, "only what is in view is drawn");
    await holds(async () => (await page.locator(".rows .row").count()) < 100, "only the rows in view exist");
    await page.getByRole("button", { name: "Whole story" }).click();
    await page.locator("svg.story .run").first().waitFor();
    await page.screenshot({ path: `${SHOTS}/wide-whole.png` });
    await page.getByRole("button", { name: "Wrong answer" }).click();
    await page.locator("svg.story .bar.culprit.chosen").waitFor();
    await page.locator(".picture-scroll").focus();
    await page.keyboard.press("ArrowLeft");
    await holds(() => page.locator(".detail", { hasText: /step \d+ of 10,?\d{3}/ }).isVisible());
  });
} finally {
  await context.close();
}
