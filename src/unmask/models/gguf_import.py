"""GGUF -> a checkpoint folder in the official layout (config.json, model.safetensors, tokenizer.json).

Done once per file: dequantising takes seconds and the folder is then an ordinary checkpoint for every other command.
"""

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from unmask.core.errors import CheckpointError
from unmask.models.gguf_file import GgufFile

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
        CheckpointError: damaged file, other architecture or tokenizer, or the folder cannot be written.
    """
    source = GgufFile(file)
    if source.field("general.architecture") != "llama":
        raise CheckpointError(f"{file} holds architecture {source.field('general.architecture')!r}, expected 'llama'")
    tokenizer = _tokenizer(source)
    tensors = _tensors(source)
    config = _config(source, tied="lm_head.weight" not in tensors)
    building = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        building.mkdir(parents=True)
        save_file(tensors, building / "model.safetensors", metadata={"format": "pt"})
        (building / "model.safetensors").chmod(0o644)  # it is written for its owner alone; the other files are not
        (building / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        (building / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        template = source.field("tokenizer.chat_template")
        (building / "chat_template.jinja").write_text(template, encoding="utf-8")
        building.rename(folder)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {folder}: {error}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)  # nothing to remove once it is renamed


def _tensors(source: GgufFile) -> dict[str, torch.Tensor]:
    """Dequantises every tensor to float16 under its official name; undoes llama.cpp's rotary row permutation."""
    head_dim = _integer(source, "llama.rope.dimension_count")
    tensors: dict[str, torch.Tensor] = {}
    for name in source.tensors:
        values = source.read(name)
        if name in _TOP_NAMES:
            official = _TOP_NAMES[name]
        else:
            parts = name.split(".")
            if len(parts) != 4 or parts[0] != "blk" or parts[2] not in _LAYER_NAMES:
                raise CheckpointError(f"{source.path} has an unknown tensor {name!r}")
            official = f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
            if parts[2] in ("attn_q", "attn_k"):
                if values.ndim != 2 or head_dim < 2 or values.shape[0] % head_dim:
                    raise CheckpointError(f"tensor {name!r} {values.shape} does not hold heads of {head_dim} rows")
                values = _unpermute(values, head_dim)
        tensors[official] = torch.from_numpy(values.astype(np.float16))
    return tensors


def _integer(source: GgufFile, name: str) -> int:
    value = source.field(name)
    if not isinstance(value, int):
        raise CheckpointError(f"field {name!r} of {source.path} is {value!r}, expected a whole number")
    return value


def _unpermute(values: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """Turns interleaved rotary rows back into Hugging Face's half-split order."""
    return values.reshape(-1, head_dim // 2, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def _config(source: GgufFile, *, tied: bool) -> dict[str, Any]:
    """The official config.json of the file's model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": _integer(source, "llama.vocab_size"),
        "hidden_size": _integer(source, "llama.embedding_length"),
        "intermediate_size": _integer(source, "llama.feed_forward_length"),
        "num_hidden_layers": _integer(source, "llama.block_count"),
        "num_attention_heads": _integer(source, "llama.attention.head_count"),
        "num_key_value_heads": _integer(source, "llama.attention.head_count_kv"),
        "max_position_embeddings": _integer(source, "llama.context_length"),
        "rope_theta": source.field("llama.rope.freq_base"),
        "rms_norm_eps": source.field("llama.attention.layer_norm_rms_epsilon"),
        "bos_token_id": _integer(source, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _integer(source, "tokenizer.ggml.eos_token_id"),
        "tie_word_embeddings": tied,
        "dtype": "float16",
    }


def _tokenizer(source: GgufFile) -> Tokenizer:
    """Byte-level BPE that splits digits one by one, from the file's own vocabulary and merges."""
    kind = (source.field("tokenizer.ggml.model"), source.field("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise CheckpointError(f"GGUF tokenizer {kind} is not supported; convert the model with its own tokenizer.json")
    tokens: list[str] = source.field("tokenizer.ggml.tokens")
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in source.field("tokenizer.ggml.merges"))]
    types: list[int] = source.field("tokenizer.ggml.token_type")
    known = set(tokens)
    if len(types) != len(tokens) or any(not {left, right, left + right} <= known for left, right in merges):
        raise CheckpointError(f"the tokenizer in {source.path} contradicts itself; download the file again")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer
