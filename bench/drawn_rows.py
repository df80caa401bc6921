# SPDX-License-Identifier: Apache-2.0
"""Networks, depths, lengths and batches drawn by chance, so that a table has rows which nobody tuned for.

draw(seed, number) gives the same rows for the same seed on every machine: SplitMix64 (Steele, Lea and Flood, 2014), because
the order in which Python's `random` takes its numbers is not promised across versions.
"""
MASK = (1 << 64) - 1


class Chance:
    def __init__(self, seed):
        self.state = seed & MASK

    def number(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def one(self, choices):
        return choices[self.number() % len(choices)]


# What fits into a GPU of 80 GB with either program. Tokens of a step: about 16,000 to 32,000.
GPU = {"resnet": (64, 96, 112, 128, 160, 192, 224, 320), "vit": (40, 56, 72, 96, 112, 136, 160, 200),
       "tokens": (12288, 16384, 20480, 24576, 32768), "seq": (256, 384, 512, 768, 1024, 1536, 2048),
       "gpt": {"layers": (6, 8, 10, 14, 18, 20, 24), "hidden": (512, 640, 896, 1024, 1280, 1536), "vocab": (32000, 50257, 50304)},
       "llama": {"layers": (6, 10, 12, 14, 18), "hidden": (1024, 1280, 1536, 2048), "vocab": (32000, 128256)}}
# What takes some seconds a step on two processors.
CPU = {"resnet": (8, 12, 16, 20, 24, 28, 40), "vit": (3, 5, 6, 8), "tokens": (384, 512, 768, 1024), "seq": (64, 96, 128, 192, 256),
       "gpt": {"layers": (3, 4, 6, 8), "hidden": (384, 512, 640), "vocab": (8000, 32000, 50257)},
       "llama": {"layers": (3, 4, 6, 8), "hidden": (512, 640, 768), "vocab": (8000, 32000)}}
RESNETS = {"gpu": ("resnet50", "resnet101", "resnet152"), "cpu": ("resnet18", "resnet50")}
VITS = {"gpu": ("vit-b16", "vit-l16"), "cpu": ("vit-l16",)}


def text_row(chance, family, sizes):
    width = 64 if family == "gpt" else 128
    dims = {key: chance.one(values) for key, values in sizes[family].items()}
    seq, tokens, heads = chance.one(sizes["seq"]), chance.one(sizes["tokens"]), dims["hidden"] // width
    dims |= {"heads": heads, "context": seq}
    if family == "gpt":
        dims["ffn"] = 4 * dims["hidden"]
    else:  # 8/3 of the width, as Llama 2 has it, in steps of 256; one, two or all heads for keys
        dims |= {"kv-heads": chance.one([n for n in (1, 2, heads) if heads % n == 0]), "theta": 10000,
                 "ffn": -(-8 * dims["hidden"] // 3 // 256) * 256}
    return {"family": family, "batch": max(1, tokens // seq), "seq": seq, "precision": "bf16", "dims": dims}


def draw(seed, number, place="gpu"):
    """Rows as dicts: family, batch, precision; model (resnet, vit), or seq and dims (gpt, llama). place: gpu or cpu."""
    chance, sizes, found = Chance(seed), {"gpu": GPU, "cpu": CPU}[place], []
    families = ["resnet", "vit", "gpt", "llama"]
    for i in range(number):
        if i % 4 == 0:  # each family once in four rows
            order = list(families)
        family = order.pop(chance.number() % len(order))
        if family in ("gpt", "llama"):
            found.append(text_row(chance, family, sizes))
        else:
            models = (RESNETS if family == "resnet" else VITS)[place]
            found.append({"family": family, "model": chance.one(models), "batch": chance.one(sizes[family]), "precision": "bf16"})
    return found
