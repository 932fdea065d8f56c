"""Compiled loops work where their cache on disk does not."""

import numpy as np
import pytest

from mcnet._shared.loops import compiled, numba_installed

pytestmark = pytest.mark.skipif(not numba_installed(), reason="numba is not installed")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(13, "denied"), EOFError()])
@pytest.mark.parametrize("method", ["save_overload", "load_overload"])
def test_a_cache_that_fails_is_left_out(monkeypatch, error, method):
    from numba.core.caching import FunctionCache

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(FunctionCache, method, fail)

    def double(values, out):
        for i in range(len(values)):
            out[i] = 2.0 * values[i]

    out = np.empty(3)
    compiled(double)(np.arange(3.0), out)
    assert out.tolist() == [0.0, 2.0, 4.0]
