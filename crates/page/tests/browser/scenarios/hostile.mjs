// Hostile names, users, messages and values are text on every page that shows them.
import assert from "node:assert/strict";

/** Pages that are visited at most. */
const VISITED = 150;

/** Moves over, focuses and clicks what could have a handler, and returns what a page must not have. */
const provoke = () => {
  const wrong = [];
  const own = ["script[src='/page.js']", "link[href='/page.css']", "link[href='/icon.svg']"].join(", ");
  const active = "script, link, img, iframe, object, embed, base, style, video, audio, [style], [srcdoc], meta[http-equiv]";
  for (const element of document.querySelectorAll(active)) {
    if (!element.matches(own)) wrong.push(element.outerHTML.slice(0, 200));
  }
  for (const element of document.querySelectorAll("*")) {
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on")) wrong.push(`${name}=${value}`);
      if (["href", "src", "action", "xlink:href"].includes(name) && new URL(value, location).origin !== location.origin) {
        wrong.push(`${name}=${value}`);
      }
    }
    element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    element.focus?.();
  }
  if (window.ran) wrong.push(`ran: ${window.ran}`);
  // Characters that change the direction of text, and control characters.
  const text = document.documentElement.textContent;
  if (/[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u000b-\u001f\u007f]/.test(text)) wrong.push("control characters");
  return wrong;
};

export const play = async (stage) => {
  const { starts, texts, long } = stage.settings;
  const context = await stage.context();
  const page = await context.newPage();
  const waiting = [...starts];
  const visited = new Set();
  const shown = new Set();
  while (waiting.length > 0 && visited.size < VISITED) {
    const path = waiting.shift();
    if (visited.has(path)) continue;
    visited.add(path);
    const response = await page.goto(stage.origin + path);
    assert.ok(response.status() < 500, `${path} has status ${response.status()}`);
    assert.deepEqual(await page.evaluate(provoke), [], path);
    const body = await page.evaluate(() => document.body.textContent);
    for (const text of texts) if (body.includes(text)) shown.add(text);
    const links = await page.locator("main a").evaluateAll((links) => links.map((link) => link.pathname + link.search));
    waiting.push(...links.filter((link) => !visited.has(link)));
  }
  assert.deepEqual([...texts].filter((text) => !shown.has(text)), [], "all of it is shown as text");
  assert.ok(visited.size > starts.length, "links were followed");

  // Every object opens by its own link.
  await page.goto(`${stage.origin}/search?q=shop`);
  const objects = await page.locator("main a[href^='/object']").count();
  assert.equal(objects, stage.settings.objects);
  for (let number = 0; number < objects; number++) {
    await page.goto(`${stage.origin}/search?q=shop`);
    const found = page.locator("main a[href^='/object']").nth(number);
    const name = await found.textContent();
    await found.click();
    await page.locator("h1", { hasText: name }).waitFor();
  }

  // A long value is cut, and all of it is one link away.
  await page.goto(stage.origin + long.path);
  const cut = await page.evaluate(() => document.body.textContent.length);
  assert.ok(cut < 200_000, `the page has ${cut} characters`);
  await page.getByRole("link", { name: "more characters" }).first().click();
  await page.waitForURL(/whole=1/);
  const whole = await page.evaluate(() => document.body.textContent.length);
  assert.ok(whole >= long.characters, `the page has ${whole} characters`);
  assert.deepEqual(await page.evaluate(provoke), []);
  stage.say(`${visited.size} pages with hostile content are inert`);
};
