// The pictures of the documentation.
import assert from "node:assert/strict";
import { stat } from "node:fs/promises";

/** Bytes of a picture: readers of the documentation download them. */
const LARGEST = 150 << 10;
const SIZES = { desktop: { width: 1000, height: 640 }, phone: { width: 390, height: 700 } };

export const play = async (stage) => {
  const { folder, pictures } = stage.settings;
  for (const [name, path, colorScheme, size] of pictures) {
    const context = await stage.context({ colorScheme, viewport: SIZES[size] });
    const page = await stage.page(path, context);
    await page.evaluate(() => document.fonts.ready);
    const file = `${folder}/${name}.png`;
    await page.screenshot({ path: file });
    const { size: bytes } = await stat(file);
    stage.say(`${name}: ${bytes} bytes`);
    assert.ok(bytes <= LARGEST, `${file} has ${bytes} bytes`);
    await context.close();
  }
};
