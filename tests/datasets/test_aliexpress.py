"""The AliExpress reader on small files of exactly the published layout."""

import zipfile

import numpy as np
import polars as pl
import pytest

from mcnet.errors import FileFormatError, InputError
from reproduction.aliexpress import CATEGORICAL, NUMERICAL, find_field, prepare_aliexpress


def write_raw(folder, part, searches=40, items=5, kind="csv", seed=0, country="NL"):
    """Write a user and an item file; column j of row i holds 100·j + something, so that places can be checked."""
    draw = np.random.default_rng(seed)
    users, rows = [], []
    for search in range(searches):
        line = [f"s{search}", *(str(100 * place + search % 4) for place in range(2, 9))]
        line += [f"{place + search / 1000:.4f}" for place in range(9, 32)]
        users.append(",".join([*line, str(3200 + search % 4), str(3300)]))
        for item in range(items):
            cells = [f"s{search}"]
            for place in range(2, 49):
                whole = place in (19, 34, 35, 36, 40, 41, 42)
                cells.append(str(1000 * place + item) if whole else f"{place + item / 1000:.4f}")
            rows.append(",".join([*cells, str(draw.integers(0, 3))]))
    # One item of a search that has no user: an inner join drops it.
    rows.append(rows[-1].replace(f"s{searches - 1},", "orphan,", 1))
    for name, lines in ((f"{country}_user_{part}", users), (f"{country}_item_{part}", rows)):
        text = "\n".join(lines) + "\n"
        if kind == "csv":
            (folder / f"{name}.csv").write_text(text)
        else:
            with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(f"{name}.csv", text)
    return rows


@pytest.mark.parametrize("kind", ["csv", "zip"])
def test_published_files_are_joined_on_the_search_with_every_column_in_its_place(tmp_path, kind):
    source, target = tmp_path / "raw", tmp_path / "made"
    source.mkdir()
    rows = write_raw(source, "train", kind=kind)
    made = prepare_aliexpress(source, target, parts=("train",))
    frame = pl.read_parquet(made["train"])
    assert frame.columns == ["search_id", *CATEGORICAL, *NUMERICAL, "click", "conversion"]
    assert len(frame) == len(rows) - 1
    one = frame.filter(pl.col("search_id") == "s7").row(2, named=True)
    assert [one[c] for c in CATEGORICAL] == [
        *(100 * place + 3 for place in range(2, 9)),
        3203,
        3300,
        *(1000 * place + 2 for place in (19, 34, 35, 36, 40, 41, 42)),
    ]
    numbers = [one[c] for c in NUMERICAL]
    np.testing.assert_allclose(numbers[:23], [place + 0.007 for place in range(9, 32)], rtol=1e-5)
    item_places = [place for place in range(2, 49) if place not in (19, 34, 35, 36, 40, 41, 42)]
    np.testing.assert_allclose(numbers[23:], [place + 0.002 for place in item_places], rtol=1e-5)
    labels = [int(line.rsplit(",", 1)[1]) for line in rows[:-1]]
    assert frame["click"].sum() == sum(label >= 1 for label in labels)
    assert frame["conversion"].sum() == sum(label == 2 for label in labels)
    assert not frame.filter((pl.col("conversion") == 1) & (pl.col("click") == 0)).height
    assert sorted(path.name for path in target.iterdir()) == ["sources.json", "train.parquet"]


def test_processed_files_are_accepted_as_well(tmp_path):
    header = ["search_id", *CATEGORICAL, *NUMERICAL, "click", "conversion"]
    line = ["9", *["3"] * 16, *["0.5"] * 63, "1.0", "0.0"]
    (tmp_path / "test.csv").write_text(",".join(header) + "\n" + ",".join(line) + "\n")
    made = prepare_aliexpress(tmp_path, tmp_path / "out", parts=("test",))
    frame = pl.read_parquet(made["test"])
    assert frame.row(0) == ("9", *[3] * 16, *[0.5] * 63, 1, 0)


def test_a_part_that_is_there_is_not_made_again(tmp_path):
    write_raw(tmp_path, "test")
    path = prepare_aliexpress(tmp_path, tmp_path, parts=("test",))["test"]
    before = path.stat().st_mtime_ns
    prepare_aliexpress(tmp_path, tmp_path, parts=("test",))
    assert path.stat().st_mtime_ns == before


def test_the_field_is_found_by_its_counts_or_named(tmp_path):
    write_raw(tmp_path, "train", searches=42, items=5)
    made = prepare_aliexpress(tmp_path, tmp_path / "out", parts=("train",))
    assert find_field(made, {"train": (55, 55, 50, 50)}) == "categorical_1"
    assert find_field(made, name="categorical_8") == "categorical_8"
    with pytest.raises(InputError, match=r"name the field yourself.*categorical_1 .train.: 55, 55, 50, 50"):
        find_field(made)
    with pytest.raises(InputError, match="categorical_1 to categorical_16"):
        find_field(made, name="country")


def test_files_of_another_layout_are_refused_with_a_reason(tmp_path):
    with pytest.raises(InputError, match=r"no file that ends in user_train\.zip"):
        prepare_aliexpress(tmp_path, tmp_path, parts=("train",))
    (tmp_path / "NL_user_train.csv").write_text("1,2,3\n")
    (tmp_path / "NL_item_train.csv").write_text("1,2,3\n")
    with pytest.raises(FileFormatError, match="has 3 columns; a user file of AliExpress has 33"):
        prepare_aliexpress(tmp_path, tmp_path, parts=("train",))
    (tmp_path / "train.csv").write_text("search_id,click\n")
    with pytest.raises(FileFormatError, match="processed header"):
        prepare_aliexpress(tmp_path, tmp_path, parts=("train",))
    (tmp_path / "train.csv").unlink()
    (tmp_path / "NL_user_train.csv").unlink()
    (tmp_path / "NL_item_train.csv").unlink()
    (tmp_path / "NL_user_train.zip").write_bytes(b"no zip")
    (tmp_path / "NL_item_train.zip").write_bytes(b"no zip")
    with pytest.raises(FileFormatError, match="not a zip file"):
        prepare_aliexpress(tmp_path, tmp_path, parts=("train",))


def test_a_search_that_is_there_twice_is_refused(tmp_path):
    write_raw(tmp_path, "train")
    path = tmp_path / "NL_user_train.csv"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    with pytest.raises(FileFormatError, match="each search should be there once"):
        prepare_aliexpress(tmp_path, tmp_path, parts=("train",))


def test_several_countries_are_joined_and_the_country_is_the_field(tmp_path):
    counts = {}
    for country, searches, kind in (("NL", 40, "csv"), ("ES", 20, "zip"), ("FR", 10, "csv")):
        rows = write_raw(tmp_path, "train", searches=searches, kind=kind, country=country)
        counts[country] = len(rows) - 1
    made = prepare_aliexpress(tmp_path, tmp_path / "out", parts=("train",))
    frame = pl.read_parquet(made["train"])
    assert dict(frame["country"].value_counts().iter_rows()) == {0: counts["ES"], 1: counts["FR"], 2: counts["NL"]}
    assert frame["search_id"].n_unique() == 70  # the same numbers in every country
    assert find_field(made) == "country"
    assert find_field(made, name="country") == "country"
    assert find_field(made, name="categorical_3") == "categorical_3"


def test_prepared_rows_of_other_files_and_parts_of_other_countries_are_refused(tmp_path):
    write_raw(tmp_path, "train", searches=4)
    prepare_aliexpress(tmp_path, tmp_path / "out", parts=("train",))
    write_raw(tmp_path, "train", searches=4, country="FR")
    with pytest.raises(InputError, match=r"other files than when .* was made from it; delete"):
        prepare_aliexpress(tmp_path, tmp_path / "out", parts=("train",))
    write_raw(tmp_path, "test", searches=4, country="FR")
    with pytest.raises(InputError, match=r"different countries \(fr, nl; fr\); give all files of each"):
        prepare_aliexpress(tmp_path, tmp_path / "new")


def test_a_country_with_one_of_its_two_files_is_refused(tmp_path):
    write_raw(tmp_path, "train")
    (tmp_path / "FR_user_train.csv").write_text("")
    with pytest.raises(InputError, match="only one of the two train files, user and item, of the country 'fr'"):
        prepare_aliexpress(tmp_path, tmp_path, parts=("train",))
