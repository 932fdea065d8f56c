"""The words that several commands share: each argument and option once."""

from typing import Annotated

import typer

__all__ = [
    "Fields",
    "Folds",
    "Force",
    "Json",
    "Label",
    "Logits",
    "Logs",
    "ModelFile",
    "NegativesKept",
    "Output",
    "Parameters",
    "Quiet",
    "Score",
    "Thresholds",
    "Weight",
]

Logs = Annotated[
    list[str],
    typer.Argument(metavar="LOG", help="Parquet, CSV or Arrow files, globs or folders; or finished sketches."),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A saved model.", show_default=False)]
Score = Annotated[str | None, typer.Option("--score", metavar="COLUMN", help="The column of scores.")]
Label = Annotated[
    str | None, typer.Option("--label", metavar="COLUMN", help="The column of labels: 0/1, or fractions with a weight.")
]
Fields = Annotated[
    list[str] | None, typer.Option("--field", metavar="COLUMN", help="A field, such as country; may be repeated.")
]
Weight = Annotated[str | None, typer.Option("--weight", metavar="COLUMN", help="The column of weights.")]
Logits = Annotated[bool, typer.Option("--logits", help="The scores are logits, not probabilities.")]
NegativesKept = Annotated[
    float,
    typer.Option("--negatives-kept", metavar="SHARE", help="The share of negatives that survived down-sampling."),
]
Folds = Annotated[int, typer.Option("--folds", metavar="N", help="Deal the rows into this many folds.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; may be repeated."),
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]
Thresholds = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if", metavar="THRESHOLD", help="Exit with 1 if this holds, as in 'f_rce>0.05'; may be repeated."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script instead.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors, warnings and --json.")]
