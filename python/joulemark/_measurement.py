# SPDX-License-Identifier: Apache-2.0
"""A measurement that runs, its regions, and the decorators."""
import atexit
import ctypes
import functools
import inspect
import json
import math
import os
import sys
import threading
import warnings
import weakref

from . import _html, _result
from ._library import EUSAGE, Err, Error, JoulemarkWarning, check, load, warn_once

WHOLE = "whole"


def _nothing_known(why):
    """The report of a measurement that failed: nothing is known, and the program goes on."""
    return {"phases": [], "meters": [], "total": {f"{key}_{o}{end}": None for o in _result.ORIGINS for key, end in (
        ("joules", ""), ("error", "_joules"))}, "quality": {"grade": "none", "reasons": [why]}}


def _clean(name):
    """A name that regions may have."""
    if isinstance(name, str) and name:
        return name
    try:
        text = str(name) or "unnamed"
    except Exception:  # pylint: disable=broad-except
        text = "unnamed"
    warn_once("name", f"A region's name is a text that is not empty, not {type(name).__name__}; the region is named '{text}'.", 5)
    return text

_running = []  # measurements that were started and not stopped, in this process, the newest last
_running_lock = threading.RLock()


class _Handle:
    """The library's objects of one measurement. A child of fork() shares their memory but has none of their threads, so
    they are of use in the process that made them only."""

    def __init__(self, lib):
        self.lib, self.pid = lib, os.getpid()
        self.ctx, self.measurement = ctypes.c_void_p(), ctypes.c_void_p()

    def release(self):
        """Ends the threads; nothing else knows of the objects afterwards."""
        if self.pid != os.getpid():
            return
        measurement, self.measurement = self.measurement, None
        ctx, self.ctx = self.ctx, None
        if measurement:
            self.lib.jm_measurement_free(measurement)
        if ctx:
            self.lib.jm_ctx_free(ctx)


class _Name:
    """A region's name: how many are inside, and its phases of the library. While anybody is inside one phase is open, so
    that energy which threads use together counts once."""
    __slots__ = ("text", "inside", "phases", "closed")

    def __init__(self, name):
        self.text = name.encode("utf-8", "replace").replace(b"\0", b"?")
        self.inside, self.phases, self.closed = 0, [], True


class Measurement:
    """See measure()."""

    def __init__(self, sources=None, interval=None, price=None, carbon=None, currency=None, pue=None, figures_from=None):
        self.figures = _result.Figures(price, carbon, currency, pue, figures_from)
        if interval is not None and not interval > 0:
            raise ValueError(f"An interval is a number of seconds above 0, not {interval!r}.")
        self._sources = sources if sources is None or isinstance(sources, str) else ",".join(sources)
        self._interval_ns = int(interval * 1e9) if interval else 0
        self._state, self._handle, self._finalizer = "new", None, None
        self._lock, self._local = threading.RLock(), threading.local()  # a signal's handler may enter a region too
        self._names = {}
        self._report, self._results = None, None

    # ---- running

    def start(self):
        """Begins; returns the measurement. `with` does it."""
        if self._state != "new":
            warn_once("again", "A measurement is started once, so it is not started again; make another one with joulemark.measure().")
            return self
        handle, err = _Handle(load()), Err()
        self._finalizer = weakref.finalize(self, handle.release)
        self._finalizer.atexit = False  # _stop_all does that
        try:
            check(handle.lib.jm_ctx_new(handle.ctx, err), err)
            check(handle.lib.jm_measurement_start(
                handle.ctx, self._sources.encode() if self._sources is not None else None, self._interval_ns,
                handle.measurement, err), err)
            check(handle.lib.jm_measurement_begin(handle.measurement, WHOLE.encode(), err), err)
        except BaseException as failed:
            self._finalizer()
            if not isinstance(failed, Error) or failed.code == EUSAGE:
                raise
            self._fail(failed)
            return self
        self._handle, self._state = handle, "running"
        with _running_lock:
            _running.append(weakref.ref(self))
        return self

    def _fail(self, error):
        """Nothing is known, which a warning says; the program goes on."""
        self._state, self._report = "failed", _nothing_known(str(error))
        warnings.warn(f"The measurement failed, so its figures are unknown: {error}", JoulemarkWarning, stacklevel=4)

    def stop(self):
        """Ends the measurement, and every region that is open; waits one refresh of the sensors at most. A failure is a
        warning, and leaves all figures unknown."""
        with self._lock:
            if self._state != "running":
                return
            self._state = "stopping"
        self._leave_running()
        handle, err = self._handle, Err()
        try:
            self._close_all()
            handle.lib.jm_measurement_end(handle.measurement, 0)
            check(handle.lib.jm_measurement_stop(handle.measurement, err), err)
            self._report = self._read_report()
            failure = None
        except Error as failed:
            failure = failed
        finally:
            self._state = "stopped"
            self._finalizer()
        if failure:
            self._fail(failure)
        self._warn_of_unclosed()

    def _leave_running(self):
        with _running_lock:
            _running[:] = [ref for ref in _running if ref() not in (self, None)]

    def _close_all(self):
        for name in self._names.values():
            if name.inside:
                self._handle.lib.jm_measurement_end(self._handle.measurement, name.phases[-1])
                name.closed = False

    def _warn_of_unclosed(self):
        if self.unclosed:
            warnings.warn("These regions were still open when the measurement ended, and end there: "
                          + ", ".join(self.unclosed) + ".", JoulemarkWarning, stacklevel=4)

    def _read_report(self):
        text, err, lib = ctypes.c_void_p(), Err(), self._handle.lib
        check(lib.jm_measurement_json(self._handle.measurement, 0, text, err), err)
        try:
            return json.loads(ctypes.string_at(text))
        finally:
            lib.free(text)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        self.stop()

    # ---- regions

    def region(self, name):
        """A stretch of the program: for `with`, or as a decorator. May nest, repeat, and be entered by many threads."""
        return Region(name, self)

    def credit(self, items, name=None):
        """Items done: in the region that this thread entered last, or in the one that is named; else in the whole."""
        try:
            number = float(items)  # of numpy and torch too
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number < 0:
            warn_once("items", f"Items are a number of at least 0, not {items!r}; they are not counted.")
            return
        items = number
        if name is None:
            inside = getattr(self._local, "inside", None)
            name = inside[-1] if inside else None
        with self._lock:
            if self._state != "running":
                return
            if name is None or name in self._names:
                phase = self._names[name].phases[-1] if name is not None else 0
                self._handle.lib.jm_measurement_credit(self._handle.measurement, phase, items)
                return
        warn_once("credit", f"No region '{name}' was entered yet, so its items are not counted.")

    def _enter(self, name):
        with self._lock:
            if self._state != "running":
                if self._state not in ("forked", "failed"):
                    warn_once("late", f"The region '{name}' is not measured: the measurement " + {
                        "new": "was not started; use it in a 'with' block."}.get(self._state, "has ended."), 4)
                return
            known = self._names.get(name)
            if known is None:
                known = self._names[name] = _Name(name)
            if not known.inside:
                known.phases.append(self._begin(known.text))
            known.inside += 1
        try:
            self._local.inside.append(name)
        except AttributeError:
            self._local.inside = [name]

    def _begin(self, text):
        begin, measurement = self._handle.lib.jm_measurement_begin, self._handle.measurement
        phase = begin(measurement, text, None)
        if phase < 0:  # the sentence is asked for when it is needed
            err = Err()
            phase = check(begin(measurement, text, err), err)
        return phase

    def _leave(self, name):
        inside = getattr(self._local, "inside", None)
        if inside and inside[-1] == name:
            inside.pop()
        elif inside and name in inside:  # regions of tasks in one thread may end in any order
            inside.remove(name)
        with self._lock:
            if self._state != "running":
                return
            known = self._names.get(name)
            if known is None or not known.inside:  # it was entered when nothing was measured, or left twice
                return
            known.inside -= 1
            if not known.inside:
                self._handle.lib.jm_measurement_end(self._handle.measurement, known.phases[-1])

    # ---- results

    @property
    def unclosed(self):
        """Names of the regions that were open when the measurement ended."""
        return [name for name, known in self._names.items() if not known.closed]

    def _find_results(self):
        if self._results is None:
            if self._report is None:
                raise Error({"new": "The measurement was not started, so it has no results; use it in a 'with' block.",
                             "forked": f"Process {self._handle and self._handle.pid} measures; this one was forked from it and has no results."
                             }.get(self._state, "Results are known when the measurement has ended."
                                   if self._state != "stopped" else "The measurement failed, so it has no results."))
            phases, origin = self._report["phases"], self.origin
            self._results = {name: _result.Result(name, [phases[i] for i in known.phases if i < len(phases)], origin, known.closed, self.figures)
                             for name, known in self._names.items()}
        return self._results

    @property
    def report(self):
        """The library's report: meters, total and quality of the whole, and all phases (docs/record.schema.json)."""
        if self._report is None:
            self._find_results()
        return self._report

    @property
    def origin(self):
        """What `joules` of all regions are; None when no meter counts."""
        found = {m["origin"] for m in self.report["meters"] if not m.get("elsewhere")}
        return next((origin for origin in _result.ORIGINS if origin in found), None)

    @property
    def quality(self):
        """(grade, [reasons])"""
        quality = self.report["quality"]
        return quality["grade"], quality["reasons"]

    @property
    def whole(self):
        """The Result from start to stop."""
        return _result.Result(WHOLE, self.report["phases"][:1], self.origin, True, self.figures)

    joules = property(lambda self: self.whole.joules)
    error = property(lambda self: self.whole.error)
    seconds = property(lambda self: self.whole.seconds)
    watts = property(lambda self: self.whole.watts)
    items = property(lambda self: self.whole.items)
    cost = property(lambda self: self.whole.cost)
    carbon_g = property(lambda self: self.whole.carbon_g)

    def __getitem__(self, name):
        results = self._find_results()
        if name not in results and self._state == "failed":
            return _result.Result(name, [], None, True, self.figures)
        if name not in results:
            raise KeyError(f"No region '{name}' was entered; there are: {', '.join(map(repr, results)) or 'none'}.")
        return results[name]

    def __iter__(self):
        return iter(self._find_results())

    def __len__(self):
        return len(self._find_results())

    def __contains__(self, name):
        return name in self._find_results()

    def __bool__(self):
        return True

    def __repr__(self):
        if self._report is None:
            return f"<joulemark measurement, {self._state}>"
        return _result.table([self.whole, *self._find_results().values()])

    def _repr_html_(self):
        if self._report is None:
            return f"<p>{self!r}</p>".replace("<joulemark", "&lt;joulemark").replace("stopped>", "stopped&gt;")
        return _html.page(self.whole, list(self._find_results().values()))


# ---- regions


class Region:
    """For `with`, and as a decorator of a function, a generator or a coroutine."""
    __slots__ = ("name", "_measurement", "_entered")

    def __init__(self, name, measurement=None):
        self.name, self._measurement, self._entered = _clean(name), measurement, []

    def __enter__(self):
        measurement = self._measurement or _newest()
        if measurement is not None:
            measurement._enter(self.name)
        self._entered.append(measurement)
        return self

    def __exit__(self, *_):
        measurement = self._entered.pop() if self._entered else None  # left twice
        if measurement is not None:
            measurement._leave(self.name)

    def credit(self, items):
        """Items done in this region."""
        measurement = self._entered[-1] if self._entered else None
        if measurement is not None:
            measurement.credit(items, self.name)

    def __call__(self, function):
        return _around(function, lambda: Region(self.name, self._measurement))


def _newest():
    """The running measurement that was started last, or None."""
    for ref in reversed(_running):
        found = ref()
        if found is not None and found._state == "running":
            return found
    return None


def region(name):
    """A region of whichever measurement runs, the one that was started last; nothing happens where none runs. So a
    library can name its parts, and cost nothing where nothing is measured."""
    return Region(name)


def _around(function, context):
    """The function inside context(), for as long as its body runs."""
    if inspect.iscoroutinefunction(function):
        async def wrapper(*args, **kwargs):
            with context():
                return await function(*args, **kwargs)
    elif inspect.isasyncgenfunction(function):
        async def wrapper(*args, **kwargs):
            with context():
                async for value in function(*args, **kwargs):
                    yield value
    elif inspect.isgeneratorfunction(function):
        def wrapper(*args, **kwargs):
            with context():
                return (yield from function(*args, **kwargs))
    else:
        def wrapper(*args, **kwargs):
            with context():
                return function(*args, **kwargs)
    return functools.wraps(function)(wrapper)


# ---- measuring


def measure(sources=None, interval=None, **figures):
    """A measurement, for `with`.

    sources   as `joulemark measure --source`: "nvml,rapl" or a list; None = all that measure here
    interval  seconds between readings; None = by the sensors' refresh
    figures   the user's own: price (of a kWh) and its currency, carbon (g CO2e of a kWh), pue (of the facility, 1 and
              more), and figures_from, the date and source of price and carbon, without which they are refused
    """
    return Measurement(sources, interval, **figures)


_functions = {}  # of @measured without a report: {options: (measurement, {name: calls})}
_functions_lock = threading.Lock()


def _counted_region(name, options):
    """A region of the measurement that all functions with these options have in common, which counts its calls."""
    key = repr(sorted(options.items()))
    with _functions_lock:
        if key not in _functions or _functions[key][0]._state == "forked":
            _functions[key] = (Measurement(**options).start(), {})
        measurement, calls = _functions[key]
        calls[name] = calls.get(name, 0) + 1
    return Region(name, measurement)


def _print_functions():
    """At the end of the program: one table of the functions that were measured."""
    for measurement, calls in _functions.values():
        if measurement._state in ("stopped", "failed"):
            print(_result.functions_table(measurement.whole, [(measurement[name], n) for name, n in calls.items()]), file=sys.stderr)


class _Reported:
    """One call of a decorated function."""

    def __init__(self, report, options):
        self._report, self._measurement = report, Measurement(**options)

    def __enter__(self):
        return self._measurement.start()

    def __exit__(self, kind, error, trace):
        self._measurement.__exit__(kind, error, trace)
        if self._measurement._report is not None:
            self._report(self._measurement)


def measured(function=None, *, report=None, **options):
    """Decorator: measures the calls of the function. At the end of the program one table on stderr has all functions: calls,
    energy, power, share of the energy from the first call on. With a `report`, each call is a measurement of its own, which
    is given to it. Options are those of measure()."""
    if function is None:
        return functools.partial(measured, report=report, **options)
    if report is None:
        name = getattr(function, "__qualname__", None) or repr(function)
        return _around(function, lambda: _counted_region(name, options))
    return _around(function, lambda: _Reported(report, options))


# ---- the process ends, or forks


def _stop_all():
    """The interpreter ends: what runs is stopped, and regions that are open are named."""
    for ref in list(_running):
        measurement = ref()
        if measurement is not None:
            try:
                measurement.stop()
            except (Error, JoulemarkWarning) as failed:  # a warning where warnings are errors
                print(f"joulemark: {failed}", file=sys.stderr)
    _print_functions()


def _forget_in_child():
    """The child has neither the threads that read sensors nor anybody who would free the locks."""
    global _running_lock, _functions_lock  # pylint: disable=global-statement
    _running_lock, _functions_lock = threading.RLock(), threading.Lock()
    _functions.clear()
    for ref in _running:
        measurement = ref()
        if measurement is not None:
            measurement._lock, measurement._state = threading.RLock(), "forked"
    _running.clear()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_forget_in_child)
