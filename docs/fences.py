"""Code blocks as the site reads them: `sh run` tells the tests to run a block, and tells the site nothing."""

import re
from typing import Any

__all__ = ["on_page_markdown"]


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Return a page with such blocks as plain `sh`.

    >>> on_page_markdown("~~~".replace("~", "`") + "sh run")
    '```sh'
    """
    return re.sub(r"^```sh run$", "```sh", markdown, flags=re.MULTILINE)
