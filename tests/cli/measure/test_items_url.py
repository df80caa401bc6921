# SPDX-License-Identifier: Apache-2.0
"""measure --items-url: items that a server counts itself, for what runs already and for a command."""
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from jm import BIN, USAGE, jm, sentence
from measured import check, fakes

ENV = fakes("gpus=1;wave=square;low=300;high=300;period=1")
TEXT = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="a \\"b\\", c}}"}} {0} 1700000000000
vllm:generation_tokens_total{{model_name="other"}} {1}
vllm:generation_tokens_total_created 7
broken{{x="y 3
vllm:prompt_tokens_total 1e3
"""


class Server:
    """Metrics whose counters are set by the test; it notes when it was asked."""
    def __init__(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(time.monotonic())
                text = (TEXT.format(*outer.counts(len(outer.asked)))).encode()
                self.send_response(outer.status if self.path == "/metrics" else 404)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.asked, self.status, self.counts = [], 200, lambda n: (0, 0)
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/metrics"

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(name="server")
def a_server():
    server = Server()
    yield server
    server.close()


def measured(server, *options, metric="vllm:generation_tokens_total", **more):
    return jm("measure", "--source", "nvml", "--json", "--items-url", server.url, "--items-metric", metric, "--unit", "token",
              *options, env=ENV, **more)


@pytest.mark.parametrize("metric, first, rate", [
    ("vllm:generation_tokens_total", 1000 + 5, 100 + 7), ('vllm:generation_tokens_total{engine="0"}', 1000, 100),
    ('vllm:generation_tokens_total{model_name="a \\"b\\", c}",engine="0"}', 1000, 100),
    ('vllm:generation_tokens_total{model_name="other"}', 5, 7)])
def test_items_are_the_increase_of_the_counter(server, metric, first, rate):
    """Each answer has more; the measurement counts from its own first answer to its last."""
    server.counts = lambda n: (1000 + 100 * n, 5 + 7 * n)
    done = measured(server, "--for", "2.5s", metric=metric)
    assert done.returncode == 0, done.stderr
    record = check(json.loads(done.stdout))
    assert first >= 0 and record["items"] == rate * (len(server.asked) - 2)  # the first answer is the check of the name
    assert len(server.asked) >= 4 and record["items_from"] == {"url": server.url, "metric": metric}
    assert record["unit"] == "token" and record["throughput"] == pytest.approx(record["items"] / record["wall_s"])
    assert 2.5 <= server.asked[-1] - server.asked[1] < 3.5
    joules = record["total"]["joules_measured"]
    assert joules == pytest.approx(300 * record["wall_s"], rel=0.02)
    shown = done.stderr.split(" J/token")[0].split()[-1] if " J/token" in done.stderr else done.stderr.split(" mJ/token")[0].split()[-1]
    assert float(shown) * (1 if " J/token" in done.stderr else 1e-3) == pytest.approx(joules / record["items"], rel=1e-3)


def test_items_of_a_process_and_of_a_command(server):
    server.counts = lambda n: (10 * n, 0)
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            found = json.loads(measured(server, "--pid", str(other.pid), "--for", "0.3s").stdout)
        finally:
            other.kill()
    assert found["items"] == 10 and found["attached"]["what"].startswith(f"process {other.pid}")
    server.asked.clear()
    done = measured(server, "--", "sleep", "0.3")
    assert done.returncode == 0 and json.loads(done.stdout)["items"] == 10 and "10 tokens" in done.stderr


@pytest.mark.parametrize("counts, says", [
    (lambda n: (100 - n, 0), "became smaller"), (lambda n: (100 if n < 3 else "NaN", 0), "no finite number"),
    (lambda n: (100 if n < 3 else "x", 0), "no finite number")])
def test_a_counter_that_starts_anew_or_has_no_value_leaves_the_items_unknown(server, counts, says):
    server.counts = counts
    done = measured(server, "--for", "0.3s")
    record = check(json.loads(done.stdout))
    assert done.returncode == 0 and record["items"] is None and record["throughput"] is None and says in done.stderr
    assert record["total"]["joules_measured"] == pytest.approx(300 * record["wall_s"], rel=0.1)


def test_a_server_that_is_gone_at_the_end_leaves_the_items_unknown(server):
    server.counts = lambda n: (10 * n, 0)
    with subprocess.Popen([BIN, "measure", "--source", "nvml", "--json", "--items-url", server.url, "--items-metric",
                           "vllm:generation_tokens_total", "--all"], env={**os.environ, **ENV}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while len(server.asked) < 4:
            time.sleep(0.01)
        server.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert json.loads(out)["items"] is None and "does not answer" in err and "there were 20 items" in err
    server.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.http.serve_forever, daemon=True).start()  # for the fixture's end


@pytest.mark.parametrize("metric, says", [
    ("vllm:tokens", "vllm:generation_tokens_total, vllm:prompt_tokens_total"), ('vllm:generation_tokens_total{engine="1"}', "has no metric"),
    ("broken", "has no metric")])
def test_a_metric_that_is_not_there_is_an_error_before_anything_is_measured(server, metric, says):
    done = measured(server, "--for", "60s", metric=metric)
    assert done.returncode == 125 and says in sentence(done) and not done.stdout


@pytest.mark.parametrize("options", [
    ("--items-url", "http://127.0.0.1:1/"), ("--items-metric", "a"), ("--items-url", "ftp://a", "--items-metric", "a"),
    ("--items-url", "http://127.0.0.1:1/", "--items-metric", "a b"), ("--items-url", "http://127.0.0.1:1/", "--items-metric", 'a{b="c}'),
    ("--items-url", "http://127.0.0.1:1/", "--items-metric", "a", "--repeat", "3"),
    ("--items-url", "http://127.0.0.1:1/", "--items-metric", "a", "--items-regex", "x")])
def test_what_does_not_go_together(options):
    done = jm("measure", "--source", "null", *options, "--", sys.executable, "--version")
    assert done.returncode == USAGE and sentence(done)


def test_a_server_that_does_not_answer_is_an_error(server):
    server.status = 503
    assert "status 503" in sentence(measured(server, "--for", "60s"), 125)
    assert "does not answer" in sentence(jm("measure", "--source", "null", "--items-url", "http://127.0.0.1:1/metrics",
                                            "--items-metric", "a", "--for", "60s"), 125)
