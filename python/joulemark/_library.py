# SPDX-License-Identifier: Apache-2.0
"""The library: where it is found, which version it is, its functions, its errors."""
import ctypes
import functools
import math
import os
import pathlib
import warnings

__version__ = "0.1.0"

FILE = "libjoulemark.so.0"
EUSAGE, ENOENT, EGONE = -1, -2, -7  # JM_EUSAGE, JM_ENOENT, JM_EGONE


class Error(Exception):
    """What the library could not do, as one sentence; `code` is its JM_E* code."""

    def __init__(self, text, code=None):
        super().__init__(text)
        self.code = code


class LibraryError(Error, ImportError):
    """The library is not there, or is of another version."""


class JoulemarkWarning(UserWarning):
    """A measurement that ended otherwise than it was meant to."""


class Err(ctypes.Structure):
    """struct jm_err"""
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 512)]

    def sentence(self):
        return self.text.decode("utf-8", "replace")


def _places():
    """Where the library is looked for, in this order, as (what dlopen is given, why)."""
    given = os.environ.get("JM_LIBRARY")
    if given:
        return [(given, "JM_LIBRARY")]
    package = pathlib.Path(__file__).resolve().parent
    beside = [package / FILE, package.parents[1] / "build" / FILE]
    return [(str(path), "beside the package") for path in beside] + [(FILE, "the loader's path")]


def _loaded_from(place):
    """The file that the loader took."""
    if os.sep in place:
        return os.path.realpath(place)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        files = [line.split(None, 5)[5].strip() for line in maps if line.count("/")]
    return next((file for file in files if os.path.basename(file).startswith(FILE)), place)


def _find():
    tried = []
    for place, why in _places():
        try:
            return ctypes.CDLL(place), _loaded_from(place)
        except OSError as problem:
            tried.append(f"  {place} ({why}): {problem}")
    raise LibraryError(
        f"The library {FILE} was not found, so nothing can be measured. It was looked for here:\n" + "\n".join(tried)
        + "\nInstall it with 'make install' in joulemark's sources (then run ldconfig), or set JM_LIBRARY to the file, "
        f"as in JM_LIBRARY=/usr/local/lib/{FILE}.")


def _version_of(found, path):
    try:
        function = found.jm_version
    except AttributeError:
        raise LibraryError(
            f"{path} does not state its version (it has no function jm_version), so it is not joulemark's library or an "
            f"older one than this package, which is {__version__}. Install joulemark {__version__}, or set JM_LIBRARY "
            "to its library.") from None
    function.restype = ctypes.c_char_p
    return function().decode()


def _check_version(version, path):
    """Releases that differ in the second number may differ in their functions."""
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise LibraryError(
            f"{path} is joulemark {version}, but this Python package is of joulemark {__version__}. Install both of the "
            "same version, or set JM_LIBRARY to the library that belongs to this package.")


def _declare(lib):
    """Types of the arguments, as in joulemark.h; what is not named here returns an int."""
    pointer, text, err = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Err)
    out = ctypes.POINTER(pointer)
    for name, arguments in {
            "jm_ctx_new": [out, err],
            "jm_measurement_start": [pointer, text, ctypes.c_int64, out, err],
            "jm_measurement_begin": [pointer, text, err],
            "jm_measurement_stop": [pointer, err],
            "jm_measurement_json": [pointer, ctypes.c_int, out, err],
            "jm_measurement_power": [pointer, ctypes.c_int, text, ctypes.c_int64, ctypes.POINTER(ctypes.POINTER(ctypes.c_double)),
                                     ctypes.POINTER(ctypes.c_int), err],
            "jm_mark": [text, ctypes.c_double, err],
            "jm_marker_new": [out, err],
            "jm_marker_mark": [pointer, text, ctypes.c_double, err]}.items():
        getattr(lib, name).argtypes = arguments
    for name, arguments in {
            "jm_ctx_free": [pointer],
            "jm_measurement_end": [pointer, ctypes.c_int],
            "jm_measurement_credit": [pointer, ctypes.c_int, ctypes.c_double],
            "jm_measurement_free": [pointer],
            "jm_marker_free": [pointer]}.items():
        getattr(lib, name).argtypes = arguments
        getattr(lib, name).restype = None
    lib.free = ctypes.CDLL(None).free
    lib.free.argtypes, lib.free.restype = [pointer], None


_loaded = None


def load():
    """The library, opened when it is first needed."""
    global _loaded  # pylint: disable=global-statement
    if _loaded is None:
        lib, path = _find()
        lib.version, lib.path = _version_of(lib, path), path
        _check_version(lib.version, path)
        _declare(lib)
        _loaded = lib
    return _loaded


def library():
    """(file, version) of the library that is used."""
    return load().path, load().version


_warned = set()


def warn_once(kind, text, stacklevel=3):
    """What is wrong with a measurement does not end the program that is measured, and is reported once for each kind."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(text, JoulemarkWarning, stacklevel=stacklevel + 1)


def check(code, err):
    """The code, or an Error with the library's sentence."""
    if code < 0:
        raise Error(err.sentence() or f"The library failed with code {code} and no reason.", code)
    return code


def mark(name, items=None):
    """From now on this program is in the stretch `name`; `items` were done in the stretch before.

    For a program that runs under `joulemark measure` or `joulemark run`. True when the mark was sent; False when the
    program runs outside of both, where a mark means nothing.
    """
    # this is called in the middle of a program's work: what is rare comes after the first attempt
    encoded, items = name.encode(), _UNKNOWN if items is None else items
    return not (_marker or _open_marker())(encoded, items, None) or _send_again(encoded, items)


def _send_again(name, items):
    """After a failure, whose sentence is asked for now."""
    send = _marker or _open_marker()
    code = send(name, items, None)
    if not code:
        return True
    if code == EGONE:  # the program closed all descriptors, as daemons do
        _open_marker()
        return _send_again(name, items)
    if code == ENOENT:
        return False
    err = Err()
    check(send(name, items, err), err)
    return True


_UNKNOWN = math.nan
_marker = None


def _open_marker():
    """The function that sends a mark: through a marker that stays, or one that finds that there is no receiver. What was opened
    before is not freed, for another thread may be sending through it."""
    global _marker  # pylint: disable=global-statement
    lib, marker, err = load(), ctypes.c_void_p(), Err()
    if lib.jm_marker_new(marker, err):
        return lib.jm_mark
    _marker = functools.partial(lib.jm_marker_mark, marker)
    return _marker
