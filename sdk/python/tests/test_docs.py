import re
import sys
import types
import unittest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "authors-python.md"


class Documentation(unittest.TestCase):
    def test_the_examples_run(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 3)
        for index, code in enumerate(blocks):
            # Dataclasses look up their types in their module, so each example gets its own.
            module = types.ModuleType(f"example{index}")
            sys.modules[module.__name__] = module
            with self.subTest(code):
                exec(code, vars(module))
