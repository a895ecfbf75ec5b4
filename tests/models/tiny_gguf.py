"""A GGUF file of a tiny Llama, written with the `gguf` package: what llama.cpp's converter would make of it."""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

from tests.tiny import FEED, HEADS, HIDDEN, KV_HEADS, LAYERS, SPECIALS, byte_tokenizer, random_weights

VOCAB = 272
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}


def official_weights() -> dict[str, NDArray[np.float32]]:
    """The weights under their official names."""
    return {name: tensor.numpy() for name, tensor in random_weights(VOCAB, seed=0).items()}


def write_gguf(file: Path, *, architecture: str = "llama", pre: str = "smollm", quantized: bool = False) -> Path:
    """Writes the file; with `quantized`, matrices whose rows allow it are Q4_1."""
    writer = GGUFWriter(file, architecture)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    vocabulary = sorted(byte_tokenizer().get_vocab().items(), key=lambda entry: entry[1])
    tokens = [token for token, _ in vocabulary]
    tokens += ["ab", "abc", *(f"<unused{i}>" for i in range(VOCAB - len(tokens) - 2))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i < len(SPECIALS) else 1 for i in range(len(tokens))])
    writer.add_token_merges(["a b", "ab c"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")
    for name, values in official_weights().items():
        ours, rows = _gguf_name(name), _permuted(name, values)
        if quantized and values.ndim == 2 and values.shape[1] % 32 == 0:
            packed = quantize(rows, GGMLQuantizationType.Q4_1)
            writer.add_tensor(ours, packed, raw_dtype=GGMLQuantizationType.Q4_1)
        else:
            writer.add_tensor(ours, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _TOP_NAMES:
        return f"{_TOP_NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_LAYER_NAMES[part]}.weight"


def _permuted(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """llama.cpp's row order of q and k (convert_hf_to_gguf.py, LlamaModel.permute)."""
    heads = HEADS if "q_proj" in name else KV_HEADS
    if "q_proj" not in name and "k_proj" not in name:
        return values
    split = values.reshape(heads, 2, values.shape[0] // heads // 2, values.shape[1])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(values.shape))
