import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mcnet.calibrators.parametric import Platt
from mcnet.cli.run import run


@pytest.fixture
def models(tmp_path):
    paths = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        score = rng.random(300)
        paths.append(str(tmp_path / f"model{seed}.json"))
        Platt().fit(score, rng.random(300) < score / seed).save(paths[-1])
    return paths


def test_versions_are_added_promoted_and_rolled_back(models, tmp_path, capsys):
    folder = str(tmp_path / "ads.db")
    assert run(["versions", "add", folder, models[0]]) == 0
    assert run(["versions", "add", folder, models[1], "--note", "new"]) == 0
    assert "not yet current" in capsys.readouterr().out
    assert run(["versions", "promote", folder, "latest"]) == 0
    assert run(["versions", "list", folder, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.split("current\n")[-1])
    assert (listed["current"], len(listed["versions"])) == ("2", 2)
    assert run(["versions", "rollback", folder, "--note", "worse"]) == 0
    assert run(["versions", "show", folder]) == 0
    shown = capsys.readouterr().out
    assert "version 1 is current again" in shown
    assert re.search(r"rolled back  \S+@\S+ +worse\n", shown)
    assert run(["versions", "history", folder]) == 0
    assert capsys.readouterr().out.endswith(shown[shown.index("rolled back") :])
    assert run(["versions", "history", folder, "--last", "1", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["history"]
    assert (line["event"], line["version"], line["was"], "@" in line["who"]) == ("rolled back", 1, 2, True)


def test_a_long_note_is_not_cut_inside_an_interval(models, tmp_path, capsys):
    folder = str(tmp_path / "ads.db")
    note = "log-loss -66.2×10⁻⁵ beside the model of version 3 (-79.2 … -53.2: better) on 12 periods that neither saw"
    assert run(["versions", "add", folder, models[0], "--note", note]) == 0
    assert run(["versions", "add", folder, models[1], "--note", note.replace("the model of ", "")]) == 0
    capsys.readouterr()
    assert run(["versions", "list", folder]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[-2].endswith("beside the model of version 3 …")
    assert lines[-1].endswith("beside version 3 (-79.2 … -53.2: better) on 12 …")


def test_wrong_names_are_one_line(models, tmp_path, capsys):
    folder = str(tmp_path / "ads.db")
    assert run(["versions", "list", folder]) == 2
    assert "there is no store" in capsys.readouterr().err
    run(["versions", "add", folder, models[0]])
    assert run(["versions", "promote", folder, "../../x"]) == 2
    assert "has no version '../../x'" in capsys.readouterr().err


def test_the_difference_of_two_models(models, capsys):
    assert run(["diff", *models]) == 0
    assert "Mean probability -" in capsys.readouterr().out
    assert run(["diff", *models, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shift"] < 0


def test_models_of_different_fields_are_compared_on_rows_that_have_all_of_them(tmp_path, capsys):
    rng = np.random.default_rng(3)
    score, country = rng.random(400), rng.choice(["NL", "FR"], 400)
    rows = pl.DataFrame({"pctr": score, "click": (rng.random(400) < score).astype(int), "country": country})
    log, old, new = (str(tmp_path / name) for name in ("log.parquet", "old.json", "new.json"))
    rows.write_parquet(log)
    columns = ["--score", "pctr", "--label", "click"]
    assert run(["fit", log, *columns, "--method", "platt", "-o", old]) == 0
    assert run(["fit", log, *columns, "--field", "country", "--method", "platt-field", "-o", new]) == 0
    capsys.readouterr()
    for pair in ([old, new], [new, old]):
        assert run(["diff", *pair, "--log", log, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["weighted_by"] == "rows"


def test_models_of_logits_are_compared_on_logits_and_on_their_sketch(tmp_path, mcnet):
    rng = np.random.default_rng(3)
    logit = rng.normal(-1.0, 1.0, 400)
    rows = pl.DataFrame({"z": logit, "click": (rng.random(400) < 1.0 / (1.0 + np.exp(-logit))).astype(int)})
    log, sketch, old, new = (tmp_path / name for name in ("log.parquet", "sketch.parquet", "old.json", "new.json"))
    rows.write_parquet(log)
    columns = ("--score", "z", "--label", "click", "--logits")
    for method, path in (("platt", old), ("isotonic", new)):
        assert mcnet("fit", log, *columns, "--method", method, "-o", path).code == 0
    assert mcnet("sketch", log, *columns, "-o", sketch).code == 0
    differences = [mcnet("diff", old, new, "--log", rows, "--json").document for rows in (log, sketch)]
    assert differences[0] == differences[1]


def test_a_difference_by_score(models, capsys):
    assert run(["diff", *models, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["scores"]) == 10


def test_a_version_is_saved_as_a_model_file(models, tmp_path, capsys):
    folder = str(tmp_path / "ads.db")
    run(["versions", "add", folder, models[0]])
    capsys.readouterr()
    saved = str(tmp_path / "saved.json")
    assert run(["versions", "save", folder, "current", "-o", saved]) == 0
    assert run(["versions", "save", folder, "current", "-o", saved]) == 2, "it is there already"
    assert Path(saved).read_bytes() == Path(models[0]).read_bytes()
    assert run(["versions", "save", folder, "current", "-o", str(tmp_path / "saved.txt")]) == 2
    assert "will be a JSON file; give it a name that ends in .json" in capsys.readouterr().err
    assert run(["versions", "save", folder, "refused", "-o", str(tmp_path / "refused.json")]) == 2
    assert "no model was refused" in capsys.readouterr().err


def test_each_head_has_versions_of_its_own(models, tmp_path, capsys):
    folder = str(tmp_path / "ads.db")
    assert run(["versions", "add", folder, models[0], "--head", "ctr"]) == 0
    assert run(["versions", "add", folder, models[1], "--new-head", "cvr"]) == 0
    assert run(["versions", "list", folder]) == 2
    assert "has the heads ctr, cvr; name one of them" in capsys.readouterr().err
    assert run(["versions", "hold", folder, "--head", "cvr"]) == 0
    assert f"`mcnet versions release {folder} --head cvr`" in capsys.readouterr().out
    assert run(["--head", "cvr", "versions", "list", folder, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["versions"]) == 1
    assert run(["versions", "list", folder, "--head", "roas"]) == 2
    assert "has no head 'roas'; it has ctr, cvr" in capsys.readouterr().err


def test_the_empty_value_is_seen_in_a_difference(mcnet, frame, tmp_path):
    named = frame.with_columns(country=pl.Series(["" if i % 3 else "NL\x1b[31m" for i in range(len(frame))]))
    named.write_parquet(tmp_path / "log.parquet")
    words = ("--score", "pctr", "--label", "click", "--field", "country", "--method", "platt-field")
    assert mcnet("fit", tmp_path / "log.parquet", *words, "-o", tmp_path / "m.json").code == 0
    shown = mcnet("diff", tmp_path / "m.json", tmp_path / "m.json").out
    assert '\n""  ' in shown
    assert "\x1b" not in shown


def test_a_version_with_scores_of_another_type_is_promoted_by_force(models, tmp_path, capsys):
    store, logits = str(tmp_path / "ads.db"), tmp_path / "logits.json"
    rng = np.random.default_rng(3)
    score = rng.normal(-1.0, 1.0, 300)
    Platt().fit(score, rng.random(300) < 0.3, score_type="logit").save(logits)
    assert run(["versions", "add", store, models[0]]) == run(["versions", "add", store, str(logits)]) == 0
    assert run(["versions", "promote", store, "latest"]) == 2
    assert "takes logits as scores, the current one probabilities; promote it all the same with --force" in (
        capsys.readouterr().err
    )
    assert run(["versions", "promote", store, "latest", "--force"]) == 0
