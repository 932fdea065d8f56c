"""Arguments and options that several commands share."""

from typing import Annotated

import typer

__all__ = [
    "LOG_HELP",
    "Age",
    "Counted",
    "Every",
    "Fields",
    "Folds",
    "Force",
    "HalfLife",
    "Interval",
    "Json",
    "Label",
    "Logits",
    "Logs",
    "Method",
    "Methods",
    "ModelFile",
    "Moments",
    "NegativesKept",
    "OnePeriod",
    "Output",
    "Parameters",
    "PeriodLength",
    "Quiet",
    "Replace",
    "Score",
    "Since",
    "Source",
    "Thresholds",
    "Time",
    "Until",
    "Weight",
    "complete_methods",
]


def complete_methods(beginning: str) -> list[str]:
    """Return the names of methods that a word may be completed to."""
    from mcnet.calibrators.registry import VARIANTS, methods

    return [name for name in (*methods(), *VARIANTS) if name.startswith(beginning)]


def _metrics(beginning: str) -> list[str]:
    from mcnet.cli.thresholds import UNSEEN, threshold_names

    return [name for name in (*threshold_names(), UNSEEN) if name.startswith(beginning)]


LOG_HELP = (
    "Parquet, CSV, JSONL or Arrow files, globs, folders or addresses (s3://...); or - for stdin; or saved sketches; "
    "or a journal."
)
Logs = Annotated[list[str], typer.Argument(metavar="LOG", help=LOG_HELP)]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A saved model.", show_default=False)]
Score = Annotated[str | None, typer.Option("--score", metavar="COLUMN", help="The column of scores.")]
Label = Annotated[
    str | None, typer.Option("--label", metavar="COLUMN", help="The column of labels: 0/1, or fractions with a weight.")
]
Fields = Annotated[
    list[str] | None, typer.Option("--field", metavar="COLUMN", help="A field, such as country; may be repeated.")
]
Weight = Annotated[str | None, typer.Option("--weight", metavar="COLUMN", help="The column of weights.")]
Time = Annotated[
    str | None,
    typer.Option("--time", metavar="COLUMN", help="The column of timestamps: learn from how periods differ."),
]
Every = Annotated[
    str | None,
    typer.Option(
        "--every",
        metavar="PERIOD",
        help="Cut --time to periods: 15m, 1h, 1d (the default), 1w, 1mo, or a number for a column that counts.",
        show_default=False,
    ),
]
Moments = Annotated[str | None, typer.Option("--time", metavar="COLUMN", help="The column of timestamps.")]
PeriodLength = Annotated[
    str | None, typer.Option("--every", metavar="PERIOD", help="The length of a period: 15m, 1h, 1d, 1w.")
]
OnePeriod = Annotated[
    str | None,
    typer.Option("--period", metavar="P", help="The period of all rows; for sketches, and logs without a time."),
]
Source = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="The name of the source; by default its path.")
]
Age = Annotated[
    float | None,
    typer.Option(
        "--age", min=0.0, metavar="N", help="For positives that arrive late: they were counted N periods after the end."
    ),
]
Counted = Annotated[
    str | None,
    typer.Option("--counted", metavar="MOMENT", help="For positives that arrive late: when they were counted."),
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace earlier rows of the same source and period.")]
Logits = Annotated[
    bool | None,
    typer.Option(
        "--logits/--probabilities",
        help="The type of the scores; by default as in the fit of the model, or probabilities.",
        show_default=False,
    ),
]
NegativesKept = Annotated[
    float,
    typer.Option("--negatives-kept", metavar="SHARE", help="The share of negatives that survived down-sampling."),
]
Interval = Annotated[
    float | None,
    typer.Option(
        "--interval", metavar="LEVEL", help="Add the bounds of the credible interval of this level, such as 0.9."
    ),
]
Folds = Annotated[int, typer.Option("--folds", metavar="N", help="Split the rows into this many folds.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; may be repeated."),
]
Method = Annotated[
    str,
    typer.Option(
        "--method", metavar="NAME", help="The method; mcnet methods lists them.", autocompletion=complete_methods
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="Compare this method; may be repeated. Default: all.",
        autocompletion=complete_methods,
    ),
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False)]
Since = Annotated[
    str | None, typer.Option("--since", metavar="P", help="Of a journal: the first period to read.", show_default=False)
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="P", help="Of a journal: the last period to read.", show_default=False)
]
HalfLife = Annotated[
    float | None,
    typer.Option(
        "--half-life", metavar="N", help="Of a journal: the weight of rows halves every N periods.", show_default=False
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output if it exists.")]
Thresholds = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="THRESHOLD",
        help="Exit with 1 if this is true: 'f_rce>0.05' or 'field.pcoc>1.1 where positives>100'; may be repeated.",
        autocompletion=_metrics,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a script instead.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors, warnings and --json.")]
