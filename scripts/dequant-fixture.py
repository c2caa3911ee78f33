"""Writes test/models/fixtures/dequant.json: random blocks of every GGUF type that models/ reads, with their f32 values by
the `gguf` package of PyPI. The test compares bit for bit.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0
    venv/bin/python scripts/dequant-fixture.py test/models/fixtures/dequant.json

Scales are random finite numbers of both signs, with zeros and subnormals; all other bits are random.
"""

import base64
import json
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

# Byte offsets of the f16 numbers of a block.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
BLOCKS_OF_32 = 4
BLOCKS_OF_256 = 2


def scales(random, count):
    """Finite f16 numbers: most of the size of real scales, one zero, one subnormal."""
    values = (random.standard_normal(count) * 0.02).astype(np.float16)
    values[0] = 0
    if count > 1:
        values[1] = np.float16(3e-7)
    return values


def random_blocks(random, name):
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    count = BLOCKS_OF_256 if values == 256 else BLOCKS_OF_32
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in SCALES[name]:
        blocks[:, offset:offset + 2] = np.roll(scales(random, count), offset).view(np.uint8).reshape(count, 2)
    return blocks


def random_plain(random, name):
    values = np.concatenate([random.standard_normal(29), [0.0, -0.0, 6e-8]]).astype(np.float32)
    if name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(1, -1)
    return values.astype(PLAIN[name]).view(np.uint8).reshape(1, -1)


def encode(array):
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def main():
    random = np.random.default_rng(20261130)
    cases = []
    for name in [*PLAIN, *SCALES]:
        data = random_plain(random, name) if name in PLAIN else random_blocks(random, name)
        kind = gguf.GGMLQuantizationType[name]
        source = data.view(PLAIN[name]) if name in ("F32", "F16") else data
        values = dequantize(source, kind).astype(np.float32).reshape(-1)
        assert np.isfinite(values).all(), name
        cases.append({"type": name, "values": len(values), "bytes": encode(data), "f32": encode(values)})
    with open(sys.argv[1], "w") as file:
        json.dump({"made_with": "gguf of PyPI", "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
