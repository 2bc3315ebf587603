"""The main job, as a person would start it, on tiny models; deploy/quickstart runs it on a real one."""

import pytest

from test_chat import figures, start


@pytest.mark.parametrize("model", ("tiny-llama", "tiny-gemma3"))
def test_the_main_job(model, tmp_path):
    picture = tmp_path / "job.png"
    done = start("job", "--model", model, "--plot", str(picture))
    assert done.returncode == 0, done.stdout
    assert "0 differ from the dense cache" in done.stdout
    assert picture.stat().st_size > 10000
    found = figures(done.stdout)
    assert len(found) == 11
    assert found[0][0] == 0                              # first
    assert all(reused > 3000 for reused, _ in found[1:7])  # shared, forked
    assert found[7][0] == 0                              # another tenant
    assert "tokens are cached for 'harbour', 0 for 'rival'" in done.stdout
