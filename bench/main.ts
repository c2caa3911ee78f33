// npm run bench -- <name> [options]: run one benchmark. It prints a Markdown table and appends JSON lines to
// bench/results/. To add a benchmark, write a file that exports its Command and add that command to `benches`.
import { Command } from "commander";
import { agentCommand } from "./agent/agent.ts";
import { compactionCommand } from "./compaction/compaction.ts";
import { engineCommand } from "./engine/engine.ts";
import { fidelityCommand } from "./fidelity/fidelity.ts";
import { kernelCommands } from "./kernels/kernels.ts";
import { loadCommand } from "./load/load.ts";
import { lookupCommand } from "./lookup/lookup.ts";
import { memoryCommand } from "./memory/memory.ts";
import { perplexityCommand } from "./perplexity/perplexity.ts";
import { profileCommand } from "./profile/profile.ts";
import { replayCommand } from "./replay/replay.ts";
import { reportCommand } from "./report/write.ts";
import { soakCommand } from "./soak/soak-command.ts";
import { throughputCommand } from "./throughput/throughput.ts";

const benches: readonly Command[] = [
  engineCommand,
  throughputCommand,
  compactionCommand,
  replayCommand,
  reportCommand,
  fidelityCommand,
  profileCommand,
  ...kernelCommands(),
  loadCommand,
  lookupCommand,
  memoryCommand,
  perplexityCommand,
  agentCommand,
  soakCommand,
];

const program = new Command("bench").description("Benchmarks of Pocket. Every row names its condition.");
for (const bench of benches) program.addCommand(bench);
await program.parseAsync();
