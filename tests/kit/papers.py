# SPDX-License-Identifier: Apache-2.0
"""Published figures of single systems, and records of runs with the same work."""
import copy
import json

from jm import SOURCE

RECORD = json.loads((SOURCE / "tests/data/report/h100x4.json").read_text())[0]
FLOPS = {"resnet50": 24.5e9, "vit-l16": 369e9, "llama3-8b": 45.4e9}
# arXiv 2603.16164, Tables 3 and 4: per GPU at 200, 300... 700 (750) W
CAPPED = {
    ("resnet50", "H100 94 GB"): "842.78 1312.8 1426.0 1463.2 1475.0 1479.3",
    ("resnet50", "H200 141 GB"): "650.93 1115.7 1619.2 1915.1 2061.4 2148.6",
    ("resnet50", "MI300X"): "771.68 789.94 924.17 1117.3 1312.8 1464.9 1525.1",
    ("vit-l16", "H100 94 GB"): "116.40 214.90 259.00 280.05 297.79 305.97",
    ("vit-l16", "H200 141 GB"): "87.23 170.57 257.12 301.12 331.10 358.70",
    ("vit-l16", "MI300X"): "76.64 89.53 126.51 159.30 177.01 198.05 206.61",
    ("llama3-8b", "H100 94 GB"): "9699.3 17982.3 24853.4 27705.3 29250.0 30271.0",
    ("llama3-8b", "H200 141 GB"): "8914.9 14244.7 22285.7 28338.8 31586.8 34107.2",
    ("llama3-8b", "MI300X"): "9200.7 11138.8 13119.8 14858.6 16391.0 16724.5 16843.3",
}


def trained(model, flops, **options):
    """A record of one run that trained the model here."""
    r = copy.deepcopy(RECORD)
    r |= {"workload": "train", "device": "cpu", "precision": "f32", "flops_model_per_item": flops, "settings": []}
    r["case"]["parameters"] = {"workload": "train", "device": "cpu", "precision": "f32",
                               "options": {"model": model, **options}}
    return r
