"""`mcnet update` and `mcnet serve`: the loop, run once, and the service."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mcnet._shared.messages import counted, need_extra
from mcnet.cli import options
from mcnet.cli.options import GivenSettings
from mcnet.cli.run import UNUSABLE, Printer, plain_interrupts
from mcnet.cli.sources import source_of
from mcnet.store.settings import OF_THE_LOOP, SETTINGS

if TYPE_CHECKING:
    from mcnet.operations.update import Update

# `mcnet update`: the loop, run once: add rows, learn, gate, publish, monitor.

_SHOWN_SUSPECTS = 3

REFUSED = 1
ALARM = 3


def update(
    context: typer.Context,
    store: str = options.argument(
        "STORE", "A file such as ads.db, created if it does not exist, or postgresql://user@host/ads."
    ),
    logs: list[str] | None = options.argument(
        "LOG", "Logs or saved sketches to add first; none if other processes add to the store.", None
    ),
    settings: GivenSettings = options.head_settings(),
    addition: dict[str, Any] = options.ADDITION,
    until: str | None = options.option("P", "Learn no period after this one, as one that has not ended."),
    force: bool = options.flag("--force", "Publish even if the gate refuses; this is recorded in the history."),
    note: str = options.option("TEXT", "A note for the history.", ""),
    status: str | None = options.option("FILE", "Write a page about the state of the loop (.html)."),
    wait: float = options.option("SECONDS", "How long to wait for another run.", 60.0, min=0.0),
    nothing_new_code: int = options.option(
        "CODE", "The exit code if nothing was published or refused.", 0, min=0, max=255
    ),
    webhook: str | None = options.WEBHOOK_ADDRESS,
    field_values: str = options.FIELD_VALUES,
    printer: Printer = options.PRINTER,
) -> None:
    """Learn new rows and publish the next model.

    Add the rows to the journal, let the tracker learn them, and publish its model for the coming period if the gate
    accepts it. Run it after every period. It may be killed at any time, run again, and run twice at once. Everything
    that is kept between runs is in the store; --status writes a page about it.

    Settings of the head, from --score to --key-days, are kept: what is not given is as the head has it, and what nobody
    has given is as in brackets.

    A new model is published if it is valid, is not worse than the current one on periods that neither was fitted on,
    and moves no mean probability farther than --max-shift. Otherwise the current version stays, and the history has the
    reason. After a rollback the current version is held: nothing replaces it until `mcnet versions release`.

    \b
    Exit codes, besides those of every command:
      0   a version was published, there was nothing new, or the current version is held
      1   the gate refused the new model; the current version stays
      2   also if every log given was left out; the run has learnt what the journal had
      3   the monitor raised an alarm that no earlier run has reported
      75  another run had not ended after --wait seconds

    \b
    Example:
      mcnet update ads.db log.parquet --score pctr --label click \\
          --field country --time ts --every 1d
    """
    from mcnet.operations.update import update as run_update

    receiver = options.webhook_of(context)
    given = source_of(logs) if logs else None
    if given is None:
        options.refuse_read_options("no logs are named")
    # Saved sketches know how their logs were read, whatever the file says.
    known = SETTINGS.keys() - set(OF_THE_LOOP) if given is not None and given.finished else ()
    chosen = settings(known)
    plain_interrupts()
    total = given.row_count if given is not None and printer.lively else None
    opened = options.store_to_write(store)
    with printer.progress("reading", total) as advance:
        done = run_update(
            opened,
            [] if given is None else given.paths,
            chosen,
            head=options.head_name(),
            until=until,
            force=force,
            note=note,
            status=status,
            wait_seconds=wait,
            progress=advance,
            **addition,
        )
    printer.result(done.to_dict(), *_lines(done))
    options.send_told(opened, receiver)
    if done.alarms:
        raise typer.Exit(ALARM)
    if done.outcome == "refused":
        raise typer.Exit(REFUSED)
    if done.added.left_out and not done.added.files and not done.added.unchanged:
        raise typer.Exit(UNUSABLE)  # as from `mcnet journal add`
    if done.outcome != "published":
        raise typer.Exit(nothing_new_code)


def _lines(done: "Update") -> list[str]:
    """Return what a person wants to know of a run."""
    known = f" ({counted(done.added.unchanged, 'file')} unchanged)" if done.added.unchanged else ""
    lines = [f"rows       {done.added.rows:,} new{known}"]
    if done.fields is not None:
        lines.append(
            f"fields     {', '.join(done.fields) or 'none'} (chosen in the first run; a new head chooses anew)"
        )
    if done.changed:
        lines.append(f"settings   of the head, from now on: {'; '.join(done.changed)}")
    if done.until is not None:
        read = "until" if done.learnt else "read until"
        lines.append(f"learnt     {counted(len(done.learnt), 'period')}, {read} {done.until}")
    served = f"version {done.version} is served" if done.version else "no version is served yet"
    followed = f", after {done.replaced}" if done.replaced else ""
    lines.append(f"outcome    {done.outcome}: {served}{followed}")
    lines.append(f"why        {done.reason}")
    if done.held and done.outcome != "held":
        lines.append(f"held       version {done.version} is {done.held}")
    lines += [f"suspect    {line}" for line in done.suspect[:_SHOWN_SUSPECTS]]
    more = len(done.suspect) - _SHOWN_SUSPECTS
    if more > 0:
        lines.append(f"suspect    {counted(more, 'more period')}; --json and the status page have all of them")
    lines += [f"alarm      {alarm.what}: {done.advice(alarm)}" for alarm in done.alarms]
    return lines if done.status is None else [*lines, f"status     {done.status}"]


# `mcnet serve`: calibrate over HTTP.


def serve(
    context: typer.Context,
    store: str = options.STORE,
    host: str = options.option("ADDRESS", "The address to listen on.", "127.0.0.1"),
    port: int = options.option("N", "The port to listen on.", 8080, min=1, max=65535),
    workers: int = options.option("N", "The number of processes that answer.", 1, min=1, max=256),
    every: str | None = options.option(
        "PERIOD", "The length of a period: 15m, 1h, 1d; feedback belongs to the current one."
    ),
    learn: bool = options.flag("--learn", "Run mcnet update on the journal at the end of every period."),
    learn_after: float = options.option("SECONDS", "How long to wait for late rows of a period.", 60.0, min=0.0),
    name: str = options.option("NAME", "The name of the model under /v2/models.", "calibration"),
    token_file: str | None = options.option(
        "FILE", "A file with the token for changes; or set MCNET_TOKEN. Without a token changes are disabled."
    ),
    poll: float = options.option("SECONDS", "How often to check the store.", 0.5, min=0.05, max=3600.0),
    timeout: float = options.option("SECONDS", "How long a client may take to send a body.", 30.0, min=0.1),
    max_body: int = options.option("BYTES", "The largest body of a request.", 64_000_000, min=1_000),
    max_rows: int = options.option("N", "The largest number of rows of a request.", 2_000_000, min=1),
    webhook: str | None = options.WEBHOOK_ADDRESS,
    field_values: str = options.FIELD_VALUES,
) -> None:
    """Serve calibrated probabilities over HTTP.

    It answers JSON, Arrow and the Open Inference Protocol, always with the current version, and accepts feedback. A
    dashboard is at /, the list of requests at /docs.

    \b
    Example:
      mcnet serve ads.db --port 8080 --workers 2
    """
    need_extra("serve", "the service")

    from mcnet.operations.alerts import check_field_values
    from mcnet.operations.service.server import run_service
    from mcnet.operations.service.settings import Limits, ServiceSettings, log_event, read_tokens

    receiver = options.webhook_of(context)
    if receiver is not None and not learn:
        why = "a webhook gets what updates find, and this service does not learn"
        log_event("webhook not used", "warning", reason=why, advice="give --learn, or give it to mcnet update")
    run_service(
        ServiceSettings(
            store=store,
            head=options.head_name(),
            name=name,
            host=host,
            port=port,
            workers=workers,
            every=every,
            learn=learn,
            learn_after_seconds=learn_after,
            poll_seconds=poll,
            tokens=read_tokens(None if token_file is None else Path(token_file)),
            limits=Limits(body_bytes=max_body, rows=max_rows, body_seconds=timeout),
            webhook=receiver,
            field_values=check_field_values(field_values),
        )
    )
