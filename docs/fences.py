"""Pages as the site reads them: marks for the tests are left out, and the changelog links to pages of the site."""

import re
from pathlib import Path
from typing import Any

__all__ = ["on_page_markdown"]

_CHANGELOG = '--8<-- "CHANGELOG.md"'


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Return a page for the site.

    `sh run` tells the tests to run a block, and comments where figures are from; neither tells the site anything. The
    changelog lies beside `docs`, so its links to pages lead elsewhere from here.

    >>> on_page_markdown("~~~".replace("~", "`") + "sh run")
    '```sh'
    >>> on_page_markdown("<!-- RESULTS: Speed -->\\nIt takes 3 s.")
    'It takes 3 s.'
    """
    if markdown.strip() == _CHANGELOG:
        text = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
        markdown = text.replace("](docs/", "](")
    markdown = re.sub(r"^<!-- (?:RESULTS|settings)\b.*-->\n", "", markdown, flags=re.MULTILINE)
    return re.sub(r"^```sh run$", "```sh", markdown, flags=re.MULTILINE)
