# SPDX-License-Identifier: Apache-2.0
"""report --published: the papers' figures in their own table, as the papers print them, and in no figure of the records."""
import csv
import io
import json
import re

import pytest

from jm import SOURCE, jm
from pages import CHROMIUM, browse
from papers import CAPPED, FLOPS, trained
from reports import records

MORE_CAPPED = {  # the same tables: Stable Diffusion v2, inference
    ("sd-v2", "H100 94 GB"): "20.14 34.25 39.38 41.62 42.77 43.28",
    ("sd-v2", "H200 141 GB"): "15.50 29.26 42.25 49.37 53.94 57.30",
    ("sd-v2", "MI300X"): "23.94 25.13 30.19 37.48 43.23 47.86 48.87",
    ("inference", "H100 94 GB"): "780.5 1472.7 1833.1 2027.9 2154.5 2191.4",
    ("inference", "H200 141 GB"): "571.8 1255.0 1804.2 2063.7 2289.7 2417.5",
    ("inference", "MI300X"): "960.6 1145.4 1400.1 1616.6 1758.7 1824.3 1849.7",
}
# arXiv 2409.12994, Table II: batch, tokens/s of 4 IPUs, tokens/Wh of one of them
TABLE_2 = {64: (64.99, 4.08), 128: (97.21, 7.03), 256: (129.96, 13.93), 512: (155.72, 27.60), 1024: (172.94, 53.71),
           2048: (183.37, 102.13), 4096: (188.88, 187.22), 8192: (191.86, 321.34), 16384: (193.41, 496.43)}
# doi 10.1007/978-3-031-48803-0_1, Table 1: gain in percent, cap
TABLE_1 = {"energy": (25.39, 160), "energy saved minus slowdown": (15.03, 170), "EDP": (17.32, 170),
           "EDS k=1.5": (2.26, 200), "EDS k=2": (7.52, 170)}
# Latif et al., section V: kW of the node (median, highest), hours, kWh
NODE = {512: (4.68, 5.02, 26, 123), 4096: (6.26, 6.48, 5, 30), 128: (7.92, 8.42, 8, None)}
CAPS = [200, 300, 400, 500, 600, 700, 750]


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


def known(row):
    return {key: value for key, value in row.items() if value is not None}


def listed():
    """All works of 'list --published' by model and task."""
    return {(work["model"], work["task"]): work for work in json.loads(jm("list", "--published", "--json").stdout)}


def test_no_figure_is_missing():
    works = listed()
    assert sum(len(work["rows"]) for work in works.values()) == 19 * 3 + 9 + 1 + 19 * 2 + 9 + 3 + 1 + 8 + 5
    text = jm("list", "--published", "--width", "100").stdout
    assert all(f"{model or ''} {task} as papers report it".strip() in text for model, task in works)
    assert "25.39" in text and "16,384" in text


@pytest.mark.parametrize("name, device", MORE_CAPPED)
def test_generation_and_inference_under_caps(name, device):
    work = listed()["sd2", "training"] if name == "sd-v2" else listed()["llama3-8b", "inference"]
    rows = [r for r in work["rows"] if r["device"] == device]
    printed = [float(t) for t in MORE_CAPPED[name, device].split()]
    assert [(r["cap_watts"], r["items_per_s"]) for r in rows] == list(zip(CAPS, printed))
    assert all(r["cap_kept"] == (device != "MI300X" or r["cap_watts"] >= 400) for r in rows)


def test_a_pipeline_of_ipus_by_batch():
    rows = {r["batch"]: r for r in listed()["gpt-117m", "training"]["rows"]}
    assert rows.keys() == TABLE_2.keys()
    for batch, (rate, per_wh) in TABLE_2.items():
        assert known(rows[batch]) == {
            "device": "Graphcore GC200 IPU", "devices": 4, "batch": batch, "source": "arXiv 2409.12994, Table II",
            "items_per_s": pytest.approx(rate / 4), "items_per_joule": pytest.approx(per_wh / 4 / 3600)}


def test_best_caps_by_metric():
    rows = listed()["xception", "training under power caps"]["rows"]
    assert {r["metric"]: (r["gain_percent"], r["cap_watts"]) for r in rows if r["devices"] == 8} == TABLE_1
    assert {r["devices"]: (r["metric"], r["gain_percent"]) for r in rows if r["devices"] < 8} == {
        1: ("energy", 3), 2: ("energy", 5.5), 4: ("energy", 11.5)}
    assert {r["device"] for r in rows} == {"Quadro RTX 6000"}


def test_times_by_gpus():
    rows = listed()["xception", "training under power caps, by GPUs"]["rows"]
    assert {(r["devices"], r["cap_watts"]): (r["hours"] * 3600, 50000 / r["items_per_s"] / r["devices"]) for r in rows} == {
        key: pytest.approx((seconds, seconds)) for key, seconds in
        {(1, 170): 477.0, (2, 260): 228, (2, 170): 256, (8, 260): 85.6, (8, 170): 93.6}.items()}


def test_power_of_a_node_is_per_device():
    works = listed()
    rows = works["resnet152", "training"]["rows"] + works["llava", "training"]["rows"]
    assert {r["batch"]: (r["watts"] * 8 / 1000, r["watts_max"] * 8 / 1000, r["hours"], r["kwh"]) for r in rows} == NODE
    for r in rows[:2]:  # 200 epochs of 50,000 images
        assert r["items_per_joule"] == pytest.approx(200 * 50000 / (r["kwh"] * 3.6e6))
        assert r["items_per_s"] == pytest.approx(200 * 50000 / (r["hours"] * 3600) / 8)
        # rounded hours, and the median in place of the mean power
        assert r["items_per_s"] / r["watts"] == pytest.approx(r["items_per_joule"], rel=0.06)
    assert rows[2]["gpu_load_percent"] == 93
    (burn,) = works[None, "a burn of GPUs and processors"]["rows"]
    assert (burn["watts"] * 8, burn["watts_max"] * 8) == (8430, 8480)


def test_they_appear_beside_records_of_the_same_work(report, tmp_path):
    """Training and inference of one network are two works; a simulated node shows what it was made from, without ratios."""
    def tasks(*records):
        works = json.loads(report(*records, words=("--published", "--format", "json")))["published"]
        return [(work["model"], work["task"]) for work in works if work["rows"]]
    serve = trained("llama3-8b", None)
    serve["workload"] = serve["case"]["parameters"]["workload"] = "serve"
    burn = trained(None, None) | {"workload": "burn"}
    cifar = trained("resnet152", 1.41e9, image="32", classes="10")
    assert tasks(serve) == [("llama3-8b", "inference")] and tasks(trained("llama3-8b", 45.4e9)) == [("llama3-8b", "training")]
    assert tasks(burn) == [(None, "a burn of GPUs and processors")] and tasks(cifar) == [("resnet152", "training")]
    assert tasks(trained("resnet152", 1.41e9, image="32", classes="100")) == []
    assert tasks(trained("gpt-117m", 0.8e9, seq="1024")) == [("gpt-117m", "training")]
    store = tmp_path / "s.db"
    done = jm("run", "sim", "--device", "sim:h100x4", "--response", "sd-v2", "--seconds", "1", "--store", store)
    assert done.returncode == 0, done.stderr
    text = jm("report", "--published", store).stdout
    assert "sd2 training as papers report it" in text and "43.28" in text
    assert json.loads(jm("compare", "--published", store, "--json", "-").stdout)["works"][0]["published"] == []


def test_a_node_in_compare(tmp_path):
    """The row of the same batch per GPU: 512 of 8 GPUs are 64 of one."""
    r = trained("resnet152", 1.41e9, image="32", classes="10", batch="64") | {"clock": "real", "throughput_per_device": 26.7}
    (tmp_path / "a.json").write_text(json.dumps([r]))
    (work,) = json.loads(jm("compare", "--published", tmp_path / "a.json", "--json", "-").stdout)["works"]
    (pair,) = work["published"]
    assert pair["batch"] == 512 and pair["throughput"]["published"] == pytest.approx(1e7 / 26 / 3600 / 8)
    assert pair["power"]["published"] == 585


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
    assert known(row) == {"device": "GH200", "items_per_s": 47505, "source": "arXiv 2409.12994, Section IV-A"}
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
    gpt = trained("gpt-13b", 80e9)
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
