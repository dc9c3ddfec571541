"""`generate` of a small GPT-2, with its default cache."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=2, eos_token_id=99)).cuda().eval()
prompt = torch.randint(0, 90, (1, 8), device="cuda")
model.generate(prompt, max_new_tokens=12, min_new_tokens=12, do_sample=False)
