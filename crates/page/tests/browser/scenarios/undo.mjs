// The undo: with the keyboard, without scripts, and never by a page of another server.
import assert from "node:assert/strict";
import { createServer } from "node:http";

import { assertTabOrder, tabTo } from "../focus.mjs";
import { check } from "./accessibility.mjs";

/** Serves a hostile page on another port of this machine: cookies have no port, so the browser sends them there and back. */
const attacker = async (target) => {
  const form = `<form method="post" action="${target}"><input name="token" value="guess"><button>Free tea</button></form>`;
  const server = createServer((request, response) => {
    response.setHeader("content-type", "text/html; charset=utf-8");
    response.end(`<!doctype html><title>tea</title>${form}<iframe src="${target}"></iframe>`);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}/` };
};

export const play = async (stage) => {
  const { commit } = stage.settings;
  const undone = async () => (await stage.ask("undone")).count;

  // With the keyboard alone, from the commit to the outcome.
  const page = await stage.page(`/commit/${commit}`);
  await tabTo(page, ({ href }) => href === `/commit/${commit}/undo`, "the preview");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Undo" }).waitFor();
  assert.equal(await undone(), 0, "a preview changes nothing");
  await tabTo(page, ({ text }) => text.startsWith("Undo: change"), "the undo");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Partly undone" }).waitFor();
  assert.equal(await undone(), 1);
  await assertTabOrder(page);
  assert.deepEqual(await check(stage, page), []);

  // The form works without scripts.
  const plain = await stage.page(`/commit/${commit}/undo`, await stage.context({ javaScriptEnabled: false }));
  await plain.getByRole("button", { name: "Undo: change" }).click();
  await plain.getByRole("heading", { name: "Partly undone" }).waitFor();
  assert.equal(await undone(), 2);

  // A page of another server neither undoes nor shows anything, in a browser that is logged in.
  const { server, url } = await attacker(`${stage.origin}/commit/${commit}/undo`);
  const victim = await stage.context({ isWatched: false });
  const hostile = await victim.newPage();
  await hostile.goto(url);
  const frame = hostile.frames().find((frame) => frame !== hostile.mainFrame());
  assert.ok(!(await frame.locator("body").innerText()).includes("Undo"), "no page of another server frames it");
  const read = await hostile.evaluate((target) => fetch(target, { credentials: "include" }).then(() => "read", () => "blocked"), stage.origin);
  assert.equal(read, "blocked", "no page of another server reads it");
  await hostile.getByRole("button").click();
  await hostile.getByText("comes from another web page").waitFor();
  assert.equal(await undone(), 2);
  server.close();
};
