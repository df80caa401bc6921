# SPDX-License-Identifier: Apache-2.0
"""Commands, options, links and files that the documents name exist."""
import json
import os
import re
import subprocess
import sys

import pytest

from jm import BIN, SOURCE, jm

PAGES = sorted([SOURCE / "README.md", *(SOURCE / "docs").glob("*.md")])


def options_of(*words):
    return set(re.findall(r"^  --([a-z][a-z0-9-]*)", jm("help", *words, "--all").stdout, re.M))


COMMANDS = {c: options_of(c) for c in re.findall(r"^  ([a-z]+) ", jm("--help").stdout, re.M)}
WORKLOADS = set().union(*(options_of(w) for w in ("train", "serve", "serve-client", "sim", "null", "gemm", "burn", "stream", "copy",
                                            "attention", "diffusion", "fno", "gpt", "llama", "llava", "mlp", "resnet", "towers", "unet", "vit")))


def command_lines(text):
    """Lines of code blocks that call joulemark, with continued lines joined and comments cut."""
    text = re.sub(r"\\\n\s*", " ", text)
    for line in re.findall(r"^    (joulemark .*)$", text, re.M):
        yield re.split(r"\s{2,}|\s#\s", line)[0]
    for line in re.findall(r"`(joulemark [a-z][^`]*)`", text):
        yield line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_exist(page):
    for line in command_lines(page.read_text(encoding="utf-8")):
        words = re.split(r" -- | (?=python3? |sh |\./)", line)[0].split()  # what follows is the measured command's
        command = words[1]
        if command.isupper() or command.startswith("-"):
            continue
        assert command in COMMANDS, line
        known = COMMANDS[command] | (WORKLOADS if command == "run" else set())
        for option in re.findall(r"(?:^|\s)--([a-z][a-z0-9-]*)", " ".join(words)):
            assert option in known | {"help"}, line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_files_exist(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), link
    folders = "|".join(p.name for p in SOURCE.iterdir() if p.is_dir() and not p.name.startswith((".", "build")))
    for path in re.findall(rf"(?<![\w/])((?:{folders})/[\w./-]+\.(?:c|h|py|sh|json|md))\b", text):
        assert "NOUN" in path or (SOURCE / path).exists(), path


def headings(page):
    """The anchors of a page's headings, as GitHub makes them."""
    for title in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M):
        yield re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_headings(page):
    for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        target = page.parent / link if link else page
        if target.suffix == ".md":
            assert anchor in headings(target), f"{link}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_settings_have_a_control(page):
    """A knob of a device that a document shows is one that a control adds."""
    sources = "".join(p.read_text(encoding="utf-8") for p in (SOURCE / "controls").glob("*.c"))
    shown = re.findall(r"\b((?:gpu|cpu|package|node)\.[a-z-]+)(?=:? ?[=:\[]| ?,|\.\.\. )", page.read_text(encoding="utf-8"))
    for knob in set(shown) - {"gpu.md", "gpu.json"}:
        assert f'"{knob}"' in sources, f"no control has {knob}"


@pytest.mark.parametrize("command", COMMANDS)
def test_files_in_the_help_exist(command):
    for path in re.findall(r"\bsuites/[\w./-]+\.yaml", jm("help", command).stdout):
        assert (SOURCE / path).exists(), path


def test_the_page_of_speed_is_made_of_its_figures(tmp_path):
    kept = (SOURCE / "docs" / "speed.json").read_bytes()
    done = subprocess.run([sys.executable, SOURCE / "bench" / "table.py", "--from", SOURCE / "docs" / "speed.json",
                           "--output", tmp_path / "speed.md"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "speed.md").read_text() == (SOURCE / "docs" / "speed.md").read_text()
    assert (SOURCE / "docs" / "speed.json").read_bytes() == kept


def run_networks(*words):
    done = subprocess.run([sys.executable, SOURCE / "bench" / "networks.py", *map(str, words)], stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "JM_BIN": str(BIN)}, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_of_networks_is_made_of_its_figures(tmp_path):
    """And of what `describe` says: a network whose parameters or FLOPs change needs a new page."""
    run_networks("--output", tmp_path / "networks.md")
    assert (tmp_path / "networks.md").read_text() == (SOURCE / "docs" / "networks.md").read_text()
    known = {row["workload"] for row in json.loads((SOURCE / "docs" / "networks.json").read_text())["rows"]}
    assert all(f"| {name}, " in (tmp_path / "networks.md").read_text() for name in known)


def test_the_share_of_the_bound_is_what_the_other_columns_give():
    """Products by the share of the peak; memory of fno-rbc2d by its plan, which training.md states: 1.92 TB/s."""
    page = (SOURCE / "docs" / "networks.md").read_text().split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    at = {name: rows[0].index(name) for name in ("of peak", "of bound", "precision", "GPU")}
    products = [row for row in rows[2:] if row[at["of bound"]].endswith("products")]
    assert len(products) > 10
    for row in products:
        peak, bound = (float(row[at[name]].split(" %")[0]) for name in ("of peak", "of bound"))
        assert abs(bound - peak * 989.4 / {"H100": 698.6, "H200": 693.9}[row[at["GPU"]]]) < 1.5
    heat = next(row for row in rows if row[0] == "fno-rbc2d, 20")
    assert heat[at["of bound"]] == f"{100 * 1.92 / (0.919 * 4.814):.0f} %, memory"


@pytest.mark.parametrize("card", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_the_page_of_serving_has_the_tables_of_its_figures(card):
    made = subprocess.run([sys.executable, SOURCE / "bench" / "gpu" / "serve.py", "--out", SOURCE / "docs" / "speed_serving.json",
                           "--table", card], check=True, capture_output=True, text=True).stdout
    tables = made.strip().split("\n\n")
    assert len(tables) >= 2 and all(table.count("\n") > 2 for table in tables)
    assert all(table in (SOURCE / "docs" / "speed_serving.md").read_text() for table in tables)


def test_the_chart_of_the_loader_is_made_of_its_figures(tmp_path):
    subprocess.run([sys.executable, SOURCE / "bench" / "loading_chart.py", "--output", tmp_path / "loading.svg"], check=True)
    drawn = (tmp_path / "loading.svg").read_text()
    assert drawn == (SOURCE / "docs" / "loading.svg").read_text()
    points = sum(len(run["points"]) for run in json.loads((SOURCE / "docs" / "loading.json").read_text()))
    assert drawn.count("<circle") == 2 * points


def test_the_walks_through_the_code_lead_somewhere():
    """Each row of a walk names a file and a function or table that is defined in it."""
    rows = re.findall(r"^\| `([\w/.]+)` \| `(\w+)` \|", (SOURCE / "docs" / "CONTRIBUTING.md").read_text(), re.M)
    assert len(rows) > 40
    for file, name in rows:
        text = (SOURCE / file).read_text(encoding="utf-8")
        assert re.search(rf"^[a-z][^;\n]*\b{name}(\(|\[)", text, re.M), f"{name} is not defined in {file}"
