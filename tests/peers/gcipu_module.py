# SPDX-License-Identifier: Apache-2.0
"""A module gcipuinfo whose IPUs a test gives as rows of text."""
import textwrap

MODULE = """
    import time
    BEGIN = time.monotonic()
    ROWS, LATER = {rows!r}, {later!r}
    NAMES = ("board serial number", "ipu power", "total board power")
    class gcipuinfo:
        def updateData(self):
            if time.monotonic() - BEGIN > {life}:
                raise RuntimeError("the device is gone")
        def getNamedAttributeForAll(self, name):
            rows = LATER if LATER and time.monotonic() - BEGIN > {life} / 2 else ROWS
            return [row[NAMES.index(name)] for row in rows]
"""


def module(folder, rows, life=1e9, later=None):
    """later: the rows from half of the life on."""
    (folder / "gcipuinfo.py").write_text(textwrap.dedent(MODULE.format(rows=rows, life=life, later=later)), encoding="utf-8")
    return {"PYTHONPATH": str(folder)}
