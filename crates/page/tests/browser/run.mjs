// Plays a scenario in a browser: node run.mjs SCENARIO
//
// Each line on standard output is a message: `{"browser": PID}`, `{"say": TEXT}`, or `{"ask": NAME, …}`, which a line on standard
// input answers. The first line on standard input has the settings.
import { createInterface } from "node:readline";

import { Stage } from "./stage.mjs";

/** Milliseconds after which a scenario has failed. */
const LIMIT = 240_000;

const lines = createInterface({ input: process.stdin });
// The test was ended.
lines.on("close", () => process.exit(1));
setTimeout(() => {
  console.error(`the scenario was not over after ${LIMIT / 1000} seconds`);
  process.exit(1);
}, LIMIT);

const replies = lines[Symbol.asyncIterator]();
const receive = async () => JSON.parse((await replies.next()).value);
const send = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

const { play } = await import(`./scenarios/${process.argv[2]}.mjs`);
const settings = await receive();
const stage = await Stage.open(settings, {
  say: (text) => send({ say: text }),
  ask: async (name, parameters = {}) => {
    send({ ask: name, ...parameters });
    return receive();
  },
});
send({ browser: await stage.process() });
await play(stage);
await stage.close();
// The open standard input would keep the process.
process.exit(0);
