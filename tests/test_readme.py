"""The README keeps its word: its Python blocks run, in order, as one script, and print what their comments say."""

import re
import sys
from pathlib import Path

import pytest
from registry import CASES

import jaxgen as jg
from benchmarks import report

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


def test_tables_are_what_their_commands_make():
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(
        r"<!-- python -m benchmarks report (\S+)(?: --only ([\w -]+?))? -->\n(.*?)<!-- end", text, re.DOTALL
    )
    assert len(blocks) == text.count("<!-- python") >= 4
    for folder, only, table in blocks:
        assert table.strip() == report.markdown(README.parent / folder, only.split() or None), folder


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


def test_public_names_are_those_of_the_stub_and_none_is_a_room():
    stub = (PACKAGE / "__init__.pyi").read_text(encoding="utf-8")
    of_stub = dict(
        reversed(pair) for pair in re.findall(r"^from jaxgen\.(\w+) import (\w+) as \2$", stub, re.MULTILINE)
    )
    modules = re.findall(r"^from jaxgen import (\w+) as \1$", stub, re.MULTILINE)
    assert sorted(jg.__all__) == sorted([*of_stub, *modules])
    for name, room in of_stub.items():
        assert getattr(jg, name) is getattr(sys.modules[f"jaxgen.{room}"], name)
        assert not (PACKAGE / f"{name}.py").exists()  # loading it would take the name
    with pytest.raises(AttributeError, match="has no attribute 'predikt'"):
        _ = jg.predikt


def test_no_family_takes_more_than_250_lines():
    """Its density, its estimator, and their bases that are rooms of their own."""
    families = {base for case in CASES for base in type(case.estimator).__mro__}
    densities = [getattr(jg, name) for name in jg.__all__ if hasattr(getattr(jg, name), "log_likelihood")]
    families |= {base for density in densities if isinstance(density, type) for base in density.__mro__}
    rooms = {cls.__module__ for cls in families if cls.__module__.startswith("jaxgen.")}
    rooms -= {"jaxgen.estimator"}  # the contract that is written once for all
    assert len(rooms) > 10
    lengths = {room: len(Path(sys.modules[room].__file__).read_text(encoding="utf-8").splitlines()) for room in rooms}
    assert {room: length for room, length in lengths.items() if length > 250} == {}
