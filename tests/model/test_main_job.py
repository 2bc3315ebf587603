"""The main job, as a person would start it, on tiny models; deploy/quickstart runs it on a real one."""

import re

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
    ours, seen = re.search(r"shared beginning (\d+) tokens are cached for 'harbour', (\d+) for 'rival'",
                           done.stdout).groups()
    assert int(ours) > 3000 and seen == "0"
    without, less = re.search(r"would take (\d+) MiB.*?([\d.]+) times less", done.stdout, re.DOTALL).groups()
    assert int(without) > 0 and float(less) > 3          # seven sequences, one beginning
    from_disk = int(re.search(r"(\d+) tokens of that came from disk", done.stdout)[1])
    assert 3000 < from_disk <= found[8][0]               # evicted
    assert all(reused > 3000 for reused, _ in found[9:])  # an engine restarted, the daemon restarted
    assert re.search(r"First token after [\d.]+ s without a hit, [\d.]+ s with one", done.stdout)
