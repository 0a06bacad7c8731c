"""Values of the series of the catalogue, on a Prometheus registry of their own."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from portico.adapters.telemetry.metrics.catalogue import SERIES, Series, other_value

_Labels = tuple[str, ...]


class MetricsRegistry(Collector):
    """The values by series and labels, which Prometheus collects whenever metrics are rendered.

    Every event is counted, and an addition to a dictionary or a list costs a fraction of a child of the library's
    `Counter` or `Histogram`.
    """

    def __init__(self, values: Mapping[str, Collection[str]]) -> None:
        """Create a registry whose labels have these values; all series without labels begin with zero."""
        self._values = values
        self._labels = {each.name: each.labels for each in SERIES}
        self._buckets = {each.name: each.buckets for each in SERIES}
        self._totals: dict[str, dict[_Labels, float]] = {each.name: {} for each in SERIES if each.type == "counter"}
        self._distributions: dict[str, dict[_Labels, _Distribution]] = {
            each.name: {} for each in SERIES if each.type == "histogram"
        }
        self._gauges: dict[str, dict[_Labels, Callable[[], float]]] = {
            each.name: {} for each in SERIES if each.type == "gauge"
        }
        for series in SERIES:
            if series.type == "counter" and not series.labels:
                self._totals[series.name][()] = 0.0
            if series.type == "histogram" and not series.labels:
                self._distributions[series.name][()] = _Distribution(series.buckets)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, name: str, *labels: str, amount: float = 1) -> None:
        """Increment a counter; the label values stand in the order of the catalogue."""
        totals = self._totals[name]
        if labels not in totals:
            labels = self._known(name, labels)
        totals[labels] = totals.get(labels, 0.0) + amount

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to a histogram; the label values stand in the order of the catalogue."""
        distributions = self._distributions[name]
        distribution = distributions.get(labels)
        if distribution is None:
            known = self._known(name, labels)
            distribution = distributions.setdefault(known, _Distribution(self._buckets[name]))
        distribution.add(value)

    def read(self, name: str, function: Callable[[], float], *labels: str) -> None:
        """Let a gauge call the function whenever metrics are rendered."""
        self._gauges[name][self._known(name, labels)] = function

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
        for labels, total in self._totals[series.name].items():
            family.add_metric(labels, total)
        return family

    def _gauge(self, series: Series) -> GaugeMetricFamily:
        family = GaugeMetricFamily(series.name, series.meaning, labels=series.labels)
        for labels, read in self._gauges[series.name].items():
            family.add_metric(labels, read())
        return family

    def _histogram(self, series: Series) -> HistogramMetricFamily:
        family = HistogramMetricFamily(series.name, series.meaning, labels=series.labels)
        for labels, distribution in self._distributions[series.name].items():
            family.add_metric(labels, distribution.cumulative(), distribution.total)
        return family

    def _known(self, name: str, labels: _Labels) -> _Labels:
        """Return the label values with `other_value` in place of those that are not in `label_values`."""
        return tuple(
            value if value in self._values[label] else other_value(label)
            for value, label in zip(labels, self._labels[name], strict=True)
        )


class _Distribution:
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
