#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Use a flame graph in a browser as its reader does, and print what there is to see.

usage: flame.py GRAPH PATTERN FUNCTION [SCREENSHOT]

Searches for PATTERN, with the mouse on "Search", and zooms into the frame of FUNCTION, and out
again. One line of each:
    frames N                    functions that are drawn
    matched TEXT                what the graph says of the search
    highlighted TITLE           a frame in the colour of a match: its function, samples and share
    seen FUNCTION               a frame of these with its name on it
    zoomed PART HIDDEN          FUNCTION's part of the whole width, frames that are not shown
    back PART HIDDEN            likewise, after a click on "Reset Zoom"
"""

import sys

from browser import Browser, BrowserError

FRAMES = "[...document.querySelectorAll('#frames > g')]"
TITLE = "frame.querySelector('title').textContent"
PAINTED = "frame => frame.querySelector('rect').getAttribute('fill') === searchcolor"


def frame(function):
    """The frame of a function, as an expression."""
    return f"{FRAMES}.find(frame => {TITLE}.startsWith({function + ' ('!r}))"


def width_and_hidden(browser, function):
    """A frame's part of the width of all, and how many others are not to be seen."""
    part = browser.evaluate(
        f"{frame(function)}.querySelector('rect').getBoundingClientRect().width"
        " / document.getElementById('frames').getBoundingClientRect().width"
    )
    hidden = browser.evaluate(f"{FRAMES}.filter(frame => getComputedStyle(frame).display === 'none').length")
    return f"{part:.3f} {hidden}"


def main():
    graph, pattern, function, *screenshot = sys.argv[1:]
    with Browser() as browser:
        browser.open(graph)
        print("frames", browser.evaluate(f"{FRAMES}.length"))
        browser.click("document.getElementById('search')", answer=pattern)
        print("matched", browser.evaluate("document.getElementById('matched').textContent"))
        for title in browser.evaluate(f"{FRAMES}.filter({PAINTED}).map(frame => {TITLE})"):
            print("highlighted", title)
        for text in browser.evaluate(f"{FRAMES}.filter({PAINTED}).map(frame => frame.querySelector('text').textContent)"):
            print("seen", text)
        if screenshot:
            browser.screenshot(screenshot[0])
        browser.click(frame(function))
        print("zoomed", width_and_hidden(browser, function))
        browser.click("document.getElementById('unzoom')")
        print("back", width_and_hidden(browser, function))


if __name__ == "__main__":
    try:
        main()
    except BrowserError as error:
        sys.exit(f"flame: {error}")
