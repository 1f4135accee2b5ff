"""Python code with many different stacks: the ast, re and json modules on their own sources."""
import ast
import inspect
import json
import re
import unittest.mock

for _ in range(12):
    for module in (ast, inspect, json, re, unittest.mock):
        source = inspect.getsource(module)
        tree = ast.parse(source)
        json.loads(json.dumps([ast.dump(tree), re.findall(r"\w+", source)]))
