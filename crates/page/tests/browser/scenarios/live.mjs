// Open pages show a write without being loaded again, and without moving what the user reads.
import assert from "node:assert/strict";

import { focused } from "../focus.mjs";

/** Asks for a write, and returns its commit and the milliseconds until all pages show it. */
const write = async (stage, pages) => {
  const { commit } = await stage.ask("write");
  const written = performance.now();
  await Promise.all(pages.map((page) => page.locator(`a[href="/commit/${commit}"]`).first().waitFor({ state: "attached" })));
  return { commit, took: Math.round(performance.now() - written) };
};

/** Where a link is on the screen. */
const top = (page, link) => page.locator(`a[href="${link}"]`).first().evaluate((element) => element.getBoundingClientRect().top);

export const play = async (stage) => {
  const context = await stage.context();
  const list = await stage.page("/", context);
  const object = await stage.page(stage.settings.object, context);
  const filtered = await stage.page("/?kind=deployments", context);
  const pages = [list, object, filtered];
  for (const page of pages) await page.evaluate(() => (window.loaded = "once"));

  // At the top, new commits come into view.
  const notice = list.locator("#status", { hasText: "Updated" }).waitFor();
  const first = await write(stage, pages);
  await notice;
  assert.equal(await list.evaluate(() => scrollY), 0);
  const newest = await list.locator("a.subject").first().getAttribute("href");
  assert.equal(newest, `/commit/${first.commit}`);

  // Further down, what the user reads stays where it is, and the focus on its link.
  const link = await list.locator("a.subject").nth(30).getAttribute("href");
  await list.locator(`a[href="${link}"]`).focus();
  await list.evaluate(() => scrollBy(0, 40));
  const before = await top(list, link);
  const label = await object.locator("table.blame a").nth(3).evaluate((element) => {
    element.focus();
    return element.closest("tr").innerText;
  });
  const second = await write(stage, pages);
  assert.equal((await focused(list)).href, link);
  assert.ok(Math.abs((await top(list, link)) - before) < 2, `${link} was at ${before}, and is at ${await top(list, link)}`);
  assert.equal(await object.evaluate(() => document.activeElement.closest("tr")?.innerText), label);

  // After many writes in a row, the page ends at the last one.
  const writes = [first, second];
  for (let number = 0; number < 5; number++) writes.push(await write(stage, [list]));
  await stage.ask("writes");
  const last = await write(stage, pages);
  for (const page of pages) {
    assert.equal(await page.evaluate(() => window.loaded), "once", "the page was not loaded again");
    assert.match(await page.locator("[data-live]").getAttribute("data-head"), /^[0-9a-f]{40}-[0-9a-f]{40}$/);
  }
  assert.equal(await list.locator("a.subject").first().getAttribute("href"), `/commit/${last.commit}`);

  stage.say(`a write is on the open pages after ${writes.map((one) => one.took).join(", ")} ms`);
  const worst = Math.max(...writes.map((one) => one.took));
  if (stage.settings.limit) assert.ok(worst <= stage.settings.limit, `shown after ${worst} ms`);
};
