"""`mcnet serve`: calibrate over HTTP."""

from typing import Annotated

import typer

__all__ = ["serve"]


def serve(
    registry: Annotated[
        str,
        typer.Argument(metavar="REGISTRY", help="The folder of the registry, see mcnet versions.", show_default=False),
    ],
    journal: Annotated[
        str | None, typer.Option("--journal", metavar="FOLDER", help="The journal that feedback goes to.")
    ] = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, metavar="N", help="The port to listen on.")] = 8080,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, metavar="N", help="The number of processes that answer.")
    ] = 1,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="PERIOD",
            help="The length of a period: 15m, 1h, 1d; feedback belongs to the current one.",
        ),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Run mcnet update on the journal at the end of every period.")
    ] = False,
    learn_after: Annotated[
        float,
        typer.Option("--learn-after", min=0.0, metavar="SECONDS", help="How long to wait for late rows of a period."),
    ] = 60.0,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The name of the model under /v2/models.")
    ] = "calibration",
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with the token for changes; or set MCNET_TOKEN. Without a token changes are disabled.",
        ),
    ] = None,
    poll: Annotated[
        float,
        typer.Option("--poll", min=0.05, max=3600.0, metavar="SECONDS", help="How often to check the registry."),
    ] = 0.5,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1_000, metavar="BYTES", help="The largest body of a request.")
    ] = 64_000_000,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, metavar="N", help="The largest number of rows of a request.")
    ] = 2_000_000,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, max=3600.0, metavar="SECONDS", help="How long a client may take to send a body."
        ),
    ] = 30.0,
) -> None:
    """Serve calibrated probabilities over HTTP.

    It answers JSON, Arrow and the Open Inference Protocol, always with the current version of the registry (a folder
    that mcnet versions creates), and accepts feedback. A dashboard is at /, the list of requests at /docs.

    \b
    Example:
      mcnet serve registry --port 8080 --workers 2
    """
    from pathlib import Path

    from mcnet._shared.extras import need_serve

    need_serve()

    from mcnet.serve.settings import Limits, ServiceSettings
    from mcnet.serve.start import run_service
    from mcnet.serve.tokens import read_token

    run_service(
        ServiceSettings(
            registry=Path(registry).absolute(),
            journal=None if journal is None else Path(journal).absolute(),
            name=name,
            host=host,
            port=port,
            workers=workers,
            every=every,
            learn=learn,
            learn_after_seconds=learn_after,
            poll_seconds=poll,
            token_digest=read_token(None if token_file is None else Path(token_file)),
            limits=Limits(body_bytes=max_body, rows=max_rows, body_seconds=timeout),
        )
    )
