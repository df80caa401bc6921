#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains LLaVA 1.5 by transformers' LlavaForConditionalGeneration on one GPU, for comparison with joulemark.

llava_torch.py SIZE BATCH SEQ SECONDS [learnt=all|projector] [micro-steps=1]     SIZE: 13b, 7b, toy

CLIP is frozen, with learnt=projector Llama, too. All weights are bf16 and random, made on the GPU. A sequence begins with the 576
places of the picture, which have no targets. Each block is compiled separately, because all layers share that code; attention is
PyTorch's scaled_dot_product_attention, AdamW is fused, gradients of the micro-steps are added in bf16, and clipped. An item is a
token. Prints one line of JSON as train_torch.py does.
"""
import sys

import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from measured_steps import measure

LLAMA = {"13b": {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40},
         "7b": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
         "toy": {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 4}}
CLIP = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336,
        "patch_size": 14, "projection_dim": 768}
VOCABULARY, PICTURE, PLACES, NOT_LEARNT = 32000, 31999, 576, -100


def declare(size):
    text = LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=False, **LLAMA[size])
    config = LlavaConfig(vision_config=CLIPVisionConfig(**CLIP), text_config=text, image_token_index=PICTURE,
                         vision_feature_layer=-2, vision_feature_select_strategy="default")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlavaForConditionalGeneration(config)
    model.to("cuda", torch.bfloat16)
    return model.train()


class Training:
    def __init__(self, size, batch, seq, part, micro_steps):
        torch.manual_seed(1)
        self.model = declare(size)
        projector, clip = ([name for name, _ in self.model.named_parameters() if word in name]
                           for word in ("multi_modal_projector", "vision_tower"))
        assert projector and clip, "transformers' parts have other names"
        learnt = []
        for name, p in self.model.named_parameters():
            p.requires_grad_(name in projector if part == "projector" else name not in clip)
            learnt += [p] if p.requires_grad else []
        for module in self.model.modules():
            if type(module).__name__ in ("LlamaDecoderLayer", "CLIPEncoderLayer"):
                module.compile()
        ids = torch.randint(VOCABULARY - 1, (batch, seq), device="cuda")
        ids[:, :PLACES] = PICTURE
        self.batch = {"input_ids": ids, "labels": ids.masked_fill(ids == PICTURE, NOT_LEARNT),
                      "pixel_values": torch.randn(batch, 3, CLIP["image_size"], CLIP["image_size"], device="cuda")}
        self.learnt, self.items, self.micro_steps = learnt, batch * seq * micro_steps, micro_steps
        self.optimizer = torch.optim.AdamW(learnt, lr=1e-3 if part == "projector" else 2e-6, fused=True)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.micro_steps):
            loss = self.model(**self.batch, use_cache=False).loss
            (loss / self.micro_steps).backward()
        nn.utils.clip_grad_norm_(self.learnt, 1.0, foreach=True)
        self.optimizer.step()
        return loss


def main(size, batch, seq, seconds, *given):
    words = {"learnt": "all", "micro-steps": "1", **dict(one.split("=") for one in given)}
    micro_steps = int(words["micro-steps"])
    torch.set_float32_matmul_precision("high")
    measure(lambda: Training(size, int(batch), int(seq), words["learnt"], micro_steps), float(seconds), warm_up=1 if micro_steps > 1 else 5,
            model="llava-" + size, learnt=words["learnt"], batch=int(batch), micro_steps=micro_steps, seq=int(seq))


if __name__ == "__main__":
    main(*sys.argv[1:])
