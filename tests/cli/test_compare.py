import mcnet as library


def test_every_method_is_compared_and_one_is_chosen(mcnet, log, columns):
    found = mcnet("compare", log, *columns, "--test", log, "--json").document  # one fit a method
    assert {line["method"] for line in found["methods"]} == set(library.methods())
    losses = [line["metrics"]["log_loss"]["value"] for line in found["methods"]]
    assert losses == sorted(losses)
    chosen = next(line for line in found["methods"] if line["method"] == found["chosen"])
    assert chosen["log_loss_difference"] <= chosen["log_loss_difference_error"]


def test_the_best_is_saved_and_can_be_applied(mcnet, log, columns, tmp_path):
    model, page = tmp_path / "best.json", tmp_path / "page.html"
    words = ("--method", "base", "--method", "platt-field", "--save-best", model, "--report", page, "--time", "day")
    done = mcnet("compare", log, *columns, *words)
    assert done.code == 0, done.err
    assert "platt-field ←" in done.out
    assert library.load(model).method == "platt-field"
    assert "<html" in page.read_text(encoding="utf-8")[:500]
    assert mcnet("apply", model, log, "-o", tmp_path / "out.parquet").code == 0


def test_other_rows_can_judge(mcnet, log, columns, frame, tmp_path):
    test = tmp_path / "test.parquet"
    frame.tail(4000).write_parquet(test)
    found = mcnet("compare", log, *columns, "--test", test, "--method", "base", "--method", "platt", "--json").document
    assert found["judged_on"] == "the test rows"
    assert found["methods"][0]["rows"] == 4000


def test_a_sketch_with_folds_is_compared_without_its_log(mcnet, log, columns, tmp_path):
    sketch = tmp_path / "s.parquet"
    words = ("--method", "base", "--method", "platt-field", "--folds", "4", "--json")
    assert mcnet("sketch", log, *columns, "--folds", "4", "-o", sketch).code == 0
    one, other = (mcnet("compare", *given, *words).document for given in ((log, *columns), (sketch,)))
    for found in (one, other):
        for line in found["methods"]:
            del line["fit_seconds"]
    assert one == other


def test_a_bar_holds_the_chosen_method_to_account(mcnet, log, columns):
    words = ("compare", log, *columns, "--method", "platt", "-q")
    assert mcnet(*words, "--fail-if", "log_loss>9").code == 0
    assert mcnet(*words, "--fail-if", "log_loss>0").code == 1


def test_drift_without_a_report_is_refused(mcnet, log, columns):
    assert "--report" in mcnet("compare", log, *columns, "--time", "day").err
