# SPDX-License-Identifier: Apache-2.0
"""describe --graph and --svg: the plan of a step, its memory, its layouts and what is computed again."""
import re
import xml.etree.ElementTree

import pytest

from described import SMALL, describe
from jm import jm


def test_graph_names_every_op():
    out = jm("describe", *SMALL, "--precision", "bf16", "--graph").stdout
    for op in ("embed", "layernorm", "linear", "attention", "gelu", "add", "softmax-xent", "cast",
               "linear-dgrad", "linear-wgrad", "attention-grad", "norm", "adamw"):
        assert f" {op} " in out, op
    assert "h1.attn.qkv.weight f32[192,64]" in out
    groups = describe(*SMALL, "--precision", "bf16", "--graph")["graph"]
    sums = sum(bin(node["accumulate"]).count("1") for group in groups for node in group["nodes"])
    assert out.partition("operands -> results\n")[2].count("+=") == sums > 4


def places(group):
    """(start, end) of every tensor a group touches, once each; views of a slab count as what they are."""
    return {(t["name"], t["offset"], t["offset"] + t["bytes"]) for node in group["nodes"]
            for t in node["in"] + node["out"] if t and t["offset"] is not None}


def test_graph_as_json():
    d = describe("resnet", "--layers", 14, "--hidden", 8, "--image", 64, "--classes", 10, "--batch", 4,
                 "--device", "ref", "--graph")
    nodes = [node for group in d["graph"] for node in group["nodes"]]
    assert len(d["graph"]) == d["groups"]
    assert sum(n["flops_model"] for n in nodes) == pytest.approx(4 * d["flops_model_per_item"])
    for op in ("conv", "conv-dgrad", "conv-wgrad", "bn-stats", "bn-finalize", "bn-apply", "bn-grad",
               "maxpool", "maxpool-grad", "gap", "gap-grad", "linear"):
        assert any(n["op"] == op for n in nodes), op
    stem = nodes[0]
    assert [t["dims"] for t in stem["in"] if t] == [[4, 3, 64, 64], [8, 3, 7, 7]]
    assert stem["flops_model"] == 2 * 4 * 8 * 32 * 32 * 3 * 49
    assert not any(n["op"] == "conv-dgrad" and n["out"][0]["dims"][1] == 3 for n in nodes)
    ends = [end for group in d["graph"] for _, _, end in places(group)]
    assert 0.5 * d["peak_bytes"] < max(ends) <= d["peak_bytes"]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("model", ["resnet18", "resnet50"])
def test_a_resnet_stays_in_its_layout(model, precision):
    """All images between its first and its last node lie as the convolutions want them, gradients too."""
    words = [model, "--device", "cpu", "--batch", 2, "--precision", precision]
    if jm("describe", *words).returncode:
        pytest.skip("no backend cpu here that knows convolutions")
    if "avx2" not in re.findall(r"\w+", open("/proc/cpuinfo").read()):
        pytest.skip("oneDNN convolves by gemm here, and some of that plain images only")
    nodes = [node for group in describe(*words, "--graph")["graph"] for node in group["nodes"]]
    moved = [n["in"][0]["name"] for n in nodes if n["op"] == "cast"
             and n["in"][0]["class"] == "activations" and n["in"][0]["layout"] != n["out"][0]["layout"]]
    assert not moved, moved
    reorders = sum(n["op"] == "cast" and n["in"][0]["type"] == n["out"][0]["type"]
                   and n["in"][0]["layout"] != n["out"][0]["layout"] for n in nodes)
    assert f" nodes, {reorders} reorders between layouts" in jm("describe", *words, "--graph").stdout
    layouts = {t["layout"] for n in nodes for t in n["in"] + n["out"]
               if t and t["class"] == "activations" and len(t["dims"]) == 4}
    assert len(layouts) == 1
    if precision == "f32":
        assert layouts < {"aBcd16b", "aBcd8b", "acdb"}  # blocks of channels, or channels last


def test_reorders_do_not_outlive_their_block():
    """A block that runs again brings its weights into their layouts again; nothing is kept for it."""
    words = ["resnet18", "--device", "cpu", "--recompute"]
    if jm("describe", *words).returncode:
        pytest.skip("no backend cpu here that knows convolutions")
    made, spans = {}, []
    for row, group in enumerate(describe(*words, "--graph")["graph"]):
        for node in group["nodes"]:
            spans += [row - made[t["name"], t["offset"]] for t in node["in"]
                      if t and (t["name"], t["offset"]) in made]
            if node["op"] == "cast" and node["out"][0]["class"] == "compute copies":
                made[node["out"][0]["name"], node["out"][0]["offset"]] = row
    if not spans:
        pytest.skip("convolutions take plain weights here")
    assert max(spans) < 20


@pytest.mark.parametrize("words", ["resnet50 --batch 4", "vit-b16 --batch 4", "gpt-117m --seq 256 --batch 8",
                                   "llama --layers 4 --hidden 256 --heads 4 --context 128 --batch 64"])
def test_less_is_kept(words):
    all_kept, lean, blocks = (describe(*words.split(), "--device", "ref", *flag)
                              for flag in (["--keep-all"], [], ["--recompute"]))
    assert blocks["arena_bytes"] < lean["arena_bytes"] < all_kept["arena_bytes"]
    assert lean["flops_executed_per_item"] == all_kept["flops_executed_per_item"]
    assert blocks["flops_model_per_item"] == all_kept["flops_model_per_item"]


@pytest.mark.parametrize("words, again", [
    # of 20 norms 8 have a residual joining them and 3 lead to such a one: no gradient reads their result
    ("resnet18", {"bn-apply": 9}),
    # 12 layers of two norms, an activation and four matrices; the last norm and the tied table are read
    # again at once
    ("gpt-117m --precision bf16", {"layernorm": 24, "gelu": 12, "cast": 48}),
    ("gpt-117m --precision bf16 --accumulate 2", {"layernorm": 24, "gelu": 12}),
    ("gpt-117m --precision bf16 --keep-all", {}),
    # of a layer all but its last product and sum, which no gradient in it needs
    ("gpt-117m --precision bf16 --recompute",
     {"layernorm": 24, "linear": 36, "attention": 12, "add": 12, "gelu": 12, "cast": 48}),
    ("vit-b16", {"layernorm": 24, "gelu-erf": 12}),
    ("llama --layers 4 --hidden 64 --heads 4 --context 32", {"rmsnorm": 8, "swiglu": 4}),
])
def test_what_is_made_again(words, again):
    out = jm("describe", *words.split(), "--device", "ref", "--graph").stdout
    table = out.partition("work of a step:\n")[2].partition("\n\n")[0]
    rows = {kind: int(runs) for runs, kind in re.findall(r"^ +(\d+) .* (\S+) \(again\)$", table, re.M)}
    steps = 2 if "--accumulate" in words else 1
    assert rows == {kind: steps * runs for kind, runs in again.items()}


ODD = "gpt --layers 3 --hidden 18 --heads 3 --ffn 50 --context 13 --vocab 31 --batch 1"


@pytest.mark.parametrize("words", ["gpt-117m --seq 128", ODD])
def test_the_peak_is_explained(words):
    """What is alive at the peak adds up in lines of 64 bytes, with next to nothing between."""
    shown = jm("describe", *words.split(), "--device", "ref", "--graph").stdout
    line = next(line for line in shown.splitlines() if line.startswith("peak: "))
    total, below = int(line.split()[1]), float(line.split(", ")[1].split()[0])
    listed = shown[shown.index(line):].split("\n\n")[0].splitlines()[1:]
    parts = [int(re.search(r" (\d+) B", entry)[1]) for entry in listed]
    assert len(parts) == 13 and parts[:12] == sorted(parts[:12], reverse=True)
    assert any(part % 64 for part in parts[:12]) == (words == ODD)
    assert sum(-(-part // 64) * 64 for part in parts) == total
    assert total < describe(*words.split(), "--device", "ref")["arena_bytes"] * 1.001
    assert 0 <= below < 5


def test_work_adds_up():
    words = "gpt-117m --batch 3 --seq 128 --accumulate 4 --precision bf16 --recompute --device ref".split()
    d = describe(*words)
    table = jm("describe", *words, "--graph").stdout.partition("work of a step:\n")[2].partition("\n\n")[0]
    rows = [line.split(maxsplit=3) for line in table.splitlines()[1:]]
    gflops = [float(row[1]) for row in rows]
    assert gflops == sorted(gflops, reverse=True) and gflops[-1] == 0
    items = 4 * 3 * 128
    assert sum(gflops) * 1e9 == pytest.approx(items * d["flops_executed_per_item"], rel=1e-5)
    assert sum(float(row[2]) for row in rows) * 1e6 == pytest.approx(items * d["bytes_per_item"], rel=1e-5)
    runs = {row[3]: int(row[0]) for row in rows}
    assert [runs[kind] for kind in ("embed", "attention", "attention (again)", "adamw")] == [4, 48, 48, 1]
    assert d["groups"] < sum(runs.values()) < 4 * d["groups"]


def drawing(root, kind):
    """Elements of a kind that have a title, with it."""
    svg = "{http://www.w3.org/2000/svg}"
    return [(e.find(svg + "title").text, e) for e in root.iter(svg + kind) if e.find(svg + "title") is not None]


def test_svg(tmp_path):
    file = tmp_path / "plan.svg"
    d = describe(*SMALL, "--graph", "--svg", file)
    root = xml.etree.ElementTree.parse(file).getroot()
    texts = ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]
    labels = [t for t in texts if re.match(r"\d+ ", t)][1:]
    assert f"{d['groups']} groups" in texts[1]
    for i, (label, group) in enumerate(zip(labels, d["graph"], strict=True)):
        assert label.startswith(f"{i} " + " + ".join(node["op"] for node in group["nodes"]) + " ")
    shown = jm("describe", *SMALL, "--svg", "-").stdout
    assert shown == file.read_text() and shown.endswith("</svg>\n")


def test_svg_arcs(tmp_path):
    """From the row where a tensor is first to every row that reads it, but its neighbours."""
    d = describe(*SMALL, "--graph", "--svg", tmp_path / "plan.svg")
    first, expected = {}, []
    for row, group in enumerate(d["graph"]):
        for node in group["nodes"]:
            for t in filter(None, node["in"] + node["out"]):
                first.setdefault((t["name"], t["offset"]), row)
            expected += [(t["name"], first[t["name"], t["offset"]], row) for t in filter(None, node["in"])
                         if t["class"] == "activations" and t["offset"] is not None
                         and row - first[t["name"], t["offset"]] > 1]
    drawn = []
    for name, path in drawing(xml.etree.ElementTree.parse(tmp_path / "plan.svg").getroot(), "path"):
        ends = [float(number) for number in re.findall(r"[\d.]+", path.get("d"))]
        drawn.append((name, (ends[1] - 71) / 14, (ends[-1] - 71) / 14))
    assert sorted(drawn) == sorted(expected) and len(drawn) > 20


@pytest.mark.parametrize("words", [SMALL, "resnet18 --image 64 --batch 2 --device ref".split()])
def test_svg_memory(tmp_path, words):
    """A box for each tensor at its address; no two overlap, and together they reach the whole width."""
    d = describe(*words, "--graph", "--svg", tmp_path / "plan.svg")
    rows, boxes = {}, []
    for row, group in enumerate(d["graph"]):
        for node in group["nodes"]:
            for t in filter(None, node["in"] + node["out"]):
                rows.setdefault((t["name"], t["offset"]), []).append(row)
    for title, box in drawing(xml.etree.ElementTree.parse(tmp_path / "plan.svg").getroot(), "rect"):
        name, size, offset = re.fullmatch(r"(.*), (\d+) B at (\d+)", title).groups()
        left, top, width, height = (float(box.get(key)) for key in ("x", "y", "width", "height"))
        scale = 560 / d["arena_bytes"]
        assert left == pytest.approx(610 + scale * (int(offset) - d["persistent_bytes"]), abs=0.01)
        assert width == pytest.approx(scale * int(size), abs=0.01)
        if (name, int(offset)) in rows:  # scratch is in none
            assert (top - 64) / 14 in rows[name, int(offset)]
        boxes.append((left, top, left + width, top + height))
    assert len(boxes) > 50 and max(b[2] for b in boxes) == pytest.approx(1170, abs=0.1)
    assert min(b[1] for b in boxes) >= 64 and max(b[3] for b in boxes) <= 64 + 14 * d["groups"]
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert min(a[2], b[2]) - max(a[0], b[0]) < 0.02 or min(a[3], b[3]) <= max(a[1], b[1])
