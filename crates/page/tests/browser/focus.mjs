// The focus of the keyboard.
import assert from "node:assert/strict";

/** Describes the element with the focus: what it is, and how the focus is shown. */
export const focused = (page) =>
  page.evaluate(() => {
    const element = document.activeElement;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    const isInView = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    return {
      name: element.localName,
      id: element.id,
      text: element.textContent.trim().slice(0, 80),
      href: element.getAttribute("href"),
      isVisible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && isInView,
    };
  });

/** Presses Tab until the focus is where it is wanted; fails at the end of the page. */
export const tabTo = async (page, is, what) => {
  for (let presses = 0; presses < 500; presses++) {
    await page.keyboard.press("Tab");
    const now = await focused(page);
    if (now.name === "body") break;
    assert.ok(now.isVisible, `the focus is visible on ${JSON.stringify(now)}`);
    if (is(now)) return now;
  }
  return assert.fail(`Tab reaches ${what} of ${page.url()}`);
};

/** Walks a page with Tab from its start to its end: each control is reached once, in the order of the text, with a visible focus. */
export const assertTabOrder = async (page) => {
  const expected = await page.evaluate(() => {
    const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    const isUsable = (element) => element.checkVisibility() && !element.disabled;
    window.order = [...document.querySelectorAll(controls)].filter(isUsable);
    document.activeElement.blur();
    getSelection().removeAllRanges();
    return window.order.length;
  });
  for (let number = 0; number < expected; number++) {
    await page.keyboard.press("Tab");
    const isNext = await page.evaluate((number) => document.activeElement === window.order[number], number);
    const now = await focused(page);
    assert.ok(isNext, `${page.url()}: control ${number} has the focus, not ${JSON.stringify(now)}`);
    assert.ok(now.isVisible, `${page.url()}: the focus is visible on ${JSON.stringify(now)}`);
  }
};
