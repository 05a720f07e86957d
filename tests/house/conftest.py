"""Prints the score card's figures below the test report, so that a drift is seen long before a bound is hit."""

from __future__ import annotations

import pytest

from tests.house import card


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each figure of the score card that code can count."""
    terminalreporter.section("score card", sep="-")
    for line in card.lines():
        terminalreporter.write_line(line)
