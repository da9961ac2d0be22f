"""Writes the shell blocks of a page's section to files, as they stand there.

`pages.py PAGE HEADING FOLDER NAME` makes FOLDER/NAME-1, FOLDER/NAME-2, … of the blocks below HEADING.
"""

import pathlib
import sys


def section(text, heading):
    """The lines from a heading to the next of its rank or above."""
    inside, rank, is_code = [], 0, False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        marks = len(line) - len(line.lstrip("#"))
        if not is_code and marks and line[marks:].strip() == heading:
            rank = marks
        elif not is_code and rank and 0 < marks <= rank:
            break
        elif rank:
            inside.append(line)
    if not inside:
        sys.exit(f"pages.py: there is no section {heading!r}")
    return inside


def blocks(lines):
    """What stands in shell blocks."""
    found, block = [], None
    for line in lines:
        if line == "```sh":
            block = []
        elif line == "```" and block is not None:
            found.append("\n".join(block) + "\n")
            block = None
        elif block is not None:
            block.append(line)
    return found


def main():
    page, heading, folder, name = sys.argv[1:]
    found = blocks(section(pathlib.Path(page).read_text(), heading))
    for at, block in enumerate(found, 1):
        (pathlib.Path(folder) / f"{name}-{at}").write_text(block)


main()
