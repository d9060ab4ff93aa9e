// A browser with the page open in it, and a watch for what no page may ever do.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

/** Milliseconds that a step may take on a busy machine. */
const PATIENCE = 60_000;
const DESKTOP = { width: 1280, height: 800 };

/** Runs in pages before their own scripts. */
const report = () => {
  document.addEventListener("securitypolicyviolation", (event) => {
    console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
  });
};

export class Stage {
  /** Starts the browser. `test` has the functions `say` and `ask`. */
  static async open(settings, test) {
    const stage = new Stage();
    const require = createRequire(`${settings.modules}/`);
    const { chromium } = require("playwright-core");
    Object.assign(stage, test, { settings, require, faults: [], origin: new URL(settings.url).origin, login: undefined });
    // Software rendering: the same pictures on all machines.
    const args = ["--disable-gpu", "--font-render-hinting=none"];
    stage.browser = await chromium.launch({ executablePath: settings.chromium, args, timeout: PATIENCE });
    return stage;
  }

  /** Returns the ID of the browser's process. */
  async process() {
    const session = await this.browser.newBrowserCDPSession();
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    await session.detach();
    return processInfo.find((process) => process.type === "browser").id;
  }

  /** Opens a profile without a login. Another server may be visited only if it is not watched. */
  async stranger({ isWatched = true, ...options } = {}) {
    const context = await this.browser.newContext({ viewport: DESKTOP, reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(PATIENCE);
    if (isWatched) await this.watch(context);
    return context;
  }

  /** Records what no page may ever do. */
  async watch(context) {
    await context.addInitScript(report);
    const fault = (text) => this.faults.push(text);
    context.on("dialog", (dialog) => {
      fault(`dialog ${dialog.message()}`);
      dialog.dismiss();
    });
    context.on("request", (request) => {
      if (new URL(request.url()).origin !== this.origin) fault(`request to ${request.url()}`);
    });
    context.on("weberror", (error) => fault(`script failed: ${error.error()}`));
    context.on("console", (message) => {
      // Browsers report each response of a problem page, too.
      const isStatus = message.text().startsWith("Failed to load resource");
      if (message.type() === "error" && !isStatus) fault(`console: ${message.text()}`);
    });
  }

  /** Opens a profile that is logged in: by the printed URL the first time, which works once, and by its cookie then. */
  async context(options = {}) {
    if (!this.login) {
      const first = await this.stranger();
      const page = await first.newPage();
      await page.goto(this.settings.url);
      assert.equal(page.url(), `${this.origin}/`, "the token is not in the address");
      this.login = await first.storageState();
      await first.close();
    }
    return this.stranger({ storageState: this.login, ...options });
  }

  /** Opens a page of the server in a profile, a new one by default. */
  async page(path, context) {
    const page = await (context ?? (await this.context())).newPage();
    await page.goto(this.origin + path);
    return page;
  }

  /** Closes the browser. Fails if a page did what no page may. */
  async close() {
    await this.browser.close();
    assert.deepEqual(this.faults, [], "no page has dialogs, foreign requests, errors or violations of its policy");
  }
}
