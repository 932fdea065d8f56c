import numpy as np

from mcnet.plots.style import terminal_plot


def dots(text):
    return sum(bin(ord(letter) - 0x2800).count("1") for letter in text if 0x2800 <= ord(letter) < 0x2900)


def test_the_plot_has_the_size_asked_for():
    x = np.linspace(0.01, 1.0, 50)
    lines = terminal_plot({"a": (x, x**2), "b": (x, x)}, width=30, height=7).splitlines()
    assert len(lines) == 8
    assert len({len(line) for line in lines}) == 1
    assert lines[0].startswith("     1 ")
    assert lines[-1].strip().startswith("0.01")


def test_a_line_has_no_gaps():
    x = np.linspace(0.1, 1.0, 100)
    jump = terminal_plot({"a": (x, (x > 0.5).astype(float))}, width=10, height=5, log=False)
    assert dots(jump) >= 20 + 18
    flat = terminal_plot({"a": (x, np.ones(100))}, width=10, height=5)
    assert dots(flat) == 20
