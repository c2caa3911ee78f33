"""One conversation after another in PyTorch, asked through a pipe: a JSON object a line in, one a line out.

    python driver.py FILE.gguf SHA256 THREADS [FOLDER]

The weights are those of the file, dequantised by transformers; float32 throughout. It knows what a splice is and
nothing of why one was planned: it shares no arithmetic with Pocket. Says {"ready": versions, "vocab": n} once the
model is open. Then

    {"do": "hold", "tokens": [...]}                     a cold prefill of the resident conversation
    {"do": "oracle", "tokens": [...], "readings": [{"prompt": [...], "text": [...]}], "ours": path}
                                                        a cold prefill that the arms are compared with
    {"do": "arm", "from": "resident" | "oracle", "keep": n, "edits": [[{"start", "end", "tokens"}]],
     "chunk": n, "turned": bool}                        n leading cells of that one, then edit after edit

An edit's splices are in the coordinates of what is there, half-open. Survivors keep their values; their keys are
turned by how far they move (not so if `turned` is false: a control). What is inserted is computed where it then
stands and sees only cells in front of it, survivors among them. Every answer has `computed` (tokens run through the
model, the readings left out), and of an oracle and an arm `seen`, one of each reading: along its text `likeliest`
(ids), `logprobs` (of the text's own tokens) and `divergences`, KL(oracle || arm) in nats. For an oracle the other
side of those is `ours`, if it is given: a file of float32 logprobs, a row a token, reading after reading. Or
`error` alone. FOLDER keeps cold prefills, named by all that they are computed from.
"""
import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache, GgufConfig

ROWS = 32  # distributions in float64 at a time


class Cells:
    """Rotated keys and values of positions [0, length), a pair of tensors a layer: (1, heads, length, headDim)."""

    def __init__(self, layers):
        self.layers = layers

    @property
    def length(self) -> int:
        return self.layers[0][0].shape[2]

    def pick(self, places) -> "Cells":
        return Cells([(keys[:, :, places], values[:, :, places]) for keys, values in self.layers])


class Driver:
    def __init__(self, gguf: Path, digest: str, threads: int, folder: Path | None):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        dense = GgufConfig(gguf_file=gguf.name, dequantize=True)
        self.model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent.resolve()), gguf_file=gguf.name, quantization_config=dense, dtype=torch.float32,
            attn_implementation="sdpa").eval()
        config = self.model.config
        self.vocab = config.vocab_size
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.frequencies = self.model.model.rotary_emb.inv_freq.double()
        self.versions = f"transformers {transformers.__version__}, torch {torch.__version__}, float32"
        self.digest, self.folder = digest, folder
        self.bases: dict[str, Cells] = {}
        self.readings, self.logits = [], []

    def hold(self, tokens):
        self.bases = {"resident": self.cold(tokens)}
        return {"computed": len(tokens)}

    def oracle(self, tokens, readings, ours=None):
        self.bases["oracle"] = self.cold(tokens)
        self.readings = readings
        self.logits = [self.read(self.bases["oracle"], reading) for reading in readings]
        rows = sum(len(logits) for logits in self.logits)
        other = self.logits
        if ours is not None:
            held = numpy.memmap(ours, dtype="<f4", mode="r").reshape(rows, self.vocab)
            other = torch.from_numpy(numpy.array(held)).split([len(logits) for logits in self.logits])
        seen = [self.look(*three) for three in zip(readings, self.logits, self.logits)]
        for one, logits, theirs in zip(seen, self.logits, other):
            one["divergences"] = divergences(logits, theirs)
        return {"computed": len(tokens), "seen": seen}

    def arm(self, keep, edits, chunk, turned, **asked):
        cells = self.bases[asked["from"]].pick(slice(0, keep))
        for splices in edits:
            cells = self.edit(cells, splices, chunk, turned)
        seen = [self.look(reading, logits, self.read(cells, reading))
                for reading, logits in zip(self.readings, self.logits)]
        return {"computed": sum(len(one["tokens"]) for splices in edits for one in splices), "seen": seen}

    def cold(self, tokens) -> Cells:
        named = f"{self.versions} {self.digest} {json.dumps(tokens)}"
        name = hashlib.sha256(named.encode()).hexdigest()[:24]
        file = self.folder / f"{name}.torch" if self.folder else None
        if file and file.exists():
            return Cells(torch.load(file, weights_only=True))
        nothing = torch.zeros(1, self.kv_heads, 0, self.head_dim)
        empty = Cells([(nothing, nothing)] * self.model.config.num_hidden_layers)
        cells = self.edit(empty, [{"start": 0, "end": 0, "tokens": tokens}], 512, True)
        if file:
            torch.save(cells.layers, file.with_suffix(".part"))
            file.with_suffix(".part").rename(file)
        return cells

    def edit(self, cells: Cells, splices, chunk: int, turned: bool) -> Cells:
        stay, shifts, gaps, tokens = [], [], [], []
        at = shift = 0
        for one in [*splices, {"start": cells.length, "end": cells.length, "tokens": []}]:
            if not at <= one["start"] <= one["end"] <= cells.length:
                raise ValueError(f"splice [{one['start']}, {one['end']}) of {cells.length} cells, behind {at}")
            stay += range(at, one["start"])
            shifts += [shift] * (one["start"] - at)
            gaps += range(one["start"] + shift, one["start"] + shift + len(one["tokens"]))
            tokens += one["tokens"]
            shift += len(one["tokens"]) - (one["end"] - one["start"])
            at = one["end"]
        stay, shifts = torch.tensor(stay, dtype=torch.long), torch.tensor(shifts, dtype=torch.long)
        kept = cells.pick(stay)
        if turned:
            kept = self.turn(kept, shifts)
        filled, positions, _ = self.run(kept, stay + shifts, tokens, gaps, chunk)
        order = positions.argsort()
        if not torch.equal(positions[order], torch.arange(len(positions))):
            raise ValueError("the cells of an edit are not adjacent")
        return filled.pick(order)

    def turn(self, cells: Cells, shifts) -> Cells:
        """Keys as they would be, had the same vectors been rotated for their new places."""
        angles = shifts.double()[:, None] * self.frequencies
        cos, sin = angles.cos().float(), angles.sin().float()
        def turned(keys):
            first, second = keys.chunk(2, -1)
            return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        return Cells([(turned(keys), values) for keys, values in cells.layers])

    def run(self, cells: Cells, positions, tokens, places, chunk: int):
        """The tokens at their places behind the cells in memory, not in position. Gives all, and hidden rows."""
        hidden = []
        for at in range(0, len(tokens), chunk):
            own = torch.tensor(places[at:at + chunk])
            positions = torch.cat([positions, own])
            cache = DynamicCache(cells.layers)
            output = self.model.model(
                input_ids=torch.tensor([tokens[at:at + chunk]]), position_ids=own[None], cache=cache,
                attention_mask=(positions[None] <= own[:, None])[None, None], use_cache=True)
            hidden.append(output.last_hidden_state[0])
            cells = Cells([(layer.keys, layer.values) for layer in cache.layers])
        return cells, positions, hidden

    def read(self, cells: Cells, reading):
        """Logits at each place of the text behind its prompt: (tokens, vocab)."""
        tokens = [*reading["prompt"], *reading["text"][:-1]]
        places = list(range(cells.length, cells.length + len(tokens)))
        _, _, hidden = self.run(cells, torch.arange(cells.length), tokens, places, 512)
        return self.model.lm_head(torch.cat(hidden)[-len(reading["text"]):])

    def look(self, reading, oracle, own):
        text = torch.tensor(reading["text"])[:, None]
        return {"likeliest": own.argmax(-1).tolist(),
                "logprobs": [value for part, ids in zip(own.split(ROWS), text.split(ROWS))
                             for value in part.double().log_softmax(-1).gather(1, ids)[:, 0].tolist()],
                "divergences": divergences(oracle, own)}


def divergences(oracle, own) -> list[float]:
    """KL(oracle || own) a row, in nats; of logits or of logprobs."""
    found = []
    for p, q in zip(oracle.split(ROWS), own.split(ROWS)):
        p, q = p.double().log_softmax(-1), q.double().log_softmax(-1)
        found += (p.exp() * (p - q)).sum(-1).tolist()
    return found


def main(gguf: str, digest: str, threads: str, folder: str | None = None) -> None:
    # Libraries may print: their output is sent to standard error, so that the pipe carries answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    say = lambda answer: print(json.dumps(answer), file=answers, flush=True)
    driver = Driver(Path(gguf), digest, int(threads), Path(folder) if folder else None)
    say({"ready": driver.versions, "vocab": driver.vocab})
    for line in sys.stdin:
        asked = json.loads(line)
        work = {"hold": driver.hold, "oracle": driver.oracle, "arm": driver.arm}[asked.pop("do")]
        try:
            say(work(**asked))
        except Exception as failure:
            say({"error": f"{type(failure).__name__}: {failure}"})


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
