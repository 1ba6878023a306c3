"""The README keeps its word: its Python blocks run, in order, as one script, and print what their comments say."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
PACKAGE = README.parent / "jaxgen"


def numbers(text):
    return re.findall(r"-?\d+(?:\.\d*)?(?:e[-+]\d+)?", text)


def test_python_blocks_run_and_print_what_they_say(run_script):
    """Each number that is printed rounds to the one in the comment, up to what is said of it behind a colon."""
    script = "\n".join(re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))
    said = numbers(" ".join(re.findall(r"^ *print\(.*\)  # ([^:\n]*)", script, re.MULTILINE)))
    printed = [float(number) for number in numbers(" ".join(run_script(script, optimised=False)))]
    assert len(said) == len(printed) > 20
    for number, value in zip(said, printed, strict=True):
        digits = len(number.partition(".")[2])
        assert abs(float(number) - value) <= 0.501 * 10.0**-digits, (number, value)


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
