// Everything can be done with the keyboard alone.
import assert from "node:assert/strict";

import { assertTabOrder, focused, tabTo } from "../focus.mjs";

/** Presses Enter, and waits for the page that it opens. */
const enter = async (page) => {
  const opened = page.waitForNavigation();
  await page.keyboard.press("Enter");
  await opened;
};

const link = (start) => (element) => element.href?.startsWith(start);

export const play = async (stage) => {
  const { pages, object } = stage.settings;
  const context = await stage.context();
  for (const path of pages) {
    const page = await stage.page(path, context);
    await assertTabOrder(page);
    await page.close();
  }

  const page = await stage.page("/", context);
  const path = () => page.url().slice(stage.origin.length);

  // The first control skips the header.
  await page.keyboard.press("Tab");
  assert.deepEqual(await focused(page).then(({ href, isVisible }) => [href, isVisible]), ["#main", true]);
  await page.keyboard.press("Enter");
  assert.equal((await focused(page)).id, "main");

  // From there, the filter is next.
  await page.keyboard.press("Tab");
  assert.equal((await focused(page)).name, "summary");
  await page.keyboard.press("Enter");
  await tabTo(page, ({ id }) => id === "namespace", "the namespace");
  await page.keyboard.type("shop");
  await tabTo(page, ({ id }) => id === "kind", "the kind");
  await page.keyboard.type("deploy");
  await enter(page);
  assert.equal(path(), "/?namespace=shop&kind=deploy&name=&user=");
  assert.ok((await page.locator("ol.commits > li").count()) > 0);
  await tabTo(page, ({ text }) => text === "Show all", "the link to all commits");
  await enter(page);
  assert.equal(path(), "/");

  // A commit, its object, and the commit that set a field.
  await tabTo(page, link(`/commit/${stage.settings.commit}`), "a commit");
  await enter(page);
  await tabTo(page, link(object), "the object");
  await enter(page);
  assert.equal(path(), object);
  await tabTo(page, link("/commit/"), "the commit of a field");
  await enter(page);
  assert.match(path(), /^\/commit\/[0-9a-f]{40}$/);
  await page.goBack();

  // The search.
  await tabTo(page, ({ id }) => id === "q", "the search");
  await page.keyboard.type("deployments/shop");
  await enter(page);
  await tabTo(page, link(object), "the found object");
  await enter(page);
  assert.equal(path(), object);

  // Older commits.
  await tabTo(page, ({ text }) => text === "Commits", "the list of commits");
  await enter(page);
  await tabTo(page, ({ text }) => text === "Older commits", "older commits");
  await enter(page);
  assert.match(path(), /^\/\?before=[0-9a-f]{40}$/);
  await tabTo(page, ({ text }) => text === "Newest commits", "the newest commits");
  await enter(page);
  assert.equal(path(), "/?");
};
