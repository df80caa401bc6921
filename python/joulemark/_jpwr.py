# SPDX-License-Identifier: Apache-2.0
"""get_power(): the context manager of jpwr, over a measurement of joulemark; docs/jpwr.md says what differs."""
import ctypes
import math
import re
import time
import warnings

from ._library import ENOENT, Err, Error, JoulemarkWarning, check
from ._measurement import Measurement

# As jm_jpwr_methods of cli/measure/jpwr_tables.c. (source of joulemark, scope of its meters or None, whether jpwr has a table
# of their counters)
METHODS = {"pynvml": ("nvml", "gpu", False), "gh": ("hwmon", None, False), "rocm": ("amdsmi", None, True),
           "gc": ("gcipuinfo", None, False)}
JOULES_PER_WH = 3600.0
FAST_MS = 20  # from here on the sensors' own refresh decides how often they are read


def _method_name(method):
    """Of a name, or of a method object of jpwr, whose module has the name."""
    if isinstance(method, str):
        return method
    package, _, name = type(method).__module__.rpartition(".")
    if package.startswith("jpwr.") and name in METHODS:
        return name
    raise ValueError(f"A method is a name, not {method!r}; there are {', '.join(METHODS)}, and the sources of joulemark.")


class _Column:
    """A meter: its name in the table, its watts by row, what the report knows of it."""

    def __init__(self, name, watts, meter, counters):
        self.name, self.watts, self.meter, self.counters = name, watts, meter, counters

    def joules_of_rows(self, times):
        """The sum that jpwr makes, with intervals without a reading taken as the reading after them."""
        total, last = math.nan, times[0]
        for t, watts in zip(times[1:], self.watts[1:]):
            if not math.isnan(watts):
                total = (0 if math.isnan(total) else total) + watts * (t - last)
                last = t
        return total


class _PowerMeasurement(Measurement):
    """Takes the rows of power from the library before it releases them."""

    def __init__(self, methods, interval_ms):
        self._methods = [(name, *METHODS.get(name, (name, None, False))) for name in methods]
        super().__init__([source for _, source, _, _ in self._methods], interval_ms / 1000 if interval_ms < FAST_MS else None)
        self._row_ns, self._wall_ns = int(interval_ms * 1e6), time.time_ns() - time.monotonic_ns()
        self.columns, self.times = [], []

    def _read_report(self):
        report = super()._read_report()
        for name, source, scope, counters in self._methods:
            for meter in report["meters"]:  # of the whole
                if meter["source"] == source.partition(":")[0] and scope in (None, meter["scope"]):
                    self._add_column(name.partition(":")[0], meter, counters)
        whole = report["phases"][0]
        first, last = (report["start_ns"] + self._wall_ns + round(whole[key] * 1e9) for key in ("start_s", "end_s"))
        rows = len(self.columns[0].watts) if self.columns else 0
        self.times = [(first + i * self._row_ns) * 1e-9 for i in range(rows - 1)] + [last * 1e-9] * bool(rows)
        return report

    def _add_column(self, method, meter, counters):
        try:
            watts = self._watts(meter["id"])
        except Error as failed:
            if failed.code != ENOENT:
                raise
            warnings.warn(f"{meter['label']} does not report power and has no column.", JoulemarkWarning, stacklevel=2)
            return
        index = re.search(r"GPU (\d+)", meter["label"])  # jpwr's name of a GPU is its index on the node
        name = f"{method}:{index[1] if index else meter['label']}"
        if name in [column.name for column in self.columns]:
            name = f"{method}:{meter['label']}"
        self.columns.append(_Column(name, watts, meter, counters))

    def _watts(self, meter):
        lib, watts, rows, err = self._handle.lib, ctypes.POINTER(ctypes.c_double)(), ctypes.c_int(), Err()
        check(lib.jm_measurement_power(self._handle.measurement, 0, meter.encode(), self._row_ns, watts, rows, err), err)
        try:
            return watts[:rows.value]
        finally:
            lib.free(watts)


class get_power:  # pylint: disable=invalid-name  # jpwr's name
    """Measures a `with` block as jpwr's get_power does. Afterwards `df` is the power in watts as a pandas.DataFrame, and
    energy() the energy in Wh. `measurement` has the same with its uncertainty, in joules.

    power_methods   "pynvml", "gh", "rocm", "gc", the names of joulemark's sources, or the objects of jpwr's methods
    interval        milliseconds between the rows of `df`
    options         {"ignore_measure_errors": True}: energy that is unknown is the sum of the rows that are known
    """

    def __init__(self, power_methods, interval=100, options=None):
        options = dict(options or {})
        self._ignore_errors = options.pop("ignore_measure_errors", False)
        if options:
            raise ValueError(f"get_power has no option '{next(iter(options))}'; there is ignore_measure_errors.")
        if not interval >= 1:
            raise ValueError(f"The interval is a number of milliseconds of at least 1, not {interval!r}.")
        methods = [power_methods] if isinstance(power_methods, str) else power_methods
        self._methods, self._interval = list(dict.fromkeys(map(_method_name, methods))), interval
        self._df = self.measurement = None

    def __enter__(self):
        self._df, self.measurement = None, _PowerMeasurement(self._methods, self._interval).start()
        return self

    def __exit__(self, *_):
        self.measurement.stop()
        unknown = [column.name for column in self.measurement.columns if column.meter["joules"] is None]
        if unknown:
            warnings.warn(f"The energy of {', '.join(unknown)} is " + (
                "the sum of the power that was read." if self._ignore_errors else "unknown, as readings are missing."),
                JoulemarkWarning, stacklevel=2)

    def _ended(self):
        if self.measurement is None:
            raise Error("Nothing was measured; use get_power in a 'with' block.")
        return self.measurement.report and self.measurement

    @property
    def df(self):
        """Power: `timestamps` in seconds since 1970, and watts of each meter, the mean since the row before."""
        ended = self._ended()
        if self._df is None:
            import pandas  # pylint: disable=import-outside-toplevel
            self._df = pandas.DataFrame({"timestamps": ended.times, **{c.name: c.watts for c in ended.columns}}, dtype=float)
        return self._df

    def _wh(self, column):
        joules = column.meter["joules"]
        if joules is None and self._ignore_errors:
            joules = column.joules_of_rows(self.measurement.times)
        return math.nan if joules is None else joules / JOULES_PER_WH

    def energy(self):
        """(Wh of each meter as a pandas.Series, tables by name): "energy_from_counter" of AMD GPUs, else none."""
        ended = self._ended()
        import pandas  # pylint: disable=import-outside-toplevel
        counted = {c.name: [c.meter["joules_counter"] / JOULES_PER_WH] for c in ended.columns
                   if c.counters and c.meter["joules_counter"] is not None}
        return (pandas.Series({c.name: self._wh(c) for c in ended.columns}, dtype=float),
                {"energy_from_counter": pandas.DataFrame(counted)} if counted else {})
