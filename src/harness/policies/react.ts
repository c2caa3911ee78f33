// ReAct (Yao et al. 2022, arXiv 2210.03629): every message stays in the history, and the run ends when the
// window is full. The baseline of comparisons.
import { PocketError } from "../../errors.ts";
import type { Policy } from "./policy.ts";

export const react: Policy = {
  name: "react",
  prompt: "",
  tools: [],
  trailer: () => undefined,
  async call({ name }) {
    throw new PocketError("BAD_ARGUMENT", `ReAct has no tools of its own, so none named '${name}'.`);
  },
};
