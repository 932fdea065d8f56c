"""Shell completion."""

import os
import subprocess
import sys

import pytest


def complete(words, number):
    # What the script that --show-completion prints asks the program.
    asked = {"_MCNET_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(number)}
    code = "from mcnet.cli import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def test_commands_options_methods_and_metrics_are_completed():
    assert complete(["mcnet", "ev"], 1) == ["evaluate"]
    assert complete(["mcnet", "fit", "--neg"], 2) == ["--negatives-kept"]
    assert complete(["mcnet", "fit", "--method", "platt-"], 3) == ["platt-field"]
    assert complete(["mcnet", "evaluate", "--fail-if", "f_"], 3) == ["f_rce", "f_ece"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_can_be_shown(shell):
    setting = {"_MCNET_COMPLETE": f"source_{shell}"}
    code = "from mcnet.cli import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **setting}, capture_output=True, text=True, check=False
    )
    assert "_MCNET_COMPLETE" in done.stdout
