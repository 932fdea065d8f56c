"""The AliExpress search logs as published: user and item files joined on the search, in bounded memory."""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mcnet._shared.files import whole_file, write_json
from mcnet.errors import FileFormatError, InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CATEGORICAL", "COUNTRY", "FIELD_COUNTS", "NUMERICAL", "find_field", "prepare_aliexpress"]

Part = Literal["train", "test"]

CATEGORICAL = tuple(f"categorical_{number}" for number in range(1, 17))
COUNTRY = "country"
NUMERICAL = tuple(f"numerical_{number}" for number in range(1, 64))
HEADER = ("search_id", *CATEGORICAL, *NUMERICAL, "click", "conversion")

# Rows of the four field values in the paper: training and validation together, and test.
FIELD_COUNTS: Mapping[Part, tuple[int, ...]] = {
    "train": (11_140_437, 292_719, 593_723, 131_015),
    "test": (5_115_069, 132_654, 253_662, 57_916),
}

_USER_COLUMNS, _ITEM_COLUMNS = 33, 49
# Places counted from 1, as in the data set's description; all other features are numbers.
_USER_CATEGORIES = (2, 3, 4, 5, 6, 7, 8, 32, 33)
_ITEM_CATEGORIES = (19, 34, 35, 36, 40, 41, 42)


def prepare_aliexpress(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    parts: Sequence[Part] = ("train", "test"),
    progress: Callable[[str], Any] | None = None,
) -> dict[Part, Path]:
    """Turn the published files into `train.parquet` and `test.parquet` in the folder `target`.

    `source` is a folder with either the files as published, `XX_user_train`, `XX_item_train`, `XX_user_test` and
    `XX_item_test` (.zip or .csv, without a header; XX is the country), of one country or several, or processed ones,
    `train.csv` and `test.csv` with the header search_id, categorical_1…16, numerical_1…63, click, conversion. With
    several countries the rows have one more column, `country`: the number of the country in the order of its name.
    Rows are streamed; only the user file's rows, one per search, are held in memory at once. A part that is there
    already is not made again; it is refused if `source` has other files than it was made from.
    """
    folder, out = Path(source), Path(target)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; it should have the AliExpress files")
    countries = [sorted(_by_country(folder, "user", part)) for part in parts if not _has_processed(folder, part)]
    if any(names != countries[0] for names in countries):
        told = "; ".join(", ".join(names) for names in countries)
        raise InputError(f"the parts in {folder} have different countries ({told}); give all files of each country")
    out.mkdir(parents=True, exist_ok=True)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.suffix.lower() in (".csv", ".zip")}
    source_list = out / "sources.json"
    if source_list.exists() and json.loads(source_list.read_text("utf-8")) != sizes:
        raise InputError(f"{folder} has other files than when {out} was made from it; delete {out}, or use another one")
    made: dict[Part, Path] = {}
    for part in parts:
        made[part] = out / f"{part}.parquet"
        if made[part].exists():
            continue
        if progress is not None:
            progress(f"reading AliExpress, {part}")
        with tempfile.TemporaryDirectory(dir=out, prefix=".unzipped-") as scratch:
            processed = _has_processed(folder, part)
            frame = _processed(folder, part) if processed else _all_countries(folder, part, Path(scratch))
            with whole_file(made[part]) as path:
                _sink(frame, path, f"the {part} files in {folder}")
        write_json(source_list, sizes)
    return made


def find_field(
    files: Mapping[Part, Path], counts: Mapping[Part, tuple[int, ...]] = FIELD_COUNTS, *, name: str | None = None
) -> str:
    """Return the column that is the paper's field: the one whose values are as frequent as the paper reports.

    The paper calls it the country, but its row counts are those of one country's file, so the column has to be found.
    With `name` that column is taken, if it is there; with the files of several countries it is the country
    otherwise.
    """
    import polars as pl

    several = all(COUNTRY in pl.scan_parquet(path).collect_schema().names() for path in files.values())
    if name is not None:
        if name not in CATEGORICAL and not (several and name == COUNTRY):
            known = " nor country, which files of several countries have" if not several else " nor country"
            raise InputError(f"the field {name!r} is not one of categorical_1 to categorical_16{known}")
        return name
    if several:
        return COUNTRY
    few: dict[str, list[int]] = {}
    wanted = len(next(iter(counts.values())))
    for column in CATEGORICAL:
        matches = True
        for part, path in files.items():
            found = pl.scan_parquet(path).group_by(column).len().collect(engine="streaming")
            sizes = sorted(found["len"].to_list(), reverse=True)
            if len(sizes) <= 2 * wanted:
                few[f"{column} ({part})"] = sizes
            if sizes != sorted(counts[part], reverse=True):
                matches = False
                break
        if matches:
            return column
    listing = "; ".join(f"{column}: {', '.join(f'{size:,}' for size in sizes)}" for column, sizes in few.items())
    raise InputError(
        "no column has the paper's counts of rows by field value; name the field yourself. "
        f"Columns with few values: {listing or 'none'}"
    )


def _has_processed(folder: Path, part: Part) -> bool:
    return (folder / f"{part}.csv").is_file()


def _processed(folder: Path, part: Part) -> "pl.LazyFrame":
    import polars as pl

    path = folder / f"{part}.csv"
    with path.open(encoding="utf-8") as file:
        header = tuple(file.readline().strip().split(","))
    if header != HEADER:
        wrong = next((a for a, b in zip(header, HEADER, strict=False) if a != b), f"{len(header)} columns")
        raise FileFormatError(
            f"{path} does not have the processed header (found {wrong!r}); it should be search_id, categorical_1…16, "
            "numerical_1…63, click, conversion"
        )
    types = {"search_id": pl.String, **dict.fromkeys(CATEGORICAL, pl.Float64), **dict.fromkeys(NUMERICAL, pl.Float32)}
    frame = pl.scan_csv(path, schema={**types, "click": pl.Float32, "conversion": pl.Float32})
    return frame.with_columns(pl.col(*CATEGORICAL).cast(pl.Int32), pl.col("click", "conversion").cast(pl.Int8))


def _all_countries(folder: Path, part: Part, scratch: Path) -> "pl.LazyFrame":
    """Return the joined rows of every country in a folder, with the column `country` if there are several."""
    import polars as pl

    users, items = (_by_country(folder, kind, part) for kind in ("user", "item"))
    if users.keys() != items.keys():
        alone = sorted(users.keys() ^ items.keys())[0]
        raise InputError(
            f"the folder {folder} has only one of the two {part} files, user and item, of the country {alone!r}"
        )
    frames = {name: _joined(users[name], items[name], part, scratch) for name in sorted(users)}
    if len(frames) == 1:
        return next(iter(frames.values()))
    # Searches are numbered inside a country, so the country is part of their name.
    return pl.concat(
        [
            frame.with_columns(
                pl.concat_str(pl.lit(f"{name}:"), pl.col("search_id")).alias("search_id"),
                pl.lit(code, pl.Int32).alias(COUNTRY),
            )
            for code, (name, frame) in enumerate(frames.items())
        ]
    )


def _joined(user_file: Path, item_file: Path, part: Part, scratch: Path) -> "pl.LazyFrame":
    import polars as pl

    user = _scan_raw(user_file, scratch, "user", _USER_COLUMNS, _USER_CATEGORIES)
    item = _scan_raw(item_file, scratch, "item", _ITEM_COLUMNS, _ITEM_CATEGORIES)
    searches = user.select(pl.len(), pl.col("user_1").n_unique().alias("distinct")).collect(engine="streaming")
    if searches["len"][0] != searches["distinct"][0]:
        raise FileFormatError(
            f"{user_file.name}, of the {part} part, has {searches['len'][0]:,} rows but {searches['distinct'][0]:,} "
            "searches; each search should be there once"
        )
    user_cats, user_nums = _places("user", _USER_COLUMNS, _USER_CATEGORIES)
    item_cats, item_nums = _places("item", _ITEM_COLUMNS - 1, _ITEM_CATEGORIES)
    label = pl.col(f"item_{_ITEM_COLUMNS}")
    return item.join(user, left_on="item_1", right_on="user_1", how="inner").select(
        pl.col("item_1").alias("search_id"),
        *(pl.col(old).cast(pl.Int32).alias(new) for old, new in zip(user_cats + item_cats, CATEGORICAL, strict=True)),
        *(pl.col(old).alias(new) for old, new in zip(user_nums + item_nums, NUMERICAL, strict=True)),
        # 0 nothing, 1 a click, 2 a purchase, which takes a click.
        (label >= 1).cast(pl.Int8).alias("click"),
        (label >= 2).cast(pl.Int8).alias("conversion"),
    )


def _places(kind: str, last: int, categories: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return the names of the categorical and the numeric columns among places 2 to `last`."""
    numbers = [place for place in range(2, last + 1) if place not in categories]
    return [f"{kind}_{place}" for place in categories], [f"{kind}_{place}" for place in numbers]


def _by_country(folder: Path, kind: str, part: Part) -> dict[str, Path]:
    """Return the file of each country, by what its name has before the kind."""
    endings = [f"{kind}_{part}.csv", f"{kind}_{part}.zip"]
    found = sorted(p for p in folder.iterdir() if p.is_file() and any(p.name.lower().endswith(e) for e in endings))
    if not found:
        raise InputError(f"the folder {folder} has no file that ends in {endings[1]} or {endings[0]}, nor {part}.csv")
    countries: dict[str, Path] = {}
    for path in found:  # a .csv beside its .zip comes first, and is taken
        stem = path.name.lower().removesuffix(".csv").removesuffix(".zip").removesuffix(f"{kind}_{part}")
        countries.setdefault(stem.rstrip("_"), path)
    return countries


def _scan_raw(path: Path, scratch: Path, kind: str, columns: int, categories: Sequence[int]) -> "pl.LazyFrame":
    import polars as pl

    plain = _unzipped(path, scratch) if path.suffix.lower() == ".zip" else path
    with plain.open(encoding="utf-8") as file:
        found = len(file.readline().rstrip("\r\n").split(","))
    if found != columns:
        raise FileFormatError(
            f"{path} has {found} columns; a {kind} file of AliExpress has {columns}, without a header"
        )
    names = [f"{kind}_{place}" for place in range(1, columns + 1)]
    # Whole numbers may be written as 3 or as 3.0, so they are read as floats and made whole later.
    types: dict[str, Any] = {
        name: pl.String if place == 1 else pl.Float64 if place in categories else pl.Float32
        for place, name in enumerate(names, start=1)
    }
    return pl.scan_csv(plain, has_header=False, schema=types)


def _unzipped(path: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if not name.endswith("/") and "__MACOSX" not in name]
            if len(inside) != 1:
                raise FileFormatError(f"{path} holds {len(inside)} files; one CSV file was expected")
            target = scratch / f"{path.stem}.csv"
            with archive.open(inside[0]) as packed, target.open("wb") as out:
                shutil.copyfileobj(packed, out, 1 << 22)
            return target
    except zipfile.BadZipFile:
        raise FileFormatError(f"{path} is not a zip file, or is damaged") from None


def _sink(frame: "pl.LazyFrame", path: Path, source: str) -> None:
    import polars as pl

    try:
        frame.sink_parquet(path, row_group_size=1 << 17, engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise FileFormatError(f"{source} cannot be read: {str(error).splitlines()[0]}") from None
