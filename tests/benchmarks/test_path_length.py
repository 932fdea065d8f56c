"""What the size of the code is counted by."""

import ast
from pathlib import Path

import mcnet
from benchmarks.path_length import (
    command,
    functions,
    lines_of_code,
    many_parameters,
    measured,
    shared_names,
    source_files,
)

SOURCE = '''"""A module."""

# A comment.
class Clock:
    """A class."""

    def tick(self):
        """Return 1,

        always."""
        return [
            1,  # here
        ]


def stop():
    ...
'''


def test_blank_lines_comments_and_docstrings_are_no_code():
    assert lines_of_code(SOURCE) == 7


def test_a_method_belongs_to_its_class():
    assert [(owner, node.name) for owner, node in functions(ast.parse(SOURCE))] == [("Clock", "tick"), ("stop", "stop")]


def test_commands_and_documented_functions_with_many_parameters_are_public():
    public, others = many_parameters(source_files())
    assert any(": update (" in name for name in public)
    assert not set(public) & set(others)


def test_names_that_several_packages_have_are_counted_once():
    files = ["a/fit.py", "b/fit.py", "c/fit.py", "b/file.py", "a/__init__.py", "b/__init__.py"]
    assert shared_names([Path(file) for file in files]) == ["fit"]


def test_the_path_of_a_command_has_the_functions_that_it_calls():
    path = measured(lambda: command("mcnet methods"))
    assert len(path.functions) >= len(path.files) > 0
    assert sum(path.hops.values()) > 0


def test_names_of_files_are_expanded_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mcnet.simulate(2_000, seed=0).frame().write_parquet("log.parquet")
    fit = "mcnet fit log.parquet --score score --label label --field field -o model.json --method platt --force"
    for line in (fit, "mcnet apply model.json log.parquet -o out.parquet --force"):
        path = measured(lambda line=line: command(line))
        assert path.functions["rows/logs.py", "expand_paths"] == 1, line
