"""What stands between the cells of CSV files, which spreadsheets write differently by country."""

from __future__ import annotations

import re


def csv_mark(head: str) -> tuple[str, bool]:
    """What stands between the cells of a CSV file that begins with ``head``: a comma, a semicolon or a tab; and whether
    its first line only says so, as Excel's ``sep=;``."""
    if told := re.match(r'"?sep=([,;\t])"?\r?\n', head, re.IGNORECASE):
        return told[1], True
    bare = re.sub(r'"[^"]*"', "", head.partition("\n")[0])
    return next((mark for mark in ",;\t" if mark in bare), ","), False
