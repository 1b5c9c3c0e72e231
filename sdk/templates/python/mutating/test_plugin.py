import json
import unittest

from admittance.testing import configure, create
from plugin import plugin


class DefaultLabel(unittest.TestCase):
    def setUp(self) -> None:
        self.plugin = configure(plugin, {"label": "team", "value": "unknown"})

    def pod(self, **labels: str) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "labels": labels}}

    def test_an_object_without_the_label_gets_it(self) -> None:
        response = self.plugin.admit(create(self.pod()))
        self.assertIn("/metadata/labels/team", json.dumps(response.patch))

    def test_an_object_without_labels_gets_them(self) -> None:
        for object in ({}, {"metadata": None}, {"metadata": {"name": "web", "labels": None}}):
            response = self.plugin.admit(create(object))
            self.assertIn('"team": "unknown"', json.dumps(response.patch))

    def test_a_label_keeps_its_value(self) -> None:
        self.assertFalse(self.plugin.admit(create(self.pod(team="shop"))).patch)
