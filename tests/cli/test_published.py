# SPDX-License-Identifier: Apache-2.0
"""report --published: the papers' figures in their own table, as the papers print them, and in no figure of the records."""
import copy
import csv
import io
import json
import re

import pytest

from jm import SOURCE, jm
from pages import CHROMIUM, browse
from reports import records

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
CAPS = [200, 300, 400, 500, 600, 700, 750]


def trained(model, flops, **options):
    """A record of one run that trained the model here."""
    r = copy.deepcopy(RECORD)
    r |= {"workload": "train", "device": "cpu", "precision": "f32", "flops_model_per_item": flops, "settings": []}
    r["case"]["parameters"] = {"workload": "train", "device": "cpu", "precision": "f32",
                               "options": {"model": model, **options}}
    return r


@pytest.fixture
def report(tmp_path):
    def run(*records, words=("--format", "json")):
        file = tmp_path / "records.json"
        file.write_text(json.dumps(records))
        done = jm("report", *words, file)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return run


@pytest.mark.parametrize("model", FLOPS)
def test_figures_are_the_papers(report, model):
    (work,) = json.loads(report(trained(model, FLOPS[model]), words=("--published", "--format", "json")))["published"]
    assert work["model"] == model and work["origin"] == "published" and work["why_not"] == ""
    for (name, device), text in CAPPED.items():
        rows = [r for r in work["rows"] if r["device"] == device]
        if name != model:
            continue
        assert [r["items_per_s"] for r in rows] == [float(t) for t in text.split()]
        assert [r["cap_watts"] for r in rows] == CAPS[:len(rows)]
        assert all(r["cap_kept"] == (device != "MI300X" or r["cap_watts"] >= 400) for r in rows)
        # not in the tables, so not here
        assert all(r[k] is None for r in rows for k in ("watts", "items_per_joule", "precision", "batch"))
        assert all("arXiv 2603.16164, Table" in r["source"] for r in rows)


def test_energy_of_an_epoch(report):
    (work,) = json.loads(report(trained("resnet50", FLOPS["resnet50"]), words=("--published", "--format", "json")))[
        "published"]
    row = next(r for r in work["rows"] if r["device"].startswith("Graphcore") and r["batch"] == 2048)
    # arXiv 2409.12994, Table III: 1889.87 images/s, 31.53 Wh an epoch of 1281167 images
    assert row["items_per_s"] == 1889.87
    assert row["items_per_joule"] == pytest.approx(1281167 / (31.53 * 3600), rel=1e-3)
    assert row["watts"] == pytest.approx(31.53 * 3600 / (1281167 / 1889.87), rel=1e-3)


def test_rate_that_a_paper_states_in_its_text(report):
    (work,) = json.loads(report(trained("gpt-800m", 5.85e9, seq="2048"), words=("--published", "--format", "json")))[
        "published"]
    (row,) = work["rows"]  # arXiv 2409.12994, Section IV-A; the bars of its Figure 2 have no numbers
    assert row == {"device": "GH200", "cap_watts": None, "cap_kept": None, "batch": None, "precision": None,
                   "items_per_s": 47505, "watts": None, "items_per_joule": None,
                   "source": "arXiv 2409.12994, Section IV-A"}
    assert len(work["notes"]) == 1 and "only draws its other figures" in work["notes"][0]


def test_no_part_in_any_figure_of_ours(report):
    ours = [trained("resnet50", FLOPS["resnet50"]), trained("vit-l16", FLOPS["vit-l16"])]
    plain = json.loads(report(*ours))
    with_papers = json.loads(report(*ours, words=("--published", "--format", "json")))
    assert plain["published_note"] is None and plain.pop("published") == [] and len(with_papers.pop("published")) == 2
    assert plain == with_papers
    # and the text only goes on behind ours
    for form in ("table", "md"):
        both = report(*ours, words=("--published", "--format", form))
        assert both.startswith(report(*ours, words=("--format", form)))
        assert "Published, not measured here: vit-l16" in both and "(771.68)" in both


def test_csv_is_that_list_alone(report):
    rows = list(csv.DictReader(io.StringIO(
        report(trained("vit-l16", FLOPS["vit-l16"]), words=("--published", "--format", "csv")))))
    assert len(rows) == 19 and {r["origin"] for r in rows} == {"published"}
    h200 = next(r for r in rows if r["device"] == "H200 141 GB" and r["cap_watts"] == "700")
    assert h200["items_per_s"] == "358.7" and h200["watts"] == "" and h200["cap_kept"] == "yes"


def test_other_sizes_are_not_compared(report):
    small = trained("resnet50", 0.5e9, image="32")
    text = report(small, words=("--published",))
    assert "24.54 GFLOP per image" in text and "took 0.5 " in " ".join(text.split()) and "2148.6" not in text
    gpt = trained("gpt-117m", 0.7e9)
    assert "no published figures" in report(gpt, words=("--published",))
    doc = json.loads(report(gpt, words=("--published", "--format", "json")))
    assert doc["published"] == [] and "no published figures" in doc["published_note"]


def test_a_tenth_more_work_is_other_work(report):
    """Heads and ways of counting differ by a few percent, other networks by more."""
    for factor, same in ((0.96, True), (1.04, True), (0.94, False), (1.06, False)):
        (work,) = json.loads(report(trained("resnet50", factor * 24535105536),
                                    words=("--published", "--format", "json")))["published"]
        assert bool(work["rows"]) == same and (work["why_not"] == "") == same


def test_of_several_other_sizes_the_first_is_named(report):
    runs = [trained("llama3-8b", 45.9e9, seq=seq) for seq in ("1024", "2048")]
    for order in (runs, runs[::-1]):  # of the report, which has them by size
        (work,) = json.loads(report(*order, words=("--published", "--format", "json")))["published"]
        assert "(seq 1024)" in work["why_not"]
    (work,) = json.loads(report(*runs, trained("llama3-8b", 45.4e9, seq="512"),
                                words=("--published", "--format", "json")))["published"]
    assert work["rows"] and work["why_not"] == ""  # one of the papers' size is enough


@pytest.mark.parametrize("model, flops, option, size", [
    ("llama3-8b", 45.9e9, "seq", 1024),  # 1 % more FLOPs per token than at 512
    ("vit-l16", 369e9, "image", 225)])
def test_another_shape_of_like_flops_is_another_size(report, model, flops, option, size):
    def published(**options):
        (work,) = json.loads(report(trained(model, flops, **options), words=("--published", "--format", "json")))[
            "published"]
        return work
    other = published(**{option: str(size)})
    assert other["rows"] == [] and f"({option} {size})" in other["why_not"]
    same = published(**{option: str(other["size"][option])})
    assert same["rows"] and same["why_not"] == ""
    assert published()["rows"]  # not told: by the FLOPs


@pytest.mark.parametrize("flops", [FLOPS["llama3-8b"], 2 * FLOPS["llama3-8b"]])
def test_the_shape_is_always_said(report, flops, tmp_path):
    r = trained("llama3-8b", flops)
    for form in ("table", "md"):
        text = report(r, words=("--published", "--format", form)).split("Published, not measured here: ")[1]
        assert text.splitlines()[2].strip() == "The papers' input: sequences of 512 tokens."
    page = tmp_path / "page.html"
    report(r, words=("--published", "--html", page))
    assert "\"The papers' input: \" + work.shape" in page.read_text()


def test_without_a_cap_none_was_kept_or_broken(report):
    r = trained("resnet50", FLOPS["resnet50"])
    (work,) = json.loads(report(r, words=("--published", "--format", "json")))["published"]
    rows = [r for r in work["rows"] if r["cap_watts"] is None]
    assert len(rows) == 9 and all(r["cap_kept"] is None for r in rows)
    assert "(1889.87)" not in report(r, words=("--published",))
    rows = csv.DictReader(io.StringIO(report(r, words=("--published", "--format", "csv"))))
    assert {(r["cap_watts"] == "", r["cap_kept"]) for r in rows} == {(True, ""), (False, "yes"), (False, "no")}


def test_page_holds_them_apart(report, tmp_path):
    page = tmp_path / "page.html"
    report(trained("resnet50", FLOPS["resnet50"]), words=("--published", "--html", page))
    text = page.read_text()
    data = json.loads(text.split('<script type="application/json" id="jm-data">')[1].split("</script>")[0])
    assert data["published"][0]["rows"][0]["items_per_s"] == 842.78
    assert "2148.6" not in json.dumps([data["runs"], data["series"]])
    assert "panel published" in text  # with a look of its own


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
def test_the_page_has_own_figures_as_ratios(tmp_path):
    """Throughput per device by the paper's at the same cap; the reference has no row of its own."""
    ours, page = records("h200x4"), tmp_path / "page.html"
    for r in ours:
        r |= {"workload": "train", "flops_model_per_item": FLOPS["resnet50"]}
        r["case"]["parameters"] |= {"workload": "train", "options": {"model": "resnet50"}}
    (tmp_path / "a.json").write_text(json.dumps(ours))
    assert jm("report", "--published", "--html", page, tmp_path / "a.json").returncode == 0
    table = browse(page, "--dump-dom", "--window-size=1280,900").split('id="published"')[1].split("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.S)]
    for device in ("H100 94 GB", "H200 141 GB"):
        for cap, theirs in zip(CAPS, CAPPED["resnet50", device].split()):
            mean = [r["throughput_per_device"] for r in ours if r["status"] == "ok" and not r["case"]["reference"]
                    and r["settings"][0]["requested"] == cap]
            (ratio,) = [float(row[-1]) for row in rows if row and row[0] == device and row[1] == str(cap)]
            assert ratio == pytest.approx(sum(mean) / len(mean) / float(theirs), abs=0.0051)


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
def test_metrics_without_a_best_setting_share_a_card(tmp_path):
    page = tmp_path / "page.html"
    assert jm("report", "--html", page, SOURCE / "tests/data/h100/resnet50.db").returncode == 0
    dom = browse(page, "--dump-dom", "--window-size=1280,900")
    cards = re.findall(r'class="card none".*?</div></div>', dom)
    assert len(cards) == 2, cards
    assert "highest throughput, least energy per image" in cards[0] and "--repeat 3" in cards[0]
    assert "EDS k=2" in cards[1] and "no reference" in cards[1]
    assert "of 875 readings." in dom
