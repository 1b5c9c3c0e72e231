import unittest

from admittance import SettingsErrors
from admittance.testing import configure, create
from plugin import plugin


class NamespaceLabel(unittest.TestCase):
    # Native tests have no cluster: the cases in cases.yaml test lookups.
    def test_an_object_without_a_namespace_is_allowed(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
        self.assertTrue(configure(plugin, {"label": "team"}).admit(create(node)).allowed)

    def test_every_mistake_in_the_settings_is_reported(self) -> None:
        with self.assertRaises(SettingsErrors) as raised:
            configure(plugin, {"label": ""})
        self.assertEqual([error.pointer for error in raised.exception.errors], ["/label"])
