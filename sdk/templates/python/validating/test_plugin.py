import unittest

from admittance import SettingsErrors
from admittance.testing import configure, create
from plugin import plugin


class RequireLabel(unittest.TestCase):
    def test_an_object_without_the_label_is_refused(self) -> None:
        for object in ({}, {"metadata": None}, {"metadata": {"name": "web", "labels": None}}):
            denial = configure(plugin, {"label": "team"}).admit(create(object)).denial
            assert denial
            self.assertEqual(denial.message, "metadata.labels: `team` is missing; add it")

    def test_every_mistake_in_the_settings_is_reported(self) -> None:
        with self.assertRaises(SettingsErrors) as raised:
            configure(plugin, {"label": "", "values": [""]})
        self.assertEqual([error.pointer for error in raised.exception.errors], ["/label", "/values/0"])
