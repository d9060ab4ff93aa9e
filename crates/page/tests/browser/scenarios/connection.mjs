// Tabs that are hidden, and a server that stops.
import assert from "node:assert/strict";

/** Pretends that a tab is hidden or visible: a browser without a window shows all of them. */
const setVisibility = (page, state) =>
  page.evaluate((state) => {
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);

const shows = (page, commit) => page.locator(`a[href="/commit/${commit}"]`).first();
const status = (page, text) => page.locator("#status", { hasText: text }).waitFor();

export const play = async (stage) => {
  const context = await stage.context();
  const streams = { opened: 0, closed: 0 };
  const isStream = (request) => new URL(request.url()).pathname === "/events";
  context.on("request", (request) => (streams.opened += isStream(request) ? 1 : 0));
  context.on("requestfailed", (request) => (streams.closed += isStream(request) ? 1 : 0));
  const one = await stage.page("/", context);
  const other = await stage.page("/", context);

  // Both tabs follow, and a hidden one has no connection.
  const first = await stage.ask("write");
  await Promise.all([shows(one, first.commit).waitFor(), shows(other, first.commit).waitFor()]);
  assert.deepEqual(streams, { opened: 2, closed: 0 });
  const closed = context.waitForEvent("requestfailed", isStream);
  await setVisibility(other, "hidden");
  await closed;
  const second = await stage.ask("write");
  await shows(one, second.commit).waitFor();
  assert.equal(await shows(other, second.commit).count(), 0, "a hidden tab reads nothing");

  // Visible again, it shows what it missed.
  await setVisibility(other, "visible");
  await shows(other, second.commit).waitFor();
  assert.equal(streams.opened, 3);

  // A page that was left and comes back follows, too.
  await one.goto(`${stage.origin}/search`);
  await one.goBack();
  const third = await stage.ask("write");
  await shows(one, third.commit).waitFor();

  await stage.ask("stop");
  await Promise.all([one, other].map((page) => status(page, "The connection is lost; trying again.")));
  assert.ok(await shows(one, third.commit).isVisible(), "what was read stays");

  // Another run of the program has another login.
  await stage.ask("restart");
  await Promise.all([one, other].map((page) => status(page, "open its new URL")));
  await one.reload();
  await one.getByRole("heading", { name: "Forbidden" }).waitFor();
};
