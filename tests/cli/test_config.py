"""The configuration file mcnet.toml."""

import pytest

import mcnet as library

SETTINGS = """
score = "pctr"
label = "click"
field = ["country"]

[compare]
method = ["base", "platt-field"]
folds = 3

[fit]
method = "platt-field"

[evaluate]
fail-if = ["pcoc>100"]
"""


@pytest.fixture
def config(log, monkeypatch):
    monkeypatch.chdir(log.parent)
    path = log.parent / "mcnet.toml"
    path.write_text(SETTINGS)
    return path


def test_commands_need_not_repeat_what_the_file_says(mcnet, config):
    done = mcnet("fit", "log.parquet", "-o", "model.json", "--json")
    assert done.code == 0, done.err
    assert done.document["config"] == "mcnet.toml"
    assert done.err.startswith("score, label, field, method: from mcnet.toml\n")
    assert library.load("model.json").fields == ("country",)
    found = mcnet("compare", "log.parquet", "--json").document
    assert (found["judged_on"], len(found["methods"])) == ("rows held back in turn, 3 folds", 2)
    assert mcnet("apply", "model.json", "log.parquet", "-o", "out.parquet").code == 0
    assert mcnet("evaluate", "log.parquet").code == 0


def test_the_command_line_comes_first_then_the_file_then_the_model(mcnet, config, frame):
    assert mcnet("fit", "log.parquet", "--field", "day", "--method", "per-field", "-o", "day.json", "-q").code == 0
    assert library.load("day.json").fields == ("day",)
    # The model remembers pctr; the file says another column; the command line a third.
    frame.rename({"pctr": "other"}).write_parquet("renamed.parquet")
    config.write_text('score = "other"\n')
    assert mcnet("apply", "day.json", "renamed.parquet", "-o", "one.parquet").code == 0
    assert "'other'" in mcnet("apply", "day.json", "log.parquet", "-o", "two.parquet").err
    assert mcnet("apply", "day.json", "log.parquet", "--score", "pctr", "-o", "two.parquet").code == 0
    assert mcnet("apply", "day.json", "log.parquet", "--no-config", "-o", "three.parquet").code == 0


def test_another_file_can_be_named_and_the_file_can_be_left_out(mcnet, config, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(SETTINGS.replace('["country"]', '"day"'))
    for number, words in enumerate((("--config", other, "fit"), ("fit", f"--config={other}"))):
        assert mcnet(*words, "log.parquet", "-o", f"{number}.json").code == 0
        assert library.load(f"{number}.json").fields == ("day",)
    done = mcnet("fit", "log.parquet", "-o", "x.json", "--no-config")
    assert (done.code, "column of scores" in done.err) == (2, True)
    for words in (("--config", "nowhere.toml"), ("--no-config", "--config", other)):
        assert mcnet("fit", "log.parquet", "-o", "x.json", *words).code == 2


def test_nothing_is_said_where_the_file_gives_nothing(mcnet, config):
    config.write_text("[compare]\nfolds = 3\n")
    done = mcnet("methods", "--json")
    assert (done.code, done.err, "config" in done.document) == (0, "", False)


def test_a_sketch_knows_its_own_columns(mcnet, config, log, columns):
    assert mcnet("sketch", log, *columns, "-o", "s.parquet", "--no-config").code == 0
    config.write_text('score = "no"\nlabel = "no"\nfield = "no"\nweight = "no"\nnegatives_kept = 0.5\nlogits = true\n')
    for words in (("fit", "s.parquet", "-o", "m.json"), ("evaluate", "s.parquet"), ("compare", "s.parquet")):
        more = ("--method", "platt-field") if words[0] != "evaluate" else ()
        done = mcnet(*words, *more)
        assert done.code == 0, done.err


def test_thresholds_of_a_command(mcnet, config):
    assert mcnet("evaluate", "log.parquet", "-q").code == 0
    config.write_text(SETTINGS.replace("pcoc>100", "pcoc>0.01"))
    assert mcnet("evaluate", "log.parquet", "-q").code == 1
    assert mcnet("evaluate", "log.parquet", "-q", "--fail-if", "pcoc>100").code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('scores = "pctr"', "unknown key 'scores'"),
        ('[fit]\nfolds = 3\nscore = "x"', "unknown key 'folds' in [fit]"),
        ('[fit]\noutput = "x"', "unknown key 'output' in [fit]"),
        ('[demo]\nrows = "x"', "unknown key 'demo'"),
        ("score = 1 2", "is not valid TOML"),
        ("score = ['a', 'b']", "score is ['a', 'b']; it must be text or a number"),
        ("field = [true]", "field is [True]; it must be text, or a list of texts"),
        ("logits = 'yes'", "logits is 'yes'; it must be true or false"),
        ("negatives_kept = 'much'", "--negatives-kept"),
        ("fit = 3", "unknown key 'fit'"),
    ],
)
def test_what_the_file_may_not_say_is_one_line(mcnet, config, text, message):
    config.write_text(text)
    done = mcnet("fit", "log.parquet", "-o", "model.json")
    assert (done.code, done.err.count("\n"), message in done.err) == (2, 1, True), done.err


def test_each_head_has_settings_of_its_own(mcnet, config):
    config.write_text(f'{SETTINGS}\n[heads.days]\nfield = "day"\n\n[heads.days.fit]\nmethod = "per-field"\n')
    for words, fields, method in (((), ("country",), "platt-field"), (("--head", "days"), ("day",), "per-field")):
        assert mcnet("fit", "log.parquet", "-o", "model.json", "--force", *words).code == 0
        assert (library.load("model.json").fields, library.load("model.json").method) == (fields, method)
    config.write_text("heads = 3\n")
    assert "heads has no tables; name a head in each" in mcnet("fit", "log.parquet", "-o", "m.json").err
    config.write_text("[heads.days]\nfields = 3\n")
    wrong = mcnet("fit", "log.parquet", "-o", "m.json", "--head", "days").err
    assert "unknown key 'fields'" in wrong
    assert "[heads.NAME]" in wrong


def test_keys_at_the_top_are_for_every_command_that_reads_such_columns(mcnet, config, frame):
    frame.with_columns(price=0.5, worth=1.0).write_parquet("log.parquet")
    prices = ("--price", "price", "--value", "worth", "--price-per", "10")
    for words in (("fields", "log.parquet"), ("slices", "log.parquet"), ("value", "log.parquet", *prices)):
        done = mcnet(*words)
        assert done.code == 0, done.err
        assert "score, label" in done.err
    assert mcnet("fit", "log.parquet", "-o", "model.json").code == 0
    done = mcnet("diff", "model.json", "model.json", "--log", "log.parquet")
    assert done.code == 0, done.err


def test_fields_that_are_searched_take_the_place_of_those_of_the_file_and_the_other_way_round(mcnet, config):
    done = mcnet("fit", "log.parquet", "--fields", "auto", "--method", "platt", "-o", "auto.json")
    assert done.code == 0, done.err
    assert "fields chosen" in done.err
    assert "field, " not in done.err.splitlines()[0]
    config.write_text('score = "pctr"\nlabel = "click"\n[fit]\nfields = "auto"\n')
    done = mcnet("fit", "log.parquet", "--field", "day", "--method", "platt-field", "-o", "day.json")
    assert done.code == 0, done.err
    assert library.load("day.json").fields == ("day",)
    done = mcnet("fit", "log.parquet", "--field", "day", "--fields", "auto", "-o", "no.json", "--no-config")
    assert "give --fields auto or --field" in done.err


def test_a_second_model_is_refused_where_one_is_judged(mcnet, config):
    assert mcnet("fit", "log.parquet", "-o", "model.json").code == 0
    done = mcnet("evaluate", "log.parquet", "--model", "model.json", "--model", "other.json")
    assert (done.code, "--model was given twice" in done.err) == (2, True)
