"""The peers' environments: made once under benchmarks/.envs, with pinned versions, never among our dependencies."""

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[1] / ".envs"
SOURCE = Path(__file__).parents[2] / "src"

# torch is named first and by version: this build is CPU-only and small.
REQUIREMENTS = {
    "scikit-learn": ("scikit-learn==1.9.1",),
    "mcgrad": ("lightgbm", "pandas", "plotly", "psutil", "scikit-learn", "scipy", "typing-extensions"),
    "lightgbm": ("lightgbm==4.7.0", "scipy"),
    "probcal": ("probcal==0.4.0",),
    "betacal": ("betacal==1.1.0",),
    "venn-abers": ("venn-abers==1.5.4",),
    "netcal": ("torch==2.13.0", "netcal==1.4.0"),
}
# MCGrad's calibrators import neither torch nor what its tuner and its demonstrations ask for: those stay out.
BARE = {"mcgrad": ("mcgrad==0.1.5",)}
PEERS = ("mcnet", *REQUIREMENTS)

# Names under which the numeric libraries look for the number of threads.
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR", "VECLIB", "LOKY")


def interpreter(peer: str) -> Path:
    """Return the interpreter of a peer; the first call makes its environment."""
    if peer == "mcnet":
        return Path(sys.executable)
    folder = ENVIRONMENTS / peer
    wanted, bare = (*REQUIREMENTS[peer], "pyarrow"), BARE.get(peer, ())
    stamp, content = folder / "installed.txt", "\n".join((*wanted, *bare))
    if not stamp.exists() or stamp.read_text() != content:
        print(f"making the environment of {peer}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        quiet = ("--quiet", "--disable-pip-version-check")
        install = [folder / "bin" / "pip", "install", *quiet]
        subprocess.run([*install, *wanted], check=True)
        if bare:
            subprocess.run([*install, "--no-deps", *bare], check=True)
        stamp.write_text(content)
    return folder / "bin" / "python"


def variables(peer: str, threads: int = 1) -> dict[str, str]:
    """Return the environment variables of a peer's process: the same number of threads for all."""
    given = {f"{name}_NUM_THREADS": str(threads) for name in _THREADS}
    given |= {"POLARS_MAX_THREADS": str(threads), "LOKY_MAX_CPU_COUNT": str(threads), "PYTHONWARNINGS": "ignore"}
    if peer == "mcnet":
        given["PYTHONPATH"] = str(SOURCE)
    return {**os.environ, **given}
