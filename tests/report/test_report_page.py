# SPDX-License-Identifier: Apache-2.0
"""joulemark report --html: one page that holds all its data, in a browser."""
import html
import json
import re
import xml.etree.ElementTree

import numpy as np
import pytest

import many_records
import page_data
from jm import SOURCE, jm
from pages import CHROMIUM, Page, browse, make_page
from reports import best_within, expected, FIXTURES, NASTY, records, report, write
from runs import one
from serving import SERVE

BROWSER = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")


@pytest.fixture(name="nasty", scope="module")
def page_of_nasty_records(tmp_path_factory):
    """Records whose texts are markup, and their page."""
    rows = records("h100x4")
    rows[3]["reason"] = NASTY
    rows[4].update(status="failed", reason=NASTY)
    for r in rows:
        r["workload"] = r["case"]["parameters"]["workload"] = NASTY
    return rows, make_page(tmp_path_factory.mktemp("page"), rows).read_text()


def test_page_holds_each_record(nasty):
    rows, text = nasty
    runs = page_data.runs(json.loads(Page(text).scripts[0]))
    assert len(runs) == len(rows)
    for run in runs:
        row = rows[run["record"]]
        assert run["ok"] == (row["status"] == "ok") and run["id"] == row["case"]["id"][:8]
        assert run["reason"] == ("" if run["ok"] else row["reason"]) and run["started"] == row["started"]


def test_page_holds_the_figures_of_each_good_record(nasty):
    rows, text = nasty
    good = [run for run in page_data.runs(json.loads(Page(text).scripts[0])) if run["ok"]]
    assert good
    for run in good:
        row = rows[run["record"]]
        assert run["throughput"] == pytest.approx(row["throughput"], rel=1e-6)
        assert run["joules"] == pytest.approx(row["total"]["joules_simulated"], rel=1e-6)


def test_texts_of_records_are_no_markup(nasty):
    page = Page(nasty[1])
    template = (SOURCE / "report/page/page.html").read_text(encoding="utf-8")
    assert len(page.scripts) == template.count("<script") and not set("<>&") & set(page.scripts[0])
    assert page.title.startswith(NASTY)


def test_no_element_of_the_page_loads_anything(nasty):
    for tag, attrs in Page(nasty[1]).tags:
        assert not {"src", "href", "srcset", "data", "action"} & set(attrs), (tag, attrs)
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")


def test_no_style_of_the_page_loads_anything(nasty):
    style = re.search(r"<style>(.*?)</style>", nasty[1], re.S).group(1)
    assert "url(" not in style and "@import" not in style


def test_no_script_of_the_page_loads_anything(nasty):
    assert "default-src 'none'" in nasty[1]
    for script in Page(nasty[1]).scripts[2:]:
        assert not re.search(r"https?:|fetch\(|XMLHttpRequest|import\(|WebSocket", script)


def test_store_with_traces(tmp_path):
    store, out = tmp_path / "a.db", tmp_path / "a.html"
    done = jm("run", "sim", "--device", "sim:h100x2", "--set", "gpu.power=300W,400W", "--repeat", 2,
              "--seconds", 5, "--store", store)
    assert done.returncode == 0, done.stderr
    report(store, "--html", out)
    data = json.loads(Page(out.read_text()).scripts[0])
    stored = many_records.read(store)
    assert data["runs"]["n"] == 6 and data["runs"]["ok"] == 1
    assert len(data["traces"]) == 3  # one per setting: the reference and two caps
    for trace in data["traces"]:
        record = stored[trace["record"]]
        assert [p[:3] for p in trace["phases"]] == [
            [p["name"], pytest.approx(p["start_s"], abs=1e-5), pytest.approx(p["end_s"], abs=1e-5)] for p in record["phases"]]
        steady = next(p for p in record["phases"] if p["name"] == "steady")
        for meter in (m for m in record["meters"] if m["covered_by"] is None):
            points = page_data.points(next(m for m in trace["meters"] if m["id"] == meter["id"]))
            inside = [w for t, w in points if steady["start_s"] + 0.5 < t < steady["end_s"] - 0.5]
            assert np.median(inside) == pytest.approx(meter["watts_mean"], rel=0.02)
            assert meter["watts_median"] == pytest.approx(meter["watts_mean"], rel=0.02)
    table = report(store)
    assert table in done.stdout or table.splitlines()[0] in done.stdout
    assert len(json.loads(report("--format", "json", store))["cases"]) == 6


@BROWSER
@pytest.mark.parametrize("name", FIXTURES)
def test_page_in_a_browser(tmp_path, name):
    rows = records(name)
    rows[6]["quality"]["reasons"].append(NASTY)
    dom = browse(make_page(tmp_path, rows), "--dump-dom", "--window-size=1400,3000")
    assert 'data-ready="yes"' in dom
    titles = re.findall(r'role="img" aria-label="([^".]*)', dom)
    assert dom.count("<svg") == len(titles) == len(set(titles)) >= 6  # each chart once
    for words in ("Efficiency against throughput", "Power against the cap", "Best setting: least energy while at most 5"):
        assert words in dom
    assert dom.count('class="card ') == 5 and "alert(&quot;" not in dom.split("<main")[0]
    assert "the power is simulated, not measured" in dom


@BROWSER
def test_the_page_counts_failed_runs_as_runs(tmp_path):
    """One of the runs of this fixture failed."""
    rows = records("h100x4")
    dom = browse(make_page(tmp_path, rows), "--dump-dom")
    header = re.sub(r"<[^>]*>", " ", re.search(r'<header.*?</header>', dom, re.S).group(0))
    assert f"1 of {len(rows)} runs failed" in dom and f" {len(rows)} runs" in header


def cap(row):
    return None if row["case"]["reference"] else row["case"]["parameters"]["gpu.power"]


def leading_card(page):
    dom = browse(page, "--dump-dom", "--window-size=1280,2400")
    card = re.search(r'<section class="leading card.*?</section>', dom, re.S).group(0)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", card).replace("&nbsp;", " ")), dom


def limit_in_chart(dom):
    """The throughput at which the line of the limit stands, by the numbers of the axis."""
    chart = dom.split("<h3>Efficiency against throughput")[1].split("</svg>")[0]
    ticks = [(float(x), float(number.replace(",", ""))) for x, number in
             re.findall(r'<text [^>]*anchor="middle" y="[\d.]+" transform="translate\(([\d.]+) [^>]*>([\d,.]+)</text>', chart)]
    (x,) = re.findall(r'd="M([\d.]+) [\d.]+L\1 [\d.]+"[^>]*stroke-width="1.2"', chart)
    assert ">5\u00a0% slower</text>" in chart.replace("&nbsp;", "\u00a0")
    (x0, first), (x1, last) = ticks[0], ticks[-1]
    return first + (float(x) - x0) / (x1 - x0) * (last - first)


@BROWSER
@pytest.mark.parametrize("name", FIXTURES)
def test_page_leads_with_the_best_setting_within_5_percent(tmp_path, name):
    rows = records(name)
    text, dom = leading_card(make_page(tmp_path, rows))
    found = np.mean([r["throughput"] for r in rows if r["case"]["reference"] and r["status"] == "ok"])
    assert limit_in_chart(dom) == pytest.approx(found / 1.05, rel=0.002)
    best = best_within(rows, 5)
    if not best:
        assert "No best setting: " in text
    elif len(best) == 1:
        gain = np.mean(expected(rows, "energy_gain_percent")[False, best[0].replace(" ", "")])
        assert f" {best[0]} " in text and "no clear best" not in text and " simulated" in text
        assert float(re.search(r"([\d.]+) (?:± [\d.]+ )?% less energy", text).group(1)) == pytest.approx(gain, abs=0.06)
    else:
        assert "no clear best" in text and all(f"{setting}" in text for setting in best)
    assert dom.index("leading card") < dom.index("Efficiency against throughput") < dom.index('class="cards"')


@BROWSER
@pytest.mark.parametrize("limit", ["5%", "40%"])  # with the smallest limit that has an answer, and with an answer
def test_page_says_what_the_terminal_says(tmp_path, limit):
    """The block of the terminal: the title, and the answer with the command or the limit that follows from it."""
    path = write(tmp_path, records("h200x4"))
    report("--format", "html", "--output", tmp_path / "page.html", "--max-slowdown", limit, path)
    block = report("--max-slowdown", limit, "--width", "200", path).split("Best setting: ")[1].split("\n\n")[0]
    text, _ = leading_card(tmp_path / "page.html")
    text = re.sub(r"\s+", " ", html.unescape(text).replace("\u00a0", " "))
    for line in ("Best setting: " + block).splitlines():
        assert re.sub(r"\s+", " ", line.strip()) in text, text


@BROWSER
def test_page_says_why_there_is_no_best_setting(tmp_path):
    text, _ = leading_card(make_page(tmp_path, [r for r in records("h200x4") if r["case"]["repeat"] == 1]))
    assert "No best setting: one repeat gives no interval" in text and "% less" not in text


@BROWSER
@pytest.mark.parametrize("name", FIXTURES)
def test_numbers_have_as_many_digits_as_in_the_terminal(tmp_path, name):
    """The values in the verdicts are written by the program, the same numbers in tables and charts by the page."""
    page = make_page(tmp_path, records(name))
    compare = """<script>for (const s of JM.S.series) for (const v of s.verdicts.filter((x) => x.value)) {
        const stat = s.points[v.leading].metrics[v.metric], scale = JM.scale(s.metrics[v.metric].unit, [stat.mean]);
        const own = JM.estimate(stat.mean / scale.factor, stat.half / scale.factor).replace(/\u00a0/g, " ");
        document.body.append(JM.el("pre", { class: "pair" }, v.value + "|" + own)); }
        document.body.append(JM.el("pre", { class: "csv" }, JM.csvOf([{ title: "shape", left: true, of: () => "128,256" },
            { title: "rate", of: () => JM.plain(1234567) }], [1])));</script></body>"""
    page.write_text(page.read_text().replace("</body>", compare))
    dom = browse(page, "--dump-dom")
    assert re.search(r'<pre class="csv">(.*?)</pre>', dom, re.S).group(1).split() == ["shape,rate", '"128,256",1234567']
    pairs = [p.split("|") for p in re.findall(r'<pre class="pair">(.*?)</pre>', dom, re.S)]
    assert len(pairs) >= 5
    for program, own in pairs:
        assert re.match(r"-?[\d,.]+( ± [\d,.]+)?", program).group(0) == own


def rate(i):
    return 100 + 50 * (i % 2)


@pytest.fixture(name="stepped", scope="module")
def page_of_steps(tmp_path_factory):
    """Good records with the steps of their runs, 3 in the first and 1,000 in all others, and their page."""
    rows = [r for r in records("h100x4") if r["status"] == "ok"]
    for k, r in enumerate(rows):
        n = 1000 if k else 3
        r.update(warmup_steps=2, step_series={
            "every": 4, "steps": 4 * n - 1, "end_s": [(i + 1) / 8 for i in range(n)],
            "throughput": [rate(i) for i in range(n)], "loss": [None if i == 1 else 9 - i / 200 for i in range(n)]})
    return rows, make_page(tmp_path_factory.mktemp("page"), rows * 1)


def test_page_has_the_steps_of_one_run_of_each_setting(stepped):
    rows, page = stepped
    steps = page_data.of(page.read_text())["steps"]
    settings = {(r["case"]["reference"], r["case"]["parameters"]["gpu.power"]) for r in rows}
    assert len(steps) == len(settings) and len({s["run"] for s in steps}) == len(settings)


def test_steps_are_joined_where_a_page_of_many_would_grow(stepped):
    rows, page = stepped
    data = page_data.of(page.read_text())
    assert sum(len(s["loss"]) for s in data["steps"]) <= 15000
    for s in data["steps"]:
        own, join = rows[page_data.runs(data)[s["run"]]["record"]]["step_series"], s["every"] // 4
        assert s["steps"] == own["steps"] and len(s["loss"]) == len(s["end_s"]) <= 1000
        assert s["end_s"][-1] == own["end_s"][-1] and s["loss"][0] == own["loss"][join - 1]
        assert s["throughput"][0] == pytest.approx(join / sum(1 / rate(i) for i in range(join)), rel=1e-6)


def test_page_tells_the_steps_of_warm_up(stepped):
    assert {s["warmup"] for s in page_data.of(stepped[1].read_text())["steps"]} == {2}


@BROWSER
def test_page_draws_each_step(stepped):
    dom = browse(stepped[1], "--dump-dom", "--window-size=1280,4000")
    chart = dom.split("<h3>Each step")[1].split("</section>")[0]
    assert "A point stands for " in chart and chart.split("</svg>")[0].count("stroke-linejoin") >= 2
    assert "throughput in token/s" in chart and ">loss</text>" in chart


@BROWSER
def test_page_without_steps_has_no_chart_of_them(tmp_path):
    assert "<h3>Each step" not in browse(make_page(tmp_path, records("h100x4")), "--dump-dom")


@BROWSER
def test_page_has_the_memory_clock_against_the_cap(tmp_path):
    """Mean over the devices that tell it; where none does, the strip is absent, not 0."""
    rows = [r for r in records("h100x4") if r["status"] == "ok"]
    caps = sorted({cap(r) for r in rows if not r["case"]["reference"]})
    low, high = caps[0], caps[-1]
    for r in rows:
        meters = [m for m in r["meters"] if m["scope"] == "gpu"]
        clocks = {low: [1.5e9, 1.7e9], high: [2.6e9]}.get(cap(r), [])
        for m, mean in zip(meters, clocks):
            m["signals"] = [{"quantity": "memory-clock", "unit": "Hz", "n": 9, "mean": mean, "min": mean, "max": mean}]
    page = make_page(tmp_path, rows)
    for run in page_data.runs(page_data.of(page.read_text())):
        assert run["memory_hertz"] == {low: 1.6e9, high: 2.6e9}.get(cap(rows[run["record"]])), run
    panel = browse(page, "--dump-dom", "--window-size=1280,4000").split("<h3>Clocks and temperature")[1].split("</section>")[0]
    assert ">memory clock in MHz</text>" in panel and ">clock in MHz</text>" not in panel
    assert ">memory clock in MHz</text>" not in browse(make_page(tmp_path, records("h100x4")), "--dump-dom", "--window-size=1280,4000")


@BROWSER
def test_page_has_the_hardware(tmp_path):
    """One column for each kind of device; what no device knows has no row, what one does not know is no 0."""
    rows = records("h100x4")
    known = {"memory_bytes": 85e9, "power_default_watts": 700.0, "sm_count": 132.0, "peak_bf16_flops_per_s": 1070.53e12}
    devices = [{"id": f"GPU-{i}", "name": f"GPU {i} NVIDIA {model}", "source": "nvml", "hardware": figures}
               for i, (model, figures) in enumerate([("H100", known)] * 4 + [("X1", {"memory_bytes": 24e9})])]
    for r in rows:
        r["provenance"]["devices"] = devices
    dom = browse(make_page(tmp_path, rows), "--dump-dom", "--window-size=1280,4000")
    table = dom.split("<h3>Hardware")[1].split("</table>")[0]
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", "|", table))
    cells = [[c for c in re.sub("<[^>]*>", "|", row).split("|") if c.strip()] for row in table.split("</tr>")]
    assert "4 \u00d7 NVIDIA H100" in text and "NVIDIA X1" in text
    assert ["memory", "GB", "85", "24"] in cells and ["multiprocessors", "132", "\u2013"] in cells
    assert ["peak bf16", "TFLOP/s", "1071", "\u2013"] in cells and ["power limit by default", "W", "700", "\u2013"] in cells
    assert not [row for row in cells if "tf32" in " ".join(row)]


@BROWSER
def test_each_chart_is_a_valid_svg_file(tmp_path):
    page = make_page(tmp_path, records("h200x4"))
    click = """<script>setTimeout(() => {
        JM.download = (name, type, text) => document.body.append(JM.el("pre", { class: "file" }, name + "|" + text));
        document.querySelectorAll("button.save").forEach((b) => b.textContent === "SVG" && b.click()); }, 1000)</script></body>"""
    page.write_text(page.read_text().replace("</body>", click))
    dom = browse(page, "--dump-dom", "--window-size=1280,700")  # most charts are out of sight
    files = dict(html.unescape(f).split("|", 1) for f in re.findall(r'<pre class="file">(.*?)</pre>', dom, re.S))
    assert len(files) == dom.count('role="img"') >= 6 and "efficiency-against-throughput.svg" in files
    for text in files.values():
        root = xml.etree.ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and len(list(root.iter(root.tag[:-3] + "text"))) > 5


@BROWSER
def test_systems_of_the_same_work_share_one_chart(tmp_path):
    """Three machines and two networks: two charts of three systems each, both axes from 0."""
    rows = []
    for network in ("a", "b"):
        for machine in ("h100x4", "h200x4", "mi300x4"):
            text = json.dumps(records("h200x4")).replace("sim:h200x4", f"sim:{machine}").replace("resnet50", network)
            part = json.loads(text)
            for r in part if machine == "mi300x4" else []:
                many_records.scale(r, 2)  # twice the energy
            rows += part
    out = make_page(tmp_path, rows)
    dom = browse(out, "--dump-dom", "--window-size=1280,9000")
    assert len(re.findall(r"<h3>Efficiency against throughput", dom)) == 1
    chart = dom.split("<h3>Efficiency against throughput: ")[1].split("</svg>")[0]
    assert len(re.findall(r"<option[^>]*>", chart)) == 2  # the other work is chosen there
    assert {"sim:h100x4", "sim:h200x4", "sim:mi300x4"} <= set(re.findall(r">(sim:[^<,]*), bf16</text>", chart))
    assert len(re.findall(r"<text[^>]*>0</text>", chart)) == 2
    bars = dom.split("<h3>Systems compared: ")[1].split("</svg>")[0]
    heights = [float(h) for h in re.findall(r'<path d="M[\d.]+ [\d.]+l[\d.]+ 0l0 ([\d.]+)l-[\d.]+ 0Z" fill="#', bars) if float(h) > 20]
    assert [h / heights[0] for h in heights] == pytest.approx([1, 1, 0.5], abs=0.01)
    table = dom.split('id="systems"')[1].split("</table>")[0]
    assert all(f'href="#s{i}"' in table for i in range(1, 7))
    assert 'id="s1"' in dom and 'id="s5"' not in dom  # one system at a time, the others by their links
    assert 'id="s5"' in browse(out, "--dump-dom", fragment="#s5/throughput")


@BROWSER
def test_a_chart_explains_only_what_it_shows(tmp_path):
    """Without a reference there is no diamond, no ring and no line of equal EDP; one run each has no interval."""
    out = make_page(tmp_path, [r for r in records("h200x4") if not r["case"]["reference"] and r["case"]["repeat"] == 1])
    chart = browse(out, "--dump-dom", "--window-size=1280,2000").split("<h3>Efficiency against throughput")[1].split("</section>")[0]
    assert "Up and to the right is better. Both axes start at 0.<" in chart and "equal EDP" not in chart


@BROWSER
def test_page_of_one_measurement_in_a_browser(tmp_path):
    row = records("h200x4")[0]
    for key in ("case", "settings", "status", "reason", "workload", "unit", "items", "throughput"):
        del row[key]
    row["command"] = ["train", "<b>"]
    dom = browse(make_page(tmp_path, row), "--dump-dom")
    assert 'data-ready="yes"' in dom and "All settings" in dom and "<b></b>" not in dom


@BROWSER
def test_power_over_time_has_a_line_of_rated_power(tmp_path):
    """Of the devices that were metered, within the plot although the cap keeps the power far below it."""
    store, page = tmp_path / "a.db", tmp_path / "a.html"
    assert jm("run", "sim", "--device", "sim:h100x1", "--seconds", 2, "--set", "gpu.power=250W", "--store", store).returncode == 0
    rows = many_records.read(store)
    report(store, "--html", page)
    data = page_data.of(page.read_text())
    rated = {d["hardware"]["power_default_watts"] for d in rows[0]["provenance"]["devices"]}
    assert data["traces"] and all(set(t["rated"]) == rated and len(rated) == 1 for t in data["traces"])
    words = f">rated power of a device {rated.pop():.0f} W</text>"
    chart = lambda: browse(page, "--dump-dom", "--window-size=1400,4000").split("<h3>Power over time")[1].split("</svg>")[0]
    assert words in chart()
    for t in data["traces"]:  # no source knew it
        t["rated"] = []
    page.write_text(re.sub(r'(id="jm-data">).*?(</script>)', lambda m: m[1] + json.dumps(data) + m[2], page.read_text(), flags=re.S))
    assert "rated power" not in chart()


@BROWSER
def test_names_of_phases_within_others_in_a_browser(tmp_path):
    """The one epoch is all of the steady phase: their bars are in lanes, one below the other."""
    store, page = tmp_path / "a.db", tmp_path / "a.html"
    assert jm("run", "null", "--step-time", "20ms", "--source", "sim:h100x1", "--epochs", 2, "--epoch-steps", 10,
              "--store", store).returncode == 0
    report(store, "--html", page)
    dom = browse(page, "--dump-dom", "--window-size=1400,2000")
    place = {name: tuple(map(float, xy)) for *xy, name in re.findall(
        r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(steady|epoch 2)</text>', dom)}
    assert abs(place["steady"][0] - place["epoch 2"][0]) < 20
    assert place["epoch 2"][1] - place["steady"][1] > 10


@BROWSER
def test_phases_of_a_run_without_meters_are_said_to_have_none(tmp_path):
    (row,) = records("h200x4", 1)
    row["meters"], steady = [], row["phases"][-1]
    row["phases"].insert(0, {"name": "warmup", "start_s": 0.0, "end_s": steady["start_s"], "items": 1.0, "total": {}, "meters": []})
    page = tmp_path / "a.html"
    report(write(tmp_path, [row]), "--html", page)
    table = re.search(r'<section[^>]*/phases".*?</section>', browse(page, "--dump-dom", "--window-size=1400,2000"), re.S)[0]
    assert "it had no meters" in table and "measured" not in table


@BROWSER
def test_power_of_an_unknown_energy_is_no_zero_in_a_browser(tmp_path):
    store, page = tmp_path / "a.db", tmp_path / "a.html"
    assert jm("run", "null", "--step-time", "20ms", "--source", "null", "--steps", 5, "--warmup", 1, "--store", store).returncode == 0
    report(store, "--html", page)
    dom = browse(page, "--dump-dom", "--window-size=1400,2000")
    table = re.search(r'<section[^>]*/phases".*?</section>', dom, re.S)[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in re.findall(r"<tr.*?</tr>", table, re.S)]
    rows = [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in rows if re.sub(r"<[^>]*>", "", row[0]) in ("warmup", "steady")]
    assert len(rows) == 2
    for name, seconds, joules, watts, items, each in rows:
        assert float(seconds) > 0 and float(items) > 0 and joules == watts == each == "\u2013", name


@BROWSER
def test_traces_that_are_left_out_are_told_in_a_browser(tmp_path):
    """A page has 100 at most, or it would be too large."""
    store, page = tmp_path / "a.db", tmp_path / "a.html"
    done = jm("run", "sim", "--device", "sim:h100x1", "--seconds", 1, "--set", "gpu.power=200:460+2W",
              "--store", store)
    assert done.returncode == 0, done.stderr
    report(store, "--html", page)
    assert len(json.loads(Page(page.read_text()).scripts[0])["traces"]) == 100
    dom = browse(page, "--dump-dom", "--window-size=1400,2000")
    assert "The traces of 100 of 132 settings are on this page." in dom  # 131 caps and what was found


@BROWSER
def test_page_of_a_thousand_runs_holds_what_it_draws(tmp_path):
    """Beyond 8 MB of records: one of each series is whole but for its details, of the others what charts need."""
    store, page = tmp_path / "a.db", tmp_path / "a.html"
    many_records.make(store, 1000, caps=100)
    report(store, "--html", page)
    assert page.stat().st_size < 1.3e6  # the records have 20 kB each
    data, rows = page_data.of(page.read_text()), many_records.read(store)
    runs = page_data.runs(data)
    assert len(runs) == 1000
    for run in runs:
        row = rows[run["record"]]
        assert run["started"] == row["started"] and run["watts_mean"] == pytest.approx(
            sum(m["watts_mean"] for m in row["meters"] if not m["covered_by"]), rel=1e-6)
    # how many charts there are after the first frame: only those in sight
    page.write_text(page.read_text().replace("</body>", """<script>requestAnimationFrame(() => setTimeout(() =>
        document.body.dataset.first = document.querySelectorAll("main svg").length, 0))</script></body>"""))
    dom = browse(page, "--dump-dom", "--window-size=1400,700", "--virtual-time-budget=20000")
    assert 'data-ready="yes"' in dom and ">Runs as CSV</button>" in dom
    assert int(re.search(r'data-first="(\d+)"', dom).group(1)) <= 2 < dom.count("<svg") == dom.count('role="img"')
    chart = dom.split("<h3>Power against the cap")[1].split("</svg>")[0]
    assert len(re.findall("<path", chart)) >= 100, "a mark for each cap"
    assert dom.count("<h3>Machine</h3>") == 1 and rows[0]["provenance"]["kernel"] in dom


@BROWSER
def test_batch_and_devices_are_a_matrix_and_a_scaling_chart(tmp_path):
    """Cells without a success are OOM, those that were not run are empty; scaling is by devices."""
    first = next(r for r in records("h200x4") if r["status"] == "ok")
    rows = []
    for n in (1, 2, 4):
        for batch in (8, 16, 32):
            r = json.loads(json.dumps(first))
            r.update(device=f"sim:h200x{n}", devices=n, settings=[], throughput=100.0 * batch * n ** 0.9)
            r["throughput_per_device"] = r["throughput"] / n
            steady = next(p for p in r["phases"] if p["name"] == r["phase"])
            steady["items"] = r["throughput"] * (steady["end_s"] - steady["start_s"])
            r["case"] |= {"id": f"{n * 100 + batch:032x}", "reference": False, "parameters": {
                "workload": "resnet50", "device": r["device"], "options": {"batch": batch}}}
            if n == 1 and batch == 32:
                r.update(status="failed", failure="memory", reason="The plan needs 98 GB.")
            if (n, batch) != (4, 16):
                rows.append(r)
    dom = browse(make_page(tmp_path, rows), "--dump-dom", "--window-size=1280,3000")
    assert re.search(r"<h2>Least energy per image</h2>.*No best setting: one repeat gives no interval.*"
                     r"Least mean: resnet50 on sim:h200x4[^<]*: batch 32<", dom, re.S)
    matrix = dom.split("<h3>batch × system: resnet50")[1].split("</svg>")[0]
    cells = re.findall(r"<text[^>]*>([\d,.]+|OOM)</text>", matrix)
    want = [f"{100 * b * n ** 0.9:.{max(0, 3 - int(np.log10(100 * b * n ** 0.9)))}f}" for n in (1, 2, 4)
            for b in (8, 16, 32) if (n, b) not in ((1, 32), (4, 16))]
    assert sorted(c.replace(",", "") for c in cells if c not in ("8", "16", "32")) == sorted([*want, "OOM"])
    scaling = dom.split("<h3>Scaling: resnet50")[1].split("</svg>")[0]
    shares = re.findall(r"<text[^>]*>(\d+) %</text>", scaling)
    assert shares == [f"{100 * n ** -0.1:.0f}" for n in (2, 4)]


def sized(rows_of):
    """Records of one system, made of one that succeeded: (options, watts of a cap or None, throughput or None if it failed)."""
    first = next(r for r in records("h200x4") if r["status"] == "ok" and r["settings"])
    rows = []
    for i, (options, watts, throughput) in enumerate(rows_of):
        r = json.loads(json.dumps(first))
        r.update(device="sim:h200x4", devices=4, throughput=throughput or 1.0)
        steady = next(p for p in r["phases"] if p["name"] == r["phase"])
        steady["items"] = r["throughput"] * (steady["end_s"] - steady["start_s"])
        r["case"] |= {"id": f"{i:032x}", "reference": False, "parameters": {
            "workload": "gemm", "device": r["device"], "options": options} | ({"gpu.power": f"{watts}W"} if watts else {})}
        r["settings"] = [dict(s, requested=watts, accepted=watts, enforced=watts) for s in r["settings"]] if watts else []
        if throughput is None:
            r.update(status="failed", reason="out of memory")  # as of old versions, without its kind
        rows.append(r)
    return rows


@BROWSER
def test_batches_stand_at_their_logarithms_and_failed_ones_nowhere(tmp_path):
    rows = sized([({"batch": b}, None, 100.0 * b ** 0.5 if b < 4096 else None) for b in (1, 4, 16, 64, 256, 1024, 4096)])
    dom = browse(make_page(tmp_path, rows), "--dump-dom", "--window-size=1280,3000")
    chart = dom.split("<h3>Throughput")[1].split("</svg>")[0]
    marks = {text: float(x) for x, text in re.findall(r'transform="translate\(([\d.]+) [^>]*>(\d+)</text>', chart)}
    assert {"4", "16", "64", "256"} <= set(marks) and "4096" not in marks
    assert marks["16"] - marks["4"] == pytest.approx(marks["256"] - marks["64"], abs=1)
    runs, plane = dom.split("<h3>All runs")[1], dom.split("<h3>Efficiency against throughput")[1].split("</svg>")[0]
    assert ">batch 16<" in runs and ">16<" not in runs and ">batch 1<" in plane and ">batch 16<" not in plane
    assert "Of one run (batch 1)" in dom and "Of one run (all)" not in dom


@BROWSER
@pytest.mark.parametrize("sizes", [(64, 128, 256), (64, 128, 256, 512, 1024, 2048)])
def test_turned_names_of_settings_lie_apart(tmp_path, sizes):
    """Lines of 12 px, some left out where there are very many; the name of the axis stands below them."""
    rows = sized([({"seq": s, "batch": b, "hidden": h}, None, float(s + b + h)) for s in (512, 1024) for b in (1, 2, 4) for h in sizes])
    dom = browse(make_page(tmp_path, rows), "--dump-dom", "--window-size=1280,3000")
    for title in ("Throughput", "Energy per "):
        chart = dom.split(f"<h3>{title}")[1].split("</svg>")[0]
        names = re.findall(r'transform="matrix\(([^)]*)\)"[^>]*>[\d, ]{9,}</text>', chart)
        sines, xs = zip(*((-float(m.split(",")[1]), float(m.split(",")[4])) for m in names))
        assert len(xs) >= 9 and min(np.diff(sorted(xs))) * min(sines) > 11.5, title
        assert re.search(r">[a-z]+, [a-z]+, [a-z]+</text>", chart), title


@BROWSER
def test_sizes_of_products_and_caps_are_a_matrix(tmp_path):
    sizes, caps = (512, 1024, 2048), (300, 500, 700)
    rows = sized([({"m": n, "n": n, "k": n}, w, float(n + w)) for n in sizes for w in caps])
    dom = browse(make_page(tmp_path, rows), "--dump-dom", "--window-size=1280,4000")
    matrix = dom.split("<h3>m = n = k × gpu.power")[1].split("</svg>")[0]
    cells = [float(c.replace(",", "")) for c in re.findall(r"<text[^>]*>([\d,.]+)</text>", matrix)]
    assert {n + w for n in sizes for w in caps} <= set(cells)


BATCHES, RANKS = (8, 16, 32, 64, 128, 256, 512, 1024), (1, 2, 4)


def batches_and_ranks():
    """The last batch of four ranks does not fit."""
    return sized([({"ranks": n, "batch": b}, None, 1000.0 * n * b ** 0.5 if n * b <= 2048 else None) for n in RANKS for b in BATCHES])


@BROWSER
def test_of_two_dimensions_one_is_the_axis_and_the_other_has_lines(tmp_path):
    dom = browse(make_page(tmp_path, batches_and_ranks()), "--dump-dom", "--window-size=1280,4000")
    panel = dom.split("<h3>Throughput")[1].split("</section>")[0]
    assert "A line for each value of ranks." in panel
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", panel)
    assert {"batch", *(f"ranks {n}" for n in RANKS)} <= set(texts)
    assert {str(b) for b in BATCHES} <= set(texts)  # whole, and no name of both
    assert not any("batch " in text for text in texts)


@BROWSER
@pytest.mark.parametrize("width", [390, 1280])
def test_figures_of_a_matrix_fit_their_cells(tmp_path, width):
    page = make_page(tmp_path, batches_and_ranks())
    frame = tmp_path / "frame.html"  # a window has 500 px at least
    frame.write_text(f'<iframe src="{page.name}" style="width:{width}px;height:4000px"></iframe>'
                     "<script>setTimeout(() => document.body.append(document.querySelector('iframe').contentDocument.documentElement.outerHTML), 3000)</script>")
    dom = html.unescape(browse(frame, "--dump-dom", "--window-size=1400,4100", "--allow-file-access-from-files"))
    matrix = dom.split("<h3>batch × ranks")[1].split("</svg>")[0]
    cells = re.findall(r"<text[^>]*>([\d.,]+k?|OOM)</text>", matrix)
    assert cells.count("OOM") == 1
    exact = [f"{1000 * n * b ** 0.5:,.0f}" for n in RANKS for b in BATCHES if n * b <= 2048]
    if width == 1280:
        assert set(exact) <= set(cells)
    else:
        drawn = re.search(r'<svg width="(\d+)"', matrix)
        assert int(drawn[1]) < 360 and "16k" in cells and all(len(cell) < 6 for cell in cells)


@BROWSER
def test_rates_of_requests_have_charts_of_their_latencies(tmp_path):
    """Joules per token, p99 of the first token and of those after it, each against the rate of arrivals; with a bound a dotted line."""
    rows = one(*(x for x in SERVE if x not in ("--source", "null")), "--source", "estimate", "--device", "ref", "--seconds", "1",
               "--arrival", "poisson", "--rate", "20,60", "--input-tokens", "3", "--output-tokens", "2:5", "--ttft", "1000s")
    dom = browse(make_page(tmp_path, rows), "--dump-dom", "--window-size=1400,3000")
    assert "Dotted: the bound --ttft." in dom and "Dotted: the bound --tpot." not in dom
    unit, *marks = re.findall(r">([^<>]*)</text>", dom.split("<h3>TTFT p99")[1].split("</svg>")[0])
    assert f"{1000 * {'ms': 10 ** 3, 'µs': 10 ** 6}[unit]:,}" in marks  # the axis reaches the bound, which no first token does
    assert re.search(">[mµ]s<", dom.split("<h3>TPOT p99")[1].split("</svg>")[0])
    titles = [html.unescape(t) for t in re.findall(r'role="img" aria-label="([^".]*)', dom)]
    assert {"Energy per token", "TTFT p99", "TPOT p99"} <= set(titles)


@BROWSER
def test_systems_whose_energy_has_several_origins_say_which(tmp_path):
    simulated = records("h200x4")
    run = one("run", "null", "--source", "estimate", "--steps", "2")
    systems = browse(make_page(tmp_path, [*simulated, run]), "--dump-dom", "--window-size=1400,3000").split("<h3>All systems")[1].split("</table>")[0]
    assert re.findall(r">(estimated|measured|simulated)<", systems) == ["simulated", "estimated"]
    alike = browse(make_page(tmp_path, [*simulated, *records("h100x4")]), "--dump-dom", "--window-size=1400,3000").split("<h3>All systems")[1].split("</table>")[0]
    assert not re.findall(r">(origin|simulated)<", alike)
