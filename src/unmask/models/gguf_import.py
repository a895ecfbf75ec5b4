"""GGUF -> a checkpoint folder in the official layout (config.json, model.safetensors, tokenizer.json).

Done once per file: dequantising takes seconds and the folder is then an ordinary checkpoint for every other command.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from unmask.core.errors import CheckpointError

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL_TOKEN = 3  # ggml token type of special tokens


def import_gguf(file: Path, folder: Path) -> None:
    """Writes `folder` from `file`; the folder appears only when complete.

    Supported: architecture "llama" with a byte-level BPE tokenizer of the "smollm" pre-tokenizer.

    Raises:
        CheckpointError: damaged file, other architecture or tokenizer.
    """
    try:
        reader = GGUFReader(file)
    except (OSError, ValueError, IndexError) as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error
    fields = {name: field for name, field in reader.fields.items()}
    if _field(fields, "general.architecture") != "llama":
        raise CheckpointError(f"{file} holds architecture {_field(fields, 'general.architecture')!r}, expected 'llama'")
    building = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    building.mkdir(parents=True, exist_ok=True)
    tensors = _tensors(reader, int(_field(fields, "llama.rope.dimension_count")))
    config = _config(fields, tied="lm_head.weight" not in tensors)
    save_file(tensors, building / "model.safetensors", metadata={"format": "pt"})
    (building / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _tokenizer(fields).save(str(building / "tokenizer.json"))
    (building / "chat_template.jinja").write_text(_field(fields, "tokenizer.chat_template"), encoding="utf-8")
    building.rename(folder)


def _field(fields: dict[str, Any], name: str) -> Any:
    if name not in fields:
        raise CheckpointError(f"the GGUF file has no field {name!r}")
    return fields[name].contents()


def _tensors(reader: GGUFReader, head_dim: int) -> dict[str, torch.Tensor]:
    """Dequantises every tensor to float16 under its official name; undoes llama.cpp's rotary row permutation."""
    tensors: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape(tuple(reversed(tensor.shape.tolist())))
        if tensor.name in _TOP_NAMES:
            name = _TOP_NAMES[tensor.name]
        else:
            parts = tensor.name.split(".")
            if len(parts) != 4 or parts[0] != "blk" or parts[2] not in _LAYER_NAMES:
                raise CheckpointError(f"unknown GGUF tensor {tensor.name!r}")
            name = f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
            if parts[2] in ("attn_q", "attn_k"):
                values = _unpermute(values, head_dim)
        tensors[name] = torch.from_numpy(values.astype(np.float16))
    return tensors


def _unpermute(values: np.ndarray, head_dim: int) -> np.ndarray:
    """Turns interleaved rotary rows back into Hugging Face's half-split order."""
    return values.reshape(-1, head_dim // 2, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def _config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    """The official config.json of the file's model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": int(_field(fields, "llama.vocab_size")),
        "hidden_size": int(_field(fields, "llama.embedding_length")),
        "intermediate_size": int(_field(fields, "llama.feed_forward_length")),
        "num_hidden_layers": int(_field(fields, "llama.block_count")),
        "num_attention_heads": int(_field(fields, "llama.attention.head_count")),
        "num_key_value_heads": int(_field(fields, "llama.attention.head_count_kv")),
        "max_position_embeddings": int(_field(fields, "llama.context_length")),
        "rope_theta": float(_field(fields, "llama.rope.freq_base")),
        "rms_norm_eps": float(_field(fields, "llama.attention.layer_norm_rms_epsilon")),
        "bos_token_id": int(_field(fields, "tokenizer.ggml.bos_token_id")),
        "eos_token_id": int(_field(fields, "tokenizer.ggml.eos_token_id")),
        "tie_word_embeddings": tied,
        "dtype": "float16",
    }


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE that splits digits one by one, from the file's own vocabulary and merges."""
    kind = (_field(fields, "tokenizer.ggml.model"), _field(fields, "tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise CheckpointError(f"GGUF tokenizer {kind} is not supported; convert the model with its own tokenizer.json")
    tokens: list[str] = _field(fields, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in _field(fields, "tokenizer.ggml.merges")]
    types: list[int] = _field(fields, "tokenizer.ggml.token_type")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer
