"""A GGUF file as a folder that transformers reads: weights in float32, config, tokenizer.

    python unpack.py FILE.gguf FOLDER

ONNX Runtime GenAI builds its models from such a folder; its own reader of GGUF knows no quantised types. The
tokenizer is what transformers makes of the file, which the model builder wants to see: the benches speak token ids
and never use it. Needs no network; run by scripts/peers, not at run time.
"""
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(gguf: Path, folder: Path) -> None:
    source = {"pretrained_model_name_or_path": str(gguf.parent.resolve()), "gguf_file": gguf.name}
    dense = GgufConfig(gguf_file=gguf.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=dense, dtype=torch.float32)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
