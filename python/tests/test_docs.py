"""Every ```python block of the pages is run, in order; a ```text block after it is what it printed.

What was learned differs between machines with other instructions, in the last bits and then in what is done: after
```text varies, numbers are not compared. A ```python ray block is run by clients/test_ray.py instead.
"""

import contextlib
import io
import re
import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "tutorial.md", DOCS / "your-own-problem.md", *sorted((DOCS / "python").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text( varies)?\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_does_what_it_says(page, tmp_path, monkeypatch):
    for example in (DOCS / "examples").iterdir():
        shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": page.stem}
    blocks = list(BLOCK.finditer(page.read_text()))
    assert blocks or "```python ray" in page.read_text()
    for block in blocks:
        source, varies, expected = block.groups()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, f"{page.name}", "exec"), scope)
        shown = (lambda text: re.sub(r"\d+(\.\d+)?", "N", text)) if varies else (lambda text: text)
        assert shown(printed.getvalue()) == shown(expected or "")


def test_there_are_thirteen_pages():
    assert len(PAGES) == 13
