"""A whole checkpoint folder in a few milliseconds: random weights, a byte-level tokenizer and a chat template."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from tests.fakes import CHAT_TEMPLATE

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unused>", "<mask>")
EOS_ID = 2
MASK_ID = 4
SMALLEST_VOCAB = len(SPECIALS) + 256
HIDDEN, LAYERS, HEADS, KV_HEADS, FEED = 32, 2, 4, 2, 48


def make_checkpoint(
    folder: Path,
    *,
    attention: str = "causal_context",
    block_size: int = 4,
    logit_shift: int = 0,
    vocab_size: int = 272,
    seed: int = 0,
    max_positions: int = 512,
) -> Path:
    """Writes a Llama-shaped checkpoint in the official layout and returns its folder.

    Args:
        folder: made if absent.
        attention, block_size, logit_shift: traits, written under "unmask" in config.json; "causal" is a plain AR model
            without mask token.
        vocab_size: rows of the embedding, >= SMALLEST_VOCAB; ids past the tokenizer's have no text.
        seed: of the weights.
        max_positions: context length.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": max_positions,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "eos_token_id": EOS_ID,
        "tie_word_embeddings": True,
    }
    facts: dict[str, Any] = {"mask_token_id": MASK_ID, "attention": attention}
    facts |= {"block_size": block_size, "logit_shift": logit_shift}
    if attention != "causal":
        config["unmask"] = facts
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    save_file(random_weights(vocab_size, seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def byte_tokenizer() -> Tokenizer:
    """The special tokens, then one id per byte (in the order of GPT-2's stand-in characters)."""
    vocab = {token: i for i, token in enumerate([*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return tokenizer


def random_weights(vocab_size: int, seed: int) -> dict[str, Tensor]:
    """Every tensor under its official name, float32; scaled so that the logits are neither flat nor certain."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.4

    kv = HIDDEN * KV_HEADS // HEADS
    tensors = {"model.embed_tokens.weight": draw(vocab_size, HIDDEN), "model.norm.weight": torch.ones(HIDDEN)}
    for index in range(LAYERS):
        at = f"model.layers.{index}."
        tensors |= {
            f"{at}input_layernorm.weight": torch.ones(HIDDEN),
            f"{at}self_attn.q_proj.weight": draw(HIDDEN, HIDDEN),
            f"{at}self_attn.k_proj.weight": draw(kv, HIDDEN),
            f"{at}self_attn.v_proj.weight": draw(kv, HIDDEN),
            f"{at}self_attn.o_proj.weight": draw(HIDDEN, HIDDEN),
            f"{at}post_attention_layernorm.weight": torch.ones(HIDDEN),
            f"{at}mlp.gate_proj.weight": draw(FEED, HIDDEN),
            f"{at}mlp.up_proj.weight": draw(FEED, HIDDEN),
            f"{at}mlp.down_proj.weight": draw(HIDDEN, FEED),
        }
    return tensors
