# SPDX-License-Identifier: Apache-2.0
"""%%joulemark: a cell of a notebook as a measurement. Imported by %load_ext joulemark, as it needs IPython."""
import ast

from IPython.core import magic
from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from ._library import Error
from ._measurement import Measurement


def _compiled(shell, cell):
    """(all but the last expression, the last expression or None), as code."""
    tree = shell.transform_ast(shell.compile.ast_parse(shell.transform_cell(cell)))
    file = shell.compile.cache(cell, shell.execution_count)  # of tracebacks
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    return shell.compile(tree, file, "exec"), last and shell.compile(ast.Expression(last.value), file, "eval")


def register(shell):
    """Makes %%joulemark known to this IPython."""
    @getattr(magic, "output_can_be_silenced", lambda function: function)  # by a ; at the end; not in older versions
    @magic_arguments()
    @argument("variable", nargs="?", help="gets the measurement, as `with joulemark.measure() as VARIABLE` does")
    @argument("--source", help="as `joulemark measure --source`; all that measure here if omitted")
    @argument("--interval", type=float, help="seconds between readings; by the sensors' refresh if omitted")
    def joulemark(line, cell):
        """Measures a cell and shows its energy, time and power, and those of each joulemark.region() in it."""
        options = parse_argstring(joulemark, line)
        if options.variable and not options.variable.isidentifier():
            raise UsageError(f"'{options.variable}' is not the name of a variable.")
        body, last = _compiled(shell, cell)
        try:
            measurement = Measurement(options.source, options.interval).start()
        except (Error, ValueError) as failed:
            raise UsageError(str(failed)) from None
        if options.variable:
            shell.user_ns[options.variable] = measurement
        try:
            exec(body, shell.user_ns)  # pylint: disable=exec-used  # the user's cell
            return eval(last, shell.user_ns) if last else None  # pylint: disable=eval-used
        finally:
            measurement.stop()
            display(measurement)

    shell.register_magic_function(joulemark, "cell")
