# SPDX-License-Identifier: Apache-2.0
"""Metrics: over HTTP in the formats of Prometheus, and as files."""
import contextlib
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from jm import BIN, BUILD, FAILURE, SOURCE, USAGE, jm, sentence
from packages import python
from runs import records

FAKE = BUILD / "tests" / "peers" / "libnvidia-ml-fake.so"
OPEN = "application/openmetrics-text"
SAMPLE = re.compile(r'^([a-z_]+)\{(.*)\} (\S+)$')


def gpus(text="gpus=2;wave=const;power=300", **more):
    return {"JM_NVML_LIB": str(FAKE), "JM_FAKE_NVML": text, **more}


class Exporter:
    """joulemark export on a free port; ended with SIGTERM."""

    def __init__(self, *args, env=None):
        self.child = subprocess.Popen([BIN, "export", "--source", "nvml", "--port", "0", *args],
                                      stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or gpus())})
        assert select.select([self.child.stdout], [], [], 20)[0]
        self.url = self.child.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(timeout=240) == 0
        self.child.stdout.close()

    def get(self, accept="", path=""):
        request = urllib.request.Request(self.url + path, headers={"Accept": accept} if accept else {})
        with urllib.request.urlopen(request, timeout=240) as page:
            return page.read().decode(), page.headers["Content-Type"]

    def processor_seconds(self):
        with open(f"/proc/{self.child.pid}/stat", encoding="utf-8") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Resident, in kB."""
        with open(f"/proc/{self.child.pid}/status", encoding="utf-8") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])


def samples(text, name):
    """{meter id: value} of a metric; labels checked for their form."""
    found = {}
    for line in text.splitlines():
        hit = SAMPLE.match(line)
        if hit and hit[1] == name:
            labels = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', hit[2]))
            found[labels.get("phase", "") + labels["meter"]] = float(hit[3])
    return found


def promtool(text):
    if not shutil.which("promtool"):
        pytest.skip("promtool of Debian's prometheus is not installed")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_watts_and_joules_of_each_gpu():
    begun = time.monotonic()
    with Exporter() as exporter:
        time.sleep(1)
        asked = time.monotonic()
        first, at = exporter.get()[0], time.monotonic()
        time.sleep(1)
        again = time.monotonic()
        second, later = exporter.get()[0], time.monotonic()
    assert list(samples(first, "joulemark_power_watts").values()) == [pytest.approx(300, rel=0.01)] * 2
    a, b = samples(first, "joulemark_energy_joules_total"), samples(second, "joulemark_energy_joules_total")
    assert len(a) == 2 and all(0 < v <= 300 * (at - begun) for v in a.values())
    # the counter steps each 0.1 s and is taken out of the sampler's rings each 0.25 s
    assert all(300 * (again - at - 0.5) <= b[m] - a[m] <= 300 * (later - asked + 0.5) and b[m] > a[m] for m in a)
    assert set(samples(second, "joulemark_energy_resets_total").values()) == {0}


def test_time_without_power_is_told(tmp_path):
    """A sensor without a counter that vanishes for a while: the sums lack that time, and say how long it was."""
    folder = tmp_path / "sys/class/hwmon/hwmon0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("power_meter\n")
    (folder / "power1_label").write_text("Module Power Socket 0\n")
    (folder / "power1_average").write_text("100000000\n")
    with Exporter("--source", "hwmon", env=gpus(JM_ROOT=str(tmp_path))) as exporter:
        time.sleep(1)
        assert set(samples(exporter.get()[0], "joulemark_energy_unknown_seconds_total").values()) == {0}
        (folder / "power1_average").write_text("\n")
        time.sleep(2)
        (folder / "power1_average").write_text("100000000\n")
        time.sleep(1)
        missing, = samples(exporter.get()[0], "joulemark_energy_unknown_seconds_total").values()
    assert 1.5 < missing < 8


def test_formats_follow_the_client():
    with Exporter() as exporter:
        classic, kind = exporter.get()
        assert kind.startswith("text/plain; version=0.0.4") and "# EOF" not in classic
        assert "# TYPE joulemark_energy_joules_total counter" in classic
        text, kind = exporter.get(f"{OPEN};version=1.0.0,text/plain;q=0.5")
        assert kind.startswith(f"{OPEN}; version=1.0.0") and text.endswith("# EOF\n")
        assert "# TYPE joulemark_energy_joules counter\n# UNIT joulemark_energy_joules joules" in text
        with pytest.raises(urllib.error.HTTPError) as nothing:
            exporter.get(path="/nothing")
        assert nothing.value.code == 404
        with pytest.raises(urllib.error.HTTPError) as posted:
            urllib.request.urlopen(exporter.url, data=b"x" * 100000, timeout=240)
        assert posted.value.code == 405
    promtool(classic)


def test_many_requests_do_not_grow_it():
    """10,000 requests, each with a connection of its own, and clients that say nothing meanwhile."""
    with Exporter() as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for _ in range(500):
            exporter.get()
        before = exporter.memory()
        for _ in range(10000):
            exporter.get()
        # unless malloc is a sanitizer's, which keeps what was freed
        assert exporter.memory() - before < 512 or "asan" in os.environ.get("JM_BUILD", ""), "kB"
        for client in idle:
            client.close()
        with open(f"/proc/{exporter.child.pid}/status", encoding="utf-8") as status:
            assert int(re.search(r"FDSize:\s+(\d+)", status.read())[1]) <= 256


def raw(port, request):
    """The status of the answer to these bytes; 0 = the server closed the connection before it could be read."""
    with socket.create_connection(("127.0.0.1", port), timeout=240) as client:
        try:
            client.sendall(request)
            return int(client.recv(1000).split()[1])
        except ConnectionError:
            return 0


def test_slow_clients_of_one_address_shut_out_no_other():
    """They hold all connections that their address may have, with requests that never end."""
    with Exporter() as exporter, contextlib.ExitStack() as slow:
        port = int(exporter.url.split(":")[2].split("/")[0])
        for _ in range(64):
            one = slow.enter_context(socket.create_connection(("127.0.0.1", port), timeout=240))
            with contextlib.suppress(ConnectionError):  # refused
                one.sendall(b"GET /metrics HTTP/1.1\r\n")
        other = http.client.HTTPConnection("127.0.0.1", port, timeout=5, source_address=("127.0.0.2", 0))
        slow.callback(other.close)
        other.request("GET", "/metrics")
        answer = other.getresponse()
        assert answer.status == 200 and b"joulemark_power_watts" in answer.read()


def test_slow_clients_lose_their_connection():
    """A client that sends a byte now and then is not silent, but its request has a deadline of 20 s."""
    with Exporter() as exporter, contextlib.ExitStack() as slow:
        port = int(exporter.url.split(":")[2].split("/")[0])
        clients = [slow.enter_context(socket.create_connection(("127.0.0.1", port), timeout=240)) for _ in range(32)]
        open_until = time.monotonic() + 120
        while clients and time.monotonic() < open_until:
            for one in clients.copy():
                try:
                    one.sendall(b"G")
                    one.setblocking(False)
                    assert one.recv(100) == b""  # the server closed it
                    clients.remove(one)
                except BlockingIOError:
                    one.setblocking(True)
                except OSError:
                    clients.remove(one)
            time.sleep(1)
        assert not clients
        assert "joulemark_power_watts" in exporter.get()[0]


def test_a_wall_clock_that_is_set_back_changes_nothing(tmp_path):
    """Limits for clients count by another clock: they neither wait an hour nor poll without rest."""
    back = tmp_path / "back"
    env = gpus(LD_PRELOAD=str(BUILD / "tests/peers/libset-clock.so"), JM_FAKE_SET_BACK=str(back),
               ASAN_OPTIONS="verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", ""))
    with Exporter(env=env) as exporter:
        before = exporter.processor_seconds()
        back.touch()
        time.sleep(4)
        assert exporter.processor_seconds() - before < 2
        assert samples(exporter.get()[0], "joulemark_power_watts")


@pytest.mark.parametrize("address, options, known, foreign", [
    ("127.0.0.1", [], ["localhost", "LocalHost:9401", "127.0.0.1", "127.3.4.5:80", "[::1]:9401", "localhost."],
     ["evil.example", "evil.example:9401", "10.1.2.3", "localhost.evil.example", "[2001:db8::1]", "", "x" * 300, ":", "[", "{own}"]),
    ("127.0.0.1", ["--host", "node1.example.org,gpu"], ["node1.example.org:9401", "GPU", "localhost"], ["node1", "example.org"]),
    ("0.0.0.0", [], ["{own}", "{own}:9401", "127.0.0.1", "localhost"], ["evil.example", "10.1.2.3", "{own}.evil.example"]),
    ("127.0.0.5", [], ["127.0.0.5:1"], ["{own}"])])
def test_only_own_names_are_answered(address, options, known, foreign):
    """A foreign page whose name was made to lead here would let a browser read the metrics."""
    with Exporter("--address", address, *options) as exporter:
        port = int(exporter.url.split(":")[2].split("/")[0])

        def status(host):
            with socket.create_connection((address.replace("0.0.0.0", "127.0.0.1"), port), timeout=240) as client:
                name = host.replace("{own}", socket.gethostname())
                client.sendall(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                return int(client.recv(1000).split()[1])

        assert {host: status(host) for host in known} == {host: 200 for host in known}
        assert {host: status(host) for host in foreign} == {host: 421 for host in foreign}


def test_requests_without_end_are_refused():
    with Exporter() as exporter:
        port, before = int(exporter.url.split(":")[2].split("/")[0]), exporter.memory()
        start = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
        assert raw(port, start + b"X: " + 20_000 * b"a" + b"\r\n\r\n") in (0, 431)
        assert raw(port, start + 2_000 * b"X: a\r\n" + b"\r\n") in (0, 431)
        assert raw(port, b"GET /" + 20_000 * b"m" + b" HTTP/1.1\r\nHost: localhost\r\n\r\n") in (0, 414)
        assert raw(port, start + b"Accept: " + 3_000 * b"\xff" + b"\r\n\r\n") == 200
        assert "joulemark_power_watts" in exporter.get()[0]
        assert exporter.memory() - before < 1024 or "asan" in os.environ.get("JM_BUILD", ""), "kB"


def test_prometheus_scrapes_it(tmp_path):
    if not shutil.which("prometheus"):
        pytest.skip("Debian's prometheus is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Exporter() as exporter:
        target = exporter.url.split("/")[2]
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
            f"scrape_configs: [{{job_name: joulemark, static_configs: [{{targets: ['{target}']}}]}}]\n")
        server = subprocess.Popen(["prometheus", f"--config.file={tmp_path}/prometheus.yml",
                                   f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            series = await_samples(port, "joulemark_energy_joules_total[1m]")
            queries_have_answers(port)
        finally:
            server.kill()
            server.wait()
    assert len(series) == 2
    for one in series:
        assert one["metric"]["scope"] == "gpu" and one["metric"]["origin"] == "measured"
        (t0, v0), (t1, v1) = one["values"][0], one["values"][-1]
        assert (float(v1) - float(v0)) / (t1 - t0) == pytest.approx(300, abs=300 * 0.5 / (t1 - t0) + 1)


DASHBOARD = json.loads((SOURCE / "examples/grafana-dashboard.json").read_text())
# what Grafana puts in; the fake GPUs have no meters inside of others, and each has a counter
VARIABLES = {"$__rate_interval": "2s", "$__range": "10s", "$instance": ".*"}
EMPTY = {"Parts of meters", "Time without power"}


def targets():
    return [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]


def queries_have_answers(port):
    for title, query in targets():
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = json.load(answer)
        assert found["status"] == "success" and bool(found["data"]["result"]) == (title not in EMPTY), (title, found)


def test_the_dashboard_names_what_export_prints():
    """Its metrics, its labels, and panels that lie beside one another in Grafana's grid of 24 columns."""
    with Exporter("--source", "sim:h100x2") as exporter:  # whose memories are meters inside of others
        while not {"joulemark_power_watts{", "joulemark_energy_joules_total{"} <= set(re.findall(r"\w+\{", text := exporter.get()[0])):
            time.sleep(0.1)
    metrics = set(re.findall(r"^(joulemark_\w+)\{", text, re.M))
    labels = set(re.findall(r'[{,](\w+)="', text)) | {"instance", "job"}  # those of Prometheus itself
    used = " ".join(query for _, query in targets()) + json.dumps(DASHBOARD["templating"])
    assert set(re.findall(r"joulemark_\w+", used)) == metrics
    matched = re.findall(r"(\w+)(?:=~|!=|=)\"", " ".join(query for _, query in targets()))
    shown = re.findall(r"\{\{(\w+)\}\}", json.dumps(DASHBOARD)) + re.findall(r"by \((\w+)\)", used)
    assert set(matched) | set(shown) <= labels and matched and shown
    cells = [(x, y) for panel in DASHBOARD["panels"] for place in [panel["gridPos"]]
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in DASHBOARD["panels"]:
        assert {"type", "title", "gridPos", "fieldConfig", "options"} <= set(panel)
        assert panel["datasource"]["uid"] == "${datasource}" and [t["refId"] for t in panel["targets"]] == ["A"]


GRAFANA = """
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()
print(JSONEncoder().encode(Dashboard.from_json(json.load(open(sys.argv[1])))))
"""


def kept(given, read):
    """Each key and value of what is given is in what was read."""
    if isinstance(given, dict):
        return all(key in read and kept(value, read[key]) for key, value in given.items())
    if isinstance(given, list):
        return len(given) == len(read) and all(map(kept, given, read))
    return given == read


def test_the_dashboard_is_what_grafana_reads():
    """Grafana's own types read it, and know each of its keys: none is lost when they write it again."""
    read = json.loads(python("grafana", GRAFANA, SOURCE / "examples/grafana-dashboard.json"))
    assert kept(DASHBOARD, read)
    assert not kept(DASHBOARD, {**read, "panels": read["panels"][1:]})
    assert not kept({**DASHBOARD, "no-such-key": 1}, read)


def await_samples(port, query, least=12, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={query}", timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
            if found and len(found[0]["values"]) >= least:
                return found
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.2)
    raise AssertionError("prometheus has not scraped enough")


def test_what_cannot_be_served():
    assert "address" in sentence(jm("export", "--source", "null", "--address", "nowhere"), USAGE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = jm("export", "--source", "null", "--port", taken.getsockname()[1])
    assert "Cannot listen" in sentence(done, FAILURE)
    assert "libmicrohttpd" in sentence(jm("export", "--source", "null", env={"JM_MICROHTTPD_LIB": "/no.so"}), FAILURE)


def test_the_doctor_knows_the_libraries():
    found = {f["member"]: f for f in json.loads(jm("doctor", "--json", env={"JM_HDF5_LIB": "/no.so"}).stdout)
             if f["section"] == "Write"}
    assert set(found) == {"hdf5", "http"} and found["http"]["ok"]
    assert not found["hdf5"]["ok"] and "/no.so" in found["hdf5"]["why"] and "libhdf5" in found["hdf5"]["mend"]


# ---- files


def test_files_of_a_measurement(tmp_path):
    """The same figures as in the record, per phase and meter; twice the same mark is two phases."""
    script = f'for p in a b a; do "{BIN}" mark $p --items 3; sleep 0.3; done; "{BIN}" mark end'
    record = None
    for name in ("out.prom", "out.txt"):
        done = jm("measure", "--source", "nvml", "--json", "-", "--metrics", tmp_path / name, "--", "sh", "-c", script,
                  env=gpus())
        assert done.returncode == 0, done.stderr
        record, text = json.loads(done.stdout), (tmp_path / name).read_text(encoding="utf-8")
        assert text.endswith("# EOF\n") == (name == "out.txt")
        joules = samples(text, "joulemark_energy_joules_total")
        last = {p["name"] + m["id"]: m["joules"] for p in record["phases"] for m in p["meters"]
                if m["joules"] is not None}
        assert len(joules) >= 6 and joules == pytest.approx(last, rel=1e-12)
        assert 'time="2"' in text
    promtool((tmp_path / "out.prom").read_text(encoding="utf-8"))


def test_a_report_of_several_runs(tmp_path):
    """Each run of a store has samples of its own, with the joules of its record."""
    store, spent = tmp_path / "runs.db", []
    for _ in range(2):
        began = time.monotonic()
        assert jm("measure", "--source", "nvml", "--store", store, "--", "sleep", "0.4", env=gpus()).returncode == 0
        spent += 2 * [300 * (time.monotonic() - began)]
    done = jm("report", "--format", "openmetrics", store)
    assert done.returncode == 0 and done.stdout.endswith("# EOF\n"), done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("joulemark_energy_joules_total{")]
    assert len(lines) == 4 and len({line.split("} ")[0] for line in lines}) == 4
    assert {re.search(r'repeat="(\d)"', line)[1] for line in lines} == {"1", "2"}
    own = [m["joules"] for r in records(store) for p in r["phases"] for m in p["meters"]]
    joules = [float(line.split()[-1]) for line in lines]
    assert joules == pytest.approx(own, rel=1e-9) and all(300 * 0.4 * 0.8 < j <= most for j, most in zip(joules, spent))
    assert len({re.search(r'case="(\w+)"', line)[1] for line in lines}) == 1


def test_labels_are_escaped(tmp_path):
    done = jm("measure", "--source", "nvml", "--unit", 'a"b\\c\nd', "--metrics", tmp_path / "m.prom", "--",
              "sleep", "0.3", env=gpus())
    assert done.returncode == 0 and 'unit="a\\"b\\\\c\\nd"' in (tmp_path / "m.prom").read_text(encoding="utf-8")
    promtool((tmp_path / "m.prom").read_text(encoding="utf-8"))


def test_a_file_that_cannot_be_written(tmp_path):
    done = jm("measure", "--metrics", tmp_path / "no" / "m.prom", "--", "touch", tmp_path / "ran")
    assert sentence(done) and not (tmp_path / "ran").exists()
