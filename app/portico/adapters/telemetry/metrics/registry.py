"""Values of the series of the catalogue, on a Prometheus registry of their own."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from portico.adapters.telemetry.metrics.catalogue import SERIES, Series, other_value

Labels: TypeAlias = tuple[str, ...]
"""Values of the labels of a series, in the order of the catalogue."""
Value = TypeVar("Value")


class Total:
    """Value of one counter, which an event adds to."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Distribution:
    """Values of one histogram: how many fell into each bucket, and their total."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count the value in the first bucket whose bound is not below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the bound of each bucket and how many values are not above it."""
        bounds = [*(str(each) for each in self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))


class LabelledValues(dict[Labels, Value]):
    """The values of one series by their labels; a value is made when its labels are first used.

    Values of labels that are not in `label_values` share that of `other_value`, and are not kept.
    """

    def __init__(self, series: Series, known: Mapping[str, Collection[str]], make: Callable[[], Value]) -> None:
        super().__init__()
        self._series = series
        self._known = known
        self._make = make
        if not series.labels:
            self[()] = make()

    def __missing__(self, labels: Labels) -> Value:
        known = known_labels(self._series, labels, self._known)
        return self.setdefault(known, self._make())


class MetricsRegistry(Collector):
    """The values by series and labels, which Prometheus collects whenever metrics are rendered.

    Every event is counted, and an addition to a value that is bound to its labels costs a fraction of a child of the
    library's `Counter` or `Histogram`. All series without labels begin with zero.
    """

    def __init__(self, values: Mapping[str, Collection[str]]) -> None:
        """Create a registry whose labels have these values."""
        self._values = values
        self.totals: dict[str, LabelledValues[Total]] = {}
        self.distributions: dict[str, LabelledValues[Distribution]] = {}
        self._read: dict[str, tuple[Series, dict[Labels, Callable[[], float]]]] = {}
        for series in SERIES:
            match series.type:
                case "counter":
                    self._read[series.name] = (series, {})
                    self.totals[series.name] = LabelledValues(series, values, Total)
                case "histogram":
                    make = partial(Distribution, series.buckets)
                    self.distributions[series.name] = LabelledValues(series, values, make)
                case "gauge":
                    self._read[series.name] = (series, {})
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def read(self, name: str, function: Callable[[], float], *labels: str) -> None:
        """Let a gauge or a counter call the function whenever metrics are rendered."""
        series, functions = self._read[name]
        functions[known_labels(series, labels, self._values)] = function

    def render(self) -> bytes:
        """Return all series in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """Yield the series in the order of the catalogue."""
        for series in SERIES:
            match series.type:
                case "counter":
                    yield self._counter(series)
                case "gauge":
                    yield self._gauge(series)
                case "histogram":
                    yield self._histogram(series)

    def _counter(self, series: Series) -> CounterMetricFamily:
        family = CounterMetricFamily(series.name, series.meaning, labels=series.labels)
        for labels, total in self.totals[series.name].items():
            family.add_metric(labels, total.value)
        for labels, read in self._read[series.name][1].items():
            family.add_metric(labels, read())
        return family

    def _gauge(self, series: Series) -> GaugeMetricFamily:
        family = GaugeMetricFamily(series.name, series.meaning, labels=series.labels)
        for labels, read in self._read[series.name][1].items():
            family.add_metric(labels, read())
        return family

    def _histogram(self, series: Series) -> HistogramMetricFamily:
        family = HistogramMetricFamily(series.name, series.meaning, labels=series.labels)
        for labels, distribution in self.distributions[series.name].items():
            family.add_metric(labels, distribution.cumulative(), distribution.total)
        return family


def known_labels(series: Series, labels: Labels, known: Mapping[str, Collection[str]]) -> Labels:
    """Return the values of labels with `other_value` in place of those that are not in `label_values`."""
    return tuple(
        value if value in known[label] else other_value(label)
        for value, label in zip(labels, series.labels, strict=True)
    )
