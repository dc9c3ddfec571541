"""Two steps of AdamW of small models of transformers, on the CPU and on the GPU: how far losses, gradients and weights
are apart."""

import copy
import json
import warnings

import torch
import transformers as tf

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WORDS = 96
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def words(rows: int = 2, columns: int = 16) -> torch.Tensor:
    return torch.randint(1, WORDS, (rows, columns))


def gpt2() -> tuple:
    config = tf.GPT2Config(
        vocab_size=WORDS,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        **NO_TOKENS,
    )
    tokens = words()
    return tf.GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}


def llama() -> tuple:
    config = tf.LlamaConfig(vocab_size=WORDS, num_key_value_heads=2, **SMALL, **NO_TOKENS)
    tokens = words()
    return tf.LlamaForCausalLM(config), {"input_ids": tokens, "labels": tokens}


def bert() -> tuple:
    config = tf.BertConfig(vocab_size=WORDS, **SMALL, **NO_DROPOUT)
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[0, 12:] = 0
    return tf.BertForMaskedLM(config), {"input_ids": words(), "attention_mask": mask, "labels": words()}


def t5() -> tuple:
    config = tf.T5Config(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0)
    return tf.T5ForConditionalGeneration(config), {
        "input_ids": words(),
        "decoder_input_ids": words(2, 8),
        "labels": words(2, 8),
    }


def vit() -> tuple:
    config = tf.ViTConfig(image_size=32, patch_size=8, num_labels=5, **SMALL, **NO_DROPOUT)
    return tf.ViTForImageClassification(config), {
        "pixel_values": torch.randn(2, 3, 32, 32),
        "labels": torch.tensor([1, 3]),
    }


def resnet() -> tuple:
    config = tf.ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], num_labels=5, layer_type="basic")
    pixels = torch.randn(4, 3, 32, 32)
    return tf.ResNetForImageClassification(config), {"pixel_values": pixels, "labels": torch.tensor([1, 3, 0, 2])}


def train(model: torch.nn.Module, inputs: dict, device: str) -> dict:
    model = copy.deepcopy(model).to(device).train()
    given = {name: value.to(device) for name, value in inputs.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, gradients = [], {}
    for step in range(2):
        optimizer.zero_grad()
        loss = model(**given).loss
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.cpu().clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        losses.append(loss.detach().cpu())
    weights = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    return {"losses": dict(enumerate(losses)), "gradients": gradients, "weights": weights}


def apart(first: dict, second: dict) -> dict:
    assert first.keys() == second.keys()
    far = {name: float((first[name].double() - second[name].double()).abs().max()) for name in first}
    equal = sum(torch.equal(first[name], second[name]) for name in first)
    return {"equal": equal, "of": len(first), "largest": max(far.values())}


def main() -> None:
    warnings.simplefilter("ignore")
    tf.logging.set_verbosity_error()
    told = {}
    for make in (gpt2, llama, bert, t5, vit, resnet):
        torch.manual_seed(7)
        model, inputs = make()
        cpu, gpu = train(model, inputs, "cpu"), train(model, inputs, "cuda")
        told[make.__name__] = {part: apart(cpu[part], gpu[part]) for part in cpu}
    print(json.dumps(told))


main()
