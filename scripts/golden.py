"""Writes the golden numbers in test/golden: what an independent reference computes from a GGUF file.

The reference is transformers on torch: CPU, float32, eager attention, one thread, dequantised weights of the
file. It writes token ids, the logits of the last 16 positions, a greedy continuation, and the perplexity of
test/golden/corpus.txt. It needs no network and imports nothing of Pocket.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 transformers==5.24.0 accelerate gguf==0.19.0
    venv/bin/python scripts/golden.py qwen2.5-coder-0.5b-instruct-q4_k_m.gguf test/golden/qwen2.5-coder-0.5b.json
    npx biome check --write test/golden

Reads prompts.json and corpus.txt in the folder of the output, writes the output and its entry of corpus.json there.
Two things replace or check transformers' GGUF loader. The tokenizer is built here, because the loader (5.24) drops
Qwen's NFC normaliser and SmolLM2's single digits. Every loaded tensor is compared with the `gguf` package, because a
loader that changes a weight would make a wrong reference.
"""
import hashlib
import json
import platform
import sys
from pathlib import Path

import gguf
import numpy
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Tokenizer

POSITIONS, TOP, GREEDY, WINDOW = 16, 20, 24, 2048
CONTROL, USER_DEFINED = 3, 4  # GGUF token types that are matched whole in the text


def main(gguf_path: Path, out_path: Path) -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    reader = gguf.GGUFReader(gguf_path)
    encoder, plain = build_tokenizers(reader)
    model = load_model(gguf_path, reader)
    source = {"file": gguf_path.name, "sha256": hashlib.sha256(gguf_path.read_bytes()).hexdigest()}
    inputs = json.loads((out_path.parent / "prompts.json").read_text())
    write_json(out_path, {
        "source": source,
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__, "tokenizers": tokenizers.__version__,
                     "gguf": version_of("gguf"), "numpy": numpy.__version__},
        "arithmetic": {"dtype": "float32", "attention": "eager", "threads": 1},
        "prompts": [measure_prompt(model, encoder, prompt) for prompt in [*inputs["prompts"], long_prompt()]],
        "strings": [encode_string(encoder, plain, string) for string in inputs["strings"]],
    })
    corpus_path = out_path.parent / "corpus.json"
    entries = json.loads(corpus_path.read_text()) if corpus_path.exists() else {}
    corpus = (out_path.parent / "corpus.txt").read_bytes()
    entries[out_path.stem] = {"source": source, "corpusSha256": hashlib.sha256(corpus).hexdigest(),
                              **measure_corpus(model, encode(plain, corpus.decode()))}
    write_json(corpus_path, dict(sorted(entries.items())))


def build_tokenizers(reader):
    """The publisher's tokenizer, and one without added tokens, which treats all text as plain text."""
    field = lambda name: reader.fields["tokenizer." + name].contents()
    tokens, types = field("ggml.tokens"), field("ggml.token_type")
    added = [AddedToken(text, normalized=False, special=kind == CONTROL)
             for text, kind in zip(tokens, types) if kind in (CONTROL, USER_DEFINED)]
    vocab = {text: index for index, text in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in field("ggml.merges")]
    build = {"qwen2": qwen2_tokenizer, "smollm": smollm_tokenizer}[field("ggml.pre")]
    encoder = build(vocab, merges)
    encoder.add_tokens(added)
    encoder.chat_template = field("chat_template")
    names = [token.content for token in added]
    if encoder.convert_tokens_to_ids(names) != [vocab[name] for name in names]:
        raise SystemExit("an added token got a new id instead of its own; the tokenizer is wrong")
    pipeline = json.loads(encoder.backend_tokenizer.to_str())
    plain = Tokenizer.from_str(json.dumps({**pipeline, "added_tokens": [], "post_processor": None}))
    if {vocab[name] for name in names} & set(plain.encode("".join(names)).ids):
        raise SystemExit("the tokenizer without added tokens still recognises one")
    return encoder, plain


def qwen2_tokenizer(vocab, merges):
    # transformers' class has the publisher's pipeline: NFC, split, byte level.
    return Qwen2Tokenizer(vocab=vocab, merges=merges)


def smollm_tokenizer(vocab, merges):
    # The publisher's tokenizer.json: no normaliser, single digits, then GPT-2's byte level. The vocabulary lacks 21 bytes
    # and has no unknown token, so the library drops them.
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def encode(tokenizer, text: str) -> list[int]:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return encoding if isinstance(encoding, list) else encoding.ids


def encode_string(encoder, plain, string):
    """`plain` (without added tokens) is written only where it differs."""
    tokens, plain_tokens = encode(encoder, string["text"]), encode(plain, string["text"])
    return {**string, "tokens": tokens, **({} if plain_tokens == tokens else {"plain": plain_tokens})}


def load_model(path: Path, reader):
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").eval()
    config, state = model.config, model.state_dict()
    arch = {"qwen2": gguf.MODEL_ARCH.QWEN2, "llama": gguf.MODEL_ARCH.LLAMA}[config.model_type]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    held = {tensor.name: tensor for tensor in reader.tensors}
    for name, loaded in state.items():
        tensor = held.pop(names.get_name(name, try_suffixes=(".weight", ".bias")), None)
        if tensor is None and name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if tensor is None:
            raise SystemExit(f"{name}: transformers expects it, the file does not have it")
        want = gguf.dequantize(tensor.data, tensor.tensor_type)
        if config.model_type == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            # Rows (2i, 2i+1) of a head in the file are rows (i, i + headDim/2) in transformers.
            heads = len(want) // config.head_dim
            want = want.reshape(heads, config.head_dim // 2, 2, -1).swapaxes(1, 2).reshape(want.shape)
        if not numpy.array_equal(loaded.numpy(), want):
            raise SystemExit(f"{name}: transformers loaded other values than the gguf package reads")
    if held:
        raise SystemExit(f"transformers left out {sorted(held)}")
    return model


def long_prompt():
    """Over 2,000 tokens: a table from a linear congruential generator, then the beginning of one of its rows."""
    state, rows = 20240229, []
    colours = ["amber", "birch", "coral", "dusk", "ember", "fern", "grey", "hazel"]
    places = ["quay", "mill", "bridge", "ferry", "tower", "garden", "market", "school"]
    def draw(limit):
        nonlocal state
        state = (state * 1103515245 + 12345) % 2**31
        return state // 65536 % limit
    for row in range(96):
        rows.append(f"- row {row}: the {colours[draw(8)]} box at the {places[draw(8)]} holds "
                    f"{draw(900) + 100} nails and {draw(9) + 1} hinges.")
    ending = "Row 47 once more, word for word:\n- row 47: the"
    return {"name": "long-table", "text": "\n".join([*rows, "", ending])}


def measure_prompt(model, tokenizer, prompt):
    text = prompt.get("text")
    if text is None:
        text = tokenizer.apply_chat_template(prompt["messages"], tools=prompt.get("tools"), tokenize=False,
                                             add_generation_prompt=True)
    tokens = encode(tokenizer, text)
    start = max(0, len(tokens) - POSITIONS)
    output = model(torch.tensor([tokens]), use_cache=True, logits_to_keep=len(tokens) - start)
    logits = output.logits[0].double()
    best = logits.topk(TOP)
    logsumexp = logits.logsumexp(-1)
    rest = (logits - logsumexp[:, None]).exp().scatter(1, best.indices, 0).sum(-1)
    greedy, margins = continue_greedily(model, output, model.config.eos_token_id)
    print(f"{prompt['name']}: {len(tokens)} tokens -> {tokenizer.decode(greedy)!r}", flush=True)
    return {"name": prompt["name"], "text": text, "template": "messages" in prompt, "tokens": tokens,
            "positions": list(range(start, len(tokens))), "logsumexp": [digits(x, 9) for x in logsumexp.tolist()],
            "rest": [digits(x, 6) for x in rest.tolist()],
            "top": [{"ids": ids, "logits": [digits(x, 7) for x in values]}
                    for ids, values in zip(best.indices.tolist(), best.values.tolist())],
            "greedy": greedy, "greedyMargins": [digits(x, 3) for x in margins]}


def continue_greedily(model, output, end_id: int):
    """Up to GREEDY ids, the last of which may be the end of text; and the margin of each over the second best logit."""
    ids, margins = [], []
    while True:
        first, second = output.logits[0, -1].topk(2).values.tolist()
        ids.append(output.logits[0, -1].argmax().item())
        margins.append(first - second)
        if len(ids) == GREEDY or ids[-1] == end_id:
            return ids, margins
        output = model(torch.tensor([ids[-1:]]), cache=output.cache, use_cache=True)


def measure_corpus(model, tokens: list[int]):
    """Windows are independent and do not overlap; the first token of a window is not scored. In nats."""
    windows = []
    for start in range(0, len(tokens), WINDOW):
        ids = torch.tensor(tokens[start:start + WINDOW])
        hidden = model.model(ids[None, :-1], use_cache=False).last_hidden_state[0]
        nll = sum(torch.nn.functional.cross_entropy(model.lm_head(rows).double(), wanted, reduction="sum").item()
                  for rows, wanted in zip(hidden.split(256), ids[1:].split(256)))
        windows.append({"start": start, "end": start + len(ids), "nll": digits(nll, 9)})
        print(f"corpus [{start}, {start + len(ids)}): {nll / (len(ids) - 1):.5f} nats a token", flush=True)
    scored = len(tokens) - len(windows)
    nll = sum(window["nll"] for window in windows)
    return {"tokens": len(tokens), "tokensSha256": hashlib.sha256(numpy.array(tokens, "<u4").tobytes()).hexdigest(),
            "window": WINDOW, "windows": windows, "scored": scored, "nll": digits(nll, 9),
            "nllPerToken": digits(nll / scored, 9), "perplexity": digits(numpy.exp(nll / scored), 9)}


def digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")


def version_of(package: str) -> str:
    from importlib.metadata import version
    return version(package)


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: golden.py <model.gguf> <test/golden/id.json>")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
