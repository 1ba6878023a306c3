"""The README keeps its word: its Python blocks run, in order, as one script, and print what their comments say."""

import re
from pathlib import Path

import numpy as np

README = Path(__file__).parent.parent / "README.md"
PACKAGE = README.parent / "jaxgen"


def numbers(line):
    return [float(word) for word in line.strip("[]").split()]


def test_python_blocks_run_and_print_what_they_say(run_script):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    printed = run_script("\n".join(blocks), optimised=False)
    assert printed[0] == "[0 1]"
    np.testing.assert_allclose(numbers(printed[1]), [0.01, 0.97], atol=5e-3)
    np.testing.assert_allclose([float(line) for line in printed[2:5]], [0.98, 0.973, -0.0076], atol=5e-4)
    np.testing.assert_allclose(numbers(printed[5]), [0.542, 0.533, 0.538, 0.874], atol=5e-4)
    assert printed[6] == "(4, 4)"
    np.testing.assert_allclose([float(printed[i]) for i in (7, 9, 12)], [0.947, 0.98, 0.98], atol=5e-4)
    np.testing.assert_allclose(numbers(printed[8]), [5.0, 3.4, 1.43, 0.193], rtol=3e-3)
    np.testing.assert_allclose([*numbers(printed[10]), float(printed[11])], [0.185, -103, -11.7], rtol=5e-3)


def modules_of_the_picture():
    return re.findall(r"^      (\w+)\.py ", README.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_module_has_a_line_in_the_picture_of_the_house():
    assert sorted(modules_of_the_picture()) == sorted(path.stem for path in PACKAGE.glob("[a-z]*.py"))


def test_imports_run_downwards_in_the_picture():
    for i, module in enumerate(order := modules_of_the_picture()):
        source = re.sub(
            r"if TYPE_CHECKING:\n(    .*\n|\n)*", "", (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
        )
        imported = set(re.findall(r"^from jaxgen\.(\w+) import", source, re.MULTILINE))
        for names in re.findall(r"^from jaxgen import (.*)$", source, re.MULTILINE):
            imported |= {name.split(" as ")[0] for name in names.split(", ")}
        assert imported <= set(order[:i]), module
