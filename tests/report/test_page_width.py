# SPDX-License-Identifier: Apache-2.0
"""Tables of the report page that are wider than the window, as on a telephone."""
import pytest

from pages import CHROMIUM, browse, make_page
from reports import records

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: the page was not opened in a browser")
HEIGHT = 9000


@pytest.fixture(name="folder", scope="module")
def pages_with_and_without_hints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("width")
    text = make_page(folder, records("h200x4")).read_text()
    (folder / "none.html").write_text(text.replace("</style>", ".scroll { background: none; }</style>", 1))
    return folder


def picture(folder, name):
    """PNG of the page in a frame: a window of a browser is at least 500 wide."""
    frame, png = folder / "frame.html", folder / "page.png"
    frame.write_text(f'<body style="margin:0"><iframe src="{name}.html" width="400" height="{HEIGHT}" style="border:0"></iframe>')
    browse(frame, f"--screenshot={png}", "--hide-scrollbars", f"--window-size=500,{HEIGHT}")
    return png.read_bytes()


def test_a_table_that_goes_on_beside_the_window_has_a_hint(folder):
    shown = picture(folder, "page")
    assert shown == picture(folder, "page") != picture(folder, "none")
