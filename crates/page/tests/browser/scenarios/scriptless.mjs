// Without scripts, all pages can be read, and the search and the filter work.
import assert from "node:assert/strict";

export const play = async (stage) => {
  const { pages, object, commit } = stage.settings;
  const context = await stage.context({ javaScriptEnabled: false });
  for (const path of pages) {
    const page = await stage.page(path, context);
    const text = await page.locator("main").innerText();
    assert.ok(text.length > 20, `${path}: ${text}`);
    assert.equal(await page.locator("h1").count(), 1, path);
    await page.close();
  }

  const page = await stage.page("/", context);
  await page.getByText("Filter", { exact: true }).first().click();
  await page.getByLabel("Namespace").fill("shop");
  await page.getByLabel("User").fill("jane");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/namespace=shop/);
  assert.ok(await page.locator(`a[href="/commit/${commit}"]`).isVisible());
  // The values of the filter stay in its fields.
  assert.equal(await page.getByLabel("User").inputValue(), "jane");

  await page.getByRole("searchbox", { name: "Search objects" }).fill("shop/web");
  await page.getByRole("button", { name: "Search" }).click();
  await page.locator(`main a[href="${object}"]`).click();
  await page.getByRole("heading", { name: "Versions" }).waitFor();
  await page.getByRole("link", { name: "Commits", exact: true }).click();
  await page.getByRole("link", { name: "Older commits" }).click();
  await page.waitForURL(/before=/);
};
