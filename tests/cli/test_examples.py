import re
import shlex
from pathlib import Path

import polars as pl
import pytest
from typer.main import get_command

from mcnet.cli.app import app

FEW = ["base", "platt", "platt-field", "mcnet-bayes"]  # all of them take a minute; test_compare has them
COMMANDS = sorted(name for name, command in get_command(app).commands.items() if not command.hidden)


def examples(text: str) -> list[list[str]]:
    """Return the commands under `Example:` or `Start with:`, continued lines joined, as a shell splits them."""
    found = []
    for block in re.findall(r"(?:Example|Start with):\n((?: +.+\n)+)", text):
        found += [shlex.split(line)[1:] for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    return found


def test_every_command_has_an_example(mcnet):
    for command in COMMANDS:
        found = examples(mcnet(command, "--help").out)
        assert found, command
        assert {words[0] for words in found} == {command}


USE_A_MODEL = ("apply", "evaluate", "export", "monitor", "show", "slices", "value", "versions")
NEEDED_MODELS = dict.fromkeys(USE_A_MODEL, ("model.json",)) | {"diff": ("old.json", "new.json")}
NETWORKS = {"paper": pytest.mark.networks}
ELSEWHERE = ("demo", "serve")
"""Commands whose examples other tests run: serve does not end by itself."""


@pytest.mark.parametrize(
    "command", [[], *(pytest.param([c], marks=NETWORKS.get(c, ()), id=c) for c in COMMANDS if c not in ELSEWHERE)]
)
def test_the_examples_work_as_pasted(mcnet, monkeypatch, log, columns, command):
    if command == ["export"]:
        pytest.importorskip("onnx", reason="onnx is not installed: pip install '.[onnx]'")
    monkeypatch.chdir(log.parent)
    monkeypatch.setattr("mcnet.selection.registered_methods", lambda: FEW)
    seconds = pl.Series(range(8000)) * 60 + 1_700_000_000
    paid = pl.col("pctr") * 500  # prices are for a thousand rows
    rows = pl.read_parquet(log).with_columns(ts=pl.from_epoch(seconds), bid=0.5 + pl.col("pctr"), paid=paid)
    rows.write_parquet(log)
    assert mcnet("sketch", log, *columns, "-o", "part0.parquet", "-q").code == 0
    if command in (["monitor"], ["store"]):
        words = (*columns, "--time", "ts", "--every", "1d")
        assert mcnet("journal", "add", "ads.db", log, *words, "-q").code == 0
    for words in examples(mcnet(*command, "--help").out):
        if words[0] == "demo":
            continue
        for name in NEEDED_MODELS.get(words[0], ()):
            if not (log.parent / name).exists():
                assert mcnet("fit", log, *columns, "--method", "platt-field", "-o", name, "-q").code == 0
        done = mcnet(*words)
        assert done.code == 0, done.err
        if "-o" in words:
            assert (log.parent / words[words.index("-o") + 1]).stat().st_size > 0


def test_demo_ranks_methods_by_the_known_truth(mcnet, monkeypatch):
    monkeypatch.setattr("mcnet.selection.registered_methods", lambda: FEW)
    found = mcnet("demo", "--rows", 50_000, "--json").document
    excess = {line["method"]: line["excess_log_loss"] for line in found["methods"]}
    assert found["failed"] == {}
    assert excess["mcnet-bayes"] < excess["platt-field"] < excess["platt"] < excess["base"]


def test_demo_prints_one_table(mcnet, monkeypatch):
    monkeypatch.setattr("mcnet.selection.registered_methods", lambda: FEW[:3])
    done = mcnet(*examples(mcnet("demo", "--help").out)[0])
    assert done.code == 0
    assert [word in done.out for word in ("platt-field", "PCOC", "F-RCE", "AUC", "excess", "fit s")] == [True] * 6
    lines = done.out.splitlines()
    rows = [line for line in lines if line.startswith(("base ", "platt"))]
    assert max(map(len, rows)) <= 80
    losses = [float(line.split()[5]) for line in rows]
    assert losses == sorted(losses)  # the best first, as in compare
    assert [any(line.startswith(name) for line in lines) for name in ("mcnet-bayes, the", "mcnet is the")] == [True] * 2


def test_what_make_demo_advises_to_type_next_works_as_pasted(mcnet, monkeypatch, tmp_path):
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    command = re.search(r"@\$\(BIN\)/mcnet (.*)", recipe)[1]
    advised = re.findall(r'@echo "  (.*)"', recipe)
    assert recipe.endswith(f'@echo "  {advised[-1]}"\n')
    assert [line.split()[0] for line in advised] == ["source", "mcnet", "mcnet"]
    assert advised[0] == "source .venv/bin/activate"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    monkeypatch.setattr("mcnet.selection.registered_methods", lambda: FEW[:2])
    for line in (f"{command} --rows 2000", *(line.removeprefix("mcnet ") for line in advised[1:])):
        done = mcnet(*line.split())
        assert done.code == 0, done.err
    calibrated = pl.read_parquet("calibrated.parquet")
    assert len(calibrated) == 4000
    assert calibrated.columns[-1] == "calibrated"


def test_demo_has_the_published_model_with_and_without_the_field():
    from mcnet.selection import default_candidates

    found = default_candidates(["platt", "mcnet-bayes", "mcnet"], has_fields=True)
    assert list(found) == ["platt", "mcnet-bayes", "mcnet-none", "mcnet"]
    assert [found[name].field_use for name in ("mcnet-none", "mcnet")] == ["none", "optional"]
    assert list(default_candidates(["platt", "platt-field", "mcnet"], has_fields=False)) == ["platt", "mcnet"]


def test_the_help_promises_what_the_command_can_do(mcnet):
    assert "order" not in mcnet("--help").out.partition("A LOG")[0]
    for command in (["fit"], ["compare"], ["sketch"], ["journal", "add"], ["backtest"], ["update"]):
        shown = " ".join(mcnet(*command, "--help").out.split())
        assert "The type of the scores; by default probabilities." in shown
    for command in ("apply", "evaluate"):
        shown = " ".join(mcnet(command, "--help").out.split())
        assert "The type of the scores; by default as in the fit of the model, or probabilities." in shown


def test_the_help_of_export_names_every_option_of_every_target(mcnet):
    from mcnet.export.targets import export_options, targets

    shown = mcnet("export", "--help").out
    blocks = re.split(r"\n    (?=(?:onnx|c|sql|table)  )", shown.partition("Example:")[0])[1:]
    by_target = {block.split()[0]: block for block in blocks}
    assert set(by_target) == set(targets())
    for target, block in by_target.items():
        assert set(re.findall(r"\b([a-z_]+)=", block)) == set(export_options(target))
