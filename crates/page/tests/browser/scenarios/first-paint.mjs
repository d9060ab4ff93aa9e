// How soon a page with many commits is painted.
import assert from "node:assert/strict";

/** Loads of the page; the first one is that of a new browser. */
const LOADS = 5;

/** Returns the milliseconds from the navigation to the first and to the largest paint. */
const paints = () =>
  new Promise((resolve) => {
    new PerformanceObserver((list) => {
      const [first] = performance.getEntriesByName("first-contentful-paint");
      const largest = list.getEntries().at(-1);
      if (first && largest) resolve([first.startTime, largest.startTime].map(Math.round));
    }).observe({ type: "largest-contentful-paint", buffered: true });
  });

export const play = async (stage) => {
  const context = await stage.context();
  const measured = [];
  for (let load = 0; load < LOADS; load++) {
    const page = await stage.page("/", context);
    const [first, largest] = await page.evaluate(paints);
    assert.ok(first > 0 && largest >= first, `painted after ${first} and ${largest} ms`);
    measured.push({ first, largest });
    assert.equal(await page.locator("ol.commits > li").count(), stage.settings.rows);
    await page.close();
  }
  const of = (name) => measured.map((paint) => paint[name]).join(", ");
  stage.say(`${stage.settings.commits} commits: first paint after ${of("first")} ms, largest after ${of("largest")} ms`);
  const worst = Math.max(...measured.map((paint) => paint.largest));
  if (stage.settings.limit) assert.ok(worst <= stage.settings.limit, `painted after ${worst} ms`);
};
