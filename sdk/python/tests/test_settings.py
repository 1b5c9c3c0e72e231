import json
import unittest
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, Literal

from admittance import setting
from admittance.schema import build, check, schema_of

# The package for JavaScript must give the same messages in these cases.
CASES = json.loads((Path(__file__).parents[2] / "settings-cases.json").read_text())


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema without unknown properties, as `schema_of` does."""
    return {"additionalProperties": False, **schema} if "properties" in schema else schema


class Checks(unittest.TestCase):
    def test_each_shared_case_reports_the_expected_mistakes(self) -> None:
        for case in CASES:
            with self.subTest(case["name"]):
                mistakes = check(closed(case["schema"]), case["value"])
                self.assertEqual([list(mistake) for mistake in mistakes], case["errors"])
                if "result" in case:
                    self.assertEqual(case["value"], case["result"])


@dataclass
class Registry:
    host: str = setting("The host.")


@dataclass
class Settings:
    label: str = setting("The label's key.", min_length=1)
    max_age: int = setting("Days.", default=3, minimum=1)
    values: list[str] = setting("Values.", default=[], max_items=2, pattern="^[a-z]+$")
    mode: Literal["warn", "deny"] = setting("What happens.", default="deny")
    rewrites: dict[str, Registry] = setting("Registries.", default={})
    ratio: float | None = setting("A ratio.", default=None)


class Types(unittest.TestCase):
    def test_a_dataclass_becomes_a_schema(self) -> None:
        registry = {
            "type": "object",
            "properties": {"host": {"type": "string", "description": "The host."}},
            "additionalProperties": False,
            "required": ["host"],
        }
        properties = {
            "label": {"type": "string", "description": "The label's key.", "minLength": 1},
            "maxAge": {"type": "integer", "description": "Days.", "minimum": 1, "default": 3},
            "values": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[a-z]+$"},
                "description": "Values.",
                "maxItems": 2,
                "default": [],
            },
            "mode": {"type": "string", "enum": ["warn", "deny"], "description": "What happens.", "default": "deny"},
            "rewrites": {
                "type": "object",
                "additionalProperties": registry,
                "description": "Registries.",
                "default": {},
            },
            "ratio": {"type": "number", "description": "A ratio."},
        }
        schema = {"type": "object", "properties": properties, "additionalProperties": False, "required": ["label"]}
        self.assertEqual(schema_of(Settings), schema)

    def test_a_checked_value_becomes_the_dataclass(self) -> None:
        value = {"label": "a", "rewrites": {"x": {"host": "y"}}, "ratio": 1, "maxAge": 7}
        self.assertEqual(check(schema_of(Settings), value), [])
        settings = build(Settings, value)
        self.assertEqual(settings, Settings(label="a", max_age=7, rewrites={"x": Registry("y")}, ratio=1.0))
        self.assertIsInstance(settings.ratio, float)

    def test_a_type_that_cannot_be_checked_is_refused(self) -> None:
        for hint, why in [
            (set[str], "not a type of settings"),
            (Literal[1], "not a type of settings"),
            (str | int, "not a type of settings"),
            (dict[int, str], "not a type of settings"),
        ]:
            fields: list[Any] = [("a", hint)]
            with self.subTest(hint), self.assertRaisesRegex(TypeError, why):
                schema_of(make_dataclass("Settings", fields))

        @dataclass
        class Wrong:
            a: bool = setting("A.", minimum=1)

        with self.assertRaisesRegex(TypeError, "Wrong.a: minimum is not checked for type boolean"):
            schema_of(Wrong)
