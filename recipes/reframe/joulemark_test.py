# SPDX-License-Identifier: Apache-2.0
"""A test of ReFrame that measures its command by joulemark: reframe -c joulemark_test.py -S 'command=./train --steps 100' -r"""
import json
import os
import shlex

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_after, sanity_function, variable


@rfm.simple_test
class JoulemarkTest(rfm.RunOnlyRegressionTest):
    """Classes derived from it set the command; a figure that is unknown is no performance variable of the run."""
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    command = variable(str, value="sleep 0.3")
    options = variable(str, value="")
    executable = "joulemark"

    @run_after("init")
    def wrap(self):
        self.executable_opts = ["measure", "--json=joulemark.json", self.options, "--", *map(shlex.quote, shlex.split(self.command))]

    def record(self):
        with open(os.path.join(self.stagedir, "joulemark.json"), encoding="utf-8") as file:
            return json.load(file)

    @sanity_function
    def succeeded(self):
        return sn.assert_eq(sn.defer(self.record()["exit_status"]), 0)

    @run_after("sanity")
    def choose_figures(self):
        record = self.record()
        total = record["total"]
        figures = {"wall": ("s", record["wall_s"]), "throughput": ("item/s", record["throughput"])}
        for origin in ("measured", "estimated", "simulated"):
            figures[origin] = ("J", total[f"joules_{origin}"])
        self.perf_variables = {name: sn.make_performance_function(sn.defer(value), unit)
                               for name, (unit, value) in figures.items() if value is not None}
