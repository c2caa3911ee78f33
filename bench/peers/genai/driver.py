"""ONNX Runtime GenAI on one model folder, asked through a pipe: a JSON object a line in, one a line out.

    python driver.py FOLDER THREADS CONTEXT

Says {"ready": its version} once the model is open. Then, token ids in, seconds out, measured in here:

    {"do": "prefill", "context": [...], "added": [...]}    `added` and one token behind `context`
    {"do": "decode", "context": [...], "count": n}         n greedy steps behind `context`

What `context` shares with the last one is not computed again, the rest of it before the clock starts. Every answer
has `seconds`, `grown` (tokens that the sequence grew by in them), `ids` (the last of those that were chosen) and
`peakBytes` (VmHWM); or `error` alone.
"""
import json
import os
import sys
import time
from pathlib import Path

import numpy
import onnxruntime_genai as genai

CHUNK = 512  # tokens of one run of the model while a prompt is read, as Pocket's server has it


class Driver:
    def __init__(self, folder: Path, threads: int, context: int):
        config = genai.Config(str(folder))
        vocab = json.loads((folder / "genai_config.json").read_text())["model"]["vocab_size"]
        # Left to itself it takes one core. An end token would end the measurement, so that is a padding row's.
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {
            "decoder": {"session_options": options}, "eos_token_id": vocab - 1}}))
        self.model = genai.Model(config)
        params = genai.GeneratorParams(self.model)
        params.set_search_options(max_length=context, do_sample=False)
        self.generator = genai.Generator(self.model, params)
        self.held: list[int] = []

    def prefill(self, context: list[int], added: list[int]) -> dict:
        self.hold(context)
        def work():
            self.append(added)
            self.generator.generate_next_token()
        return self.timed(work)

    def decode(self, context: list[int], count: int) -> dict:
        # The first token comes from the context's last row and is no step of its own.
        self.hold(context[:-1])
        self.append(context[-1:])
        self.generator.generate_next_token()
        def work():
            for _ in range(count):
                self.generator.generate_next_token()
        return self.timed(work)

    def hold(self, context: list[int]) -> None:
        """Makes `context` what the sequence holds."""
        pairs = zip(self.held, context)
        kept = next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(self.held), len(context)))
        self.generator.rewind_to(kept)
        self.append(context[kept:])
        self.held = context

    def append(self, tokens: list[int]) -> None:
        for at in range(0, len(tokens), CHUNK):
            self.generator.append_tokens(numpy.array(tokens[at:at + CHUNK], dtype=numpy.int32))

    def timed(self, work) -> dict:
        before = self.generator.token_count()
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
        grown = self.generator.token_count() - before
        ids = [int(token) for token in self.generator.get_sequence(0)[-min(grown, 32):]]
        return {"seconds": seconds, "grown": grown, "ids": ids, "peakBytes": peak_bytes()}


def peak_bytes() -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None


def main(folder: Path, threads: int, context: int) -> None:
    # The library may print: its output is sent to standard error, so that the pipe carries answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    say = lambda answer: print(json.dumps(answer), file=answers, flush=True)
    driver = Driver(folder, threads, context)
    say({"ready": genai.__version__})
    for line in sys.stdin:
        asked = json.loads(line)
        work = {"prefill": driver.prefill, "decode": driver.decode}[asked.pop("do")]
        try:
            say(work(**asked))
        except Exception as failure:
            say({"error": f"{type(failure).__name__}: {failure}"})


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
