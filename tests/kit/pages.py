# SPDX-License-Identifier: Apache-2.0
"""Functions that the tests of the report page share: the parts of the page, and a browser."""
import html.parser
import re
import shutil
import subprocess

import pytest

from jm import BUILD, HANGS_S
from reports import report, write


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.title = [], [], ""
        self.inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        if self.inside == "title":
            self.title += data


def make_page(tmp_path, rows, *args):
    out = tmp_path / "page.html"
    report("--format", "html", "--output", out, *args, write(tmp_path, rows))
    return out


CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)


def browse(page, *args, fragment=""):
    """What the browser prints of the page. On a busy machine the time of a page passes before all its charts are drawn;
    then it is opened again for longer."""
    if "asan" in str(BUILD):
        pytest.skip("the page is written; a browser runs no code that the sanitizer sees")
    for budget_ms in (4000, 40000, 400000):
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND",
             f"--virtual-time-budget={budget_ms}", *args, page.as_uri() + fragment],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=HANGS_S, check=False,
            stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        console = [line for line in done.stderr.splitlines()  # of the page, not of the browser's own ones
                   if "CONSOLE" in line and "source: chrome://" not in line]
        assert not console, console
        if not re.search(r'<div class="chart[^>]*></div>', done.stdout):  # one that is not drawn yet
            break
    return done.stdout
