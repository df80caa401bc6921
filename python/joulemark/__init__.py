# SPDX-License-Identifier: Apache-2.0
"""joulemark: what AI work costs, measured from Python.

    with joulemark.measure() as m:
        with m.region("train"):
            train()
            m.credit(images)
    print(m)                      # all regions
    print(m["train"].joules)      # None where it is unknown, never 0

It calls the installed library libjoulemark.so.0 by ctypes; docs/python.md describes all of it.
"""
from ._jpwr import get_power
from ._library import Error, LibraryError, JoulemarkWarning, __version__, library, mark
from ._measurement import Measurement, measure, measured, region
from ._result import Result

__all__ = ["Error", "JoulemarkWarning", "LibraryError", "Measurement", "Result", "__version__", "get_power", "library", "mark",
           "measure", "measured", "region"]


def load_ipython_extension(shell):
    """%load_ext joulemark"""
    from ._notebook import register  # pylint: disable=import-outside-toplevel
    register(shell)
