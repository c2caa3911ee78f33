// Started as a process by kill.test.ts: resumes a run, compacts it, and kills itself before the statement
// with the number `killAt`. One past the last statement: after the commit, before anything else.
import { Store } from "../../src/context/store.ts";
import { count } from "../support/fake-chat.ts";

const [file, killAt] = [process.argv[2]!, Number(process.argv[3])];
let isArmed = false;
let statements = 0;
const step = () => {
  if (isArmed && statements++ === killAt) process.kill(process.pid, "SIGKILL");
};
const store = new Store(file, { trace: step });
const { conversation } = store.resume("run", count);
isArmed = true;
conversation.compact({ start: 1, end: 3 }, "What was read.");
step();
console.log(`survived ${statements}`);
