# SPDX-License-Identifier: Apache-2.0
"""What a region cost, from the report of the library; None where it is unknown."""
import math

# The origin of `joules` is the first of these that a meter of the measurement has: jm_origin_order of lib/meter/meter.c.
ORIGINS = ("measured", "replayed", "simulated", "estimated")


def _tame(name):
    """Text that controls no terminal."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _sum(values):
    """Unknown when a part is unknown, or when there is none."""
    values = list(values)
    return None if not values or None in values else sum(values)


class Figures:
    """The user's own price and carbon intensity of a kWh, and where they come from. None has a default."""

    def __init__(self, price=None, carbon=None, currency=None, pue=None, source=None):
        for name, value, least in (("price", price, 0), ("carbon", carbon, 0), ("pue", pue, 1)):
            if value is not None and not least <= value < math.inf:
                raise ValueError(f"{name} is a number of at least {least}, not {value!r}.")
        if (price is not None or carbon is not None) and not source:
            raise ValueError("price and carbon need figures_from with their date and source, such as 'contract of 2026-01'.")
        if price is None and carbon is None and (pue is not None or source or currency):
            raise ValueError("pue, currency and figures_from have no effect without price or carbon.")
        self.price, self.carbon, self.currency, self.source = price, carbon, currency, source
        self.pue = 1 if pue is None else pue

    def of(self, joules, per_kwh):
        return None if joules is None or per_kwh is None else joules / 3.6e6 * self.pue * per_kwh


class Result:
    """Energy, time and items of a region: the sum of its stretches, or one of them.

    name       of the region
    origin     "measured", "replayed", "simulated" or "estimated": where `joules` comes from; None when no meter counts
    joules     energy
    error      95 % uncertainty of `joules`; those of stretches are added as if they had one sign. An estimate has none
    seconds    time; what several threads spend in the region together counts once
    watts      joules / seconds
    items      what was credited, None when nothing was
    cost       of the energy, in the currency of measure(price=...); None where no price was given
    carbon_g   of the energy, in g CO2e, by measure(carbon=...)
    closed     False when it was still open as the measurement ended
    stretches  a Result for each time that the region was entered and left
    meters     {id: joules} of every meter; meters that contain each other are both there
    """

    def __init__(self, name, phases, origin, closed=True, figures=None):
        self.name, self.origin, self.closed = name, origin, closed
        self.figures = figures or Figures()
        self._phases = phases

    def of_origin(self, origin):
        """(joules, error) by the meters of that origin."""
        if origin not in ORIGINS:
            raise ValueError(f"'{origin}' is no origin; there are {', '.join(ORIGINS)}.")
        totals = [phase["total"] for phase in self._phases]
        error = _sum(total[f"error_{origin}_joules"] for total in totals) if origin != "estimated" else None
        joules = _sum(total[f"joules_{origin}"] for total in totals)
        return joules, error if joules is not None else None

    @property
    def joules(self):
        return self.of_origin(self.origin)[0] if self.origin else None

    @property
    def error(self):
        return self.of_origin(self.origin)[1] if self.origin else None

    @property
    def seconds(self):
        return _sum(phase["end_s"] - phase["start_s"] for phase in self._phases)

    @property
    def start(self):
        """Seconds from the beginning of the measurement."""
        return self._phases[0]["start_s"] if self._phases else None

    @property
    def watts(self):
        joules, seconds = self.joules, self.seconds
        return joules / seconds if joules is not None and seconds else None

    @property
    def items(self):
        """Credits of the stretches that have some."""
        return _sum(phase["items"] for phase in self._phases if phase["items"] is not None)

    @property
    def joules_per_item(self):
        joules, items = self.joules, self.items
        return joules / items if joules is not None and items else None

    @property
    def cost(self):
        return self.figures.of(self.joules, self.figures.price)

    @property
    def carbon_g(self):
        return self.figures.of(self.joules, self.figures.carbon)

    @property
    def items_per_second(self):
        items, seconds = self.items, self.seconds
        return items / seconds if items is not None and seconds else None

    @property
    def stretches(self):
        return [Result(self.name, [phase], self.origin, self.closed or phase is not self._phases[-1], self.figures)
                for phase in self._phases]

    @property
    def meters(self):
        ids = [meter["id"] for meter in self._phases[0]["meters"]] if self._phases else []
        return {id: _sum(phase["meters"][i]["joules"] for phase in self._phases) for i, id in enumerate(ids)}

    def __repr__(self):
        return f"<{_tame(self.name)}: {energy_text(self)}, {_number(self.seconds, 's')}, {_number(self.watts, 'W')}>"


NOISE = 1e-6  # relative; an error below it would show as 0
TINY = 1e-6
LEAD_OF_TWO = 35  # an error that begins with less has two digits, else one


def _place(value, digit):
    """Decimal place of this digit of a value that is not 0; negative for tens."""
    return digit - 1 - math.floor(math.log10(abs(value)))


def _decimals(value, digits):
    """Decimals that show so many digits of a value; 0 for large ones."""
    return max(0, _place(value, digits)) if value else 0


def _grouped(value, decimals):
    """Thousands in groups from 10,000 on."""
    text = f"{value:.{decimals}f}"
    return text if abs(float(text)) < 10000 else f"{value:,.{decimals}f}"


def plain(value):
    """Four digits count, without an exponent unless the number is tiny: 12,346, 1234, 75.00, 0.6711, 1.2e-07."""
    return f"{value:.4g}" if 0 < abs(value) < TINY else _grouped(value, _decimals(value, 4))


def _rounded(value, places):
    unit = 10.0 ** -places
    return math.copysign(math.floor(abs(value) / unit + 0.5) * unit, value)


def with_error(value, error):
    """As report/format/text.c (jm_text_estimate): two digits of an error that begins with less than 35, else one; decimals of the value
    at most where it has four digits: 505 ± 26, 2620 ± 120. Without an error: plain."""
    if not error or error <= NOISE * abs(value):
        return plain(value)
    exponent = math.floor(math.log10(error))
    places = 1 - exponent if error / 10.0 ** (exponent - 1) < LEAD_OF_TWO else -exponent
    if value:
        places = min(places, _decimals(value, 4))
        if error > abs(value):
            places = max(places, _place(value, 2))  # or nothing of the value would be left
    both = _rounded(value, places), _rounded(error, places) or 10.0 ** -places
    group = "," if max(map(abs, both)) >= 10000 else ""
    return " ± ".join(f"{x:{group}.{max(places, 0)}f}" for x in both)


def _number(value, unit):
    return "unknown" if value is None else f"{plain(value)} {unit}"


def energy_text(result):
    if result.joules is None:
        return f"energy unknown ({result.origin})" if result.origin else "energy unknown (no meter)"
    return f"{with_error(result.joules, result.error)} J {result.origin}"


def rows(results):
    """Texts of a table: a row of names, then one of each result."""
    results = list(results)
    figures = results[0].figures if results else Figures()
    more = [(name, key) for name, key, given in (
        (f"cost {_tame(figures.currency)}" if figures.currency else "cost", "cost", figures.price),
        ("g CO2e", "carbon_g", figures.carbon)) if given is not None]
    yield ("region", "energy", "time", "power", "items", "J/item", *(name for name, _ in more))
    for r in results:
        yield (_tame(r.name) + ("" if r.closed else " (not closed)"), energy_text(r), _number(r.seconds, "s"),
               _number(r.watts, "W"), "-" if r.items is None else _grouped(r.items, 0) if r.items == int(r.items) else plain(r.items),
               "-" if r.joules_per_item is None else plain(r.joules_per_item),
               *("unknown" if getattr(r, key) is None else plain(getattr(r, key)) for _, key in more))


def table(results):
    return _columns(list(rows(results)))


def _columns(lines):
    width = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join([line[0].ljust(width[0])] + [t.rjust(w) for t, w in zip(line[1:], width[1:])])
                     for line in lines)


def functions_table(whole, functions):
    """functions: [(result, calls)]. Shares of functions that call each other add up to more than all."""
    lines = [("function", "calls", "energy", "power", "share")]
    for r, calls in sorted(functions, key=lambda f: -(f[0].joules or 0)):
        share = r.joules / whole.joules if r.joules is not None and whole.joules else None
        lines.append((_tame(r.name), _grouped(calls, 0), energy_text(r), _number(r.watts, "W"),
                      "unknown" if share is None else f"{100 * share:.3g} %"))
    return _columns(lines)
