// Every kind of page passes axe, in light and dark, on a desktop and on a phone.
import assert from "node:assert/strict";

/** The rules of each colour scheme, and how many of them apply to every page at least. In dark, only the colours differ; their contrast is 7 to 1. */
const RULES = {
  light: { tags: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "cat.color"], least: 10 },
  dark: { tags: ["cat.color"], least: 1 },
};
const SIZES = [
  { width: 1280, height: 800 },
  { width: 360, height: 740 },
];

/** Returns the violations of a page that has axe, each as one text. */
const violations = (page, rules) =>
  page.evaluate(async ({ tags, least }) => {
    const runOnly = { type: "tag", values: tags };
    const result = await window.axe.run(document, { runOnly, resultTypes: ["violations"] });
    if (result.passes.length < least) return [`only ${result.passes.length} rules were applied`];
    return result.violations.flatMap(({ id, nodes }) =>
      nodes.slice(0, 3).map((node) => `${id}: ${node.html} ${node.failureSummary}`),
    );
  }, rules);

/** Returns what is wider than the window. */
const overflow = (page) =>
  page.evaluate(() => {
    const root = document.documentElement;
    if (root.scrollWidth <= root.clientWidth) return [];
    const isWide = (element) => element.getBoundingClientRect().right > root.clientWidth + 1;
    const wide = [...document.querySelectorAll("body *")].filter(isWide).map((element) => element.outerHTML.slice(0, 200));
    return [`scrolls sideways: ${root.scrollWidth} px`, ...wide.slice(0, 5)];
  });

/** Checks a page in both colour schemes, on a desktop and on a phone. Returns what is wrong, each as one text. */
export const check = async (stage, page) => {
  const found = [];
  await page.evaluate(stage.require("axe-core").source);
  for (const viewport of SIZES) {
    await page.setViewportSize(viewport);
    for (const [colorScheme, rules] of Object.entries(RULES)) {
      await page.emulateMedia({ colorScheme });
      const texts = await violations(page, rules);
      found.push(...texts.map((text) => `${page.url()} ${colorScheme} ${viewport.width}: ${text}`));
    }
    found.push(...(await overflow(page)).map((text) => `${page.url()} ${viewport.width}: ${text}`));
  }
  return found;
};

export const play = async (stage) => {
  const [user, stranger] = [await stage.context(), await stage.stranger()];
  const visits = stage.settings.pages.map((path) => [path, user]).concat([["/", stranger]]);
  const found = [];
  for (const [path, context] of visits) {
    const page = await stage.page(path, context);
    found.push(...(await check(stage, page)));
    await page.close();
  }
  assert.equal(found.length, 0, found.slice(0, 20).join("\n"));
  stage.say(`axe found nothing on ${visits.length} pages`);
};
