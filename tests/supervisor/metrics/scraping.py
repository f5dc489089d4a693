"""A stand whose metrics are scraped, and what the scraper reads of them."""

from contextlib import asynccontextmanager

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from supervisor.health import Health
from supervisor.metrics.exposing import Metrics
from supervisor.metrics.hearing import Counts
from tests.supervisor.stands import STATE, a_stand

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5"


class Scraped:
    """What one scrape has brought: each sample by its name and labels, and each family by its name."""

    def __init__(self, text):
        self.families = {each.name: each for each in text_string_to_metric_families(text.decode())}
        self.samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name, **labels):
        return self.samples.get((name, *sorted((key.rstrip("_"), str(value)) for key, value in labels.items())))

    def all(self, name):
        """Every sample of this name that is not 0: the values of its labels, and the number."""
        found = {key[1:]: value for key, value in self.samples.items() if key[0] == name and value}
        return {tuple(value for _, value in labels): number for labels, number in found.items()}


class Watched:
    """A stand, its health and its metrics."""

    def __init__(self, stand, health, metrics):
        self.stand, self.health, self.metrics = stand, health, metrics

    async def scrape(self):
        text, _ = await self.metrics.text("")
        return Scraped(text)

    async def scrape_openmetrics(self):
        text, content_type = await self.metrics.text(OPENMETRICS)
        return list(openmetrics.text_string_to_metric_families(text.decode())), content_type


@asynccontextmanager
async def a_watched_stand(**settings):
    counts = Counts()
    async with a_stand(observer=counts, **settings) as stand:
        health = Health(stand.worker.shutdown)
        health.worker = stand.worker
        metrics = Metrics(stand.ports.as_ports, STATE, health)
        metrics.counts = counts
        with health.taking_work():
            yield Watched(stand, health, metrics)
