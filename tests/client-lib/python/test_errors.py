"""errors.py against the table of proto/README.md, section 9."""

import re

import kvpool
import kvpool.errors
import pytest
from conftest import ROOT


def test_one_class_for_each_row_of_the_protocol() -> None:
    text = (ROOT / "proto" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| (.+) \| (yes|no) \|$", text, re.MULTILINE)
    assert len(rows) == 20 and rows[0][:2] == ("0", "OK")
    assert sorted(kvpool.errors.ERRORS) == [int(code) for code, *_ in rows[1:]]
    for code, name, meaning, retry in rows[1:]:
        error = kvpool.errors.ERRORS[int(code)]
        assert error.__name__ == name.title().replace("_", "")
        assert getattr(kvpool, error.__name__) is error
        assert (error.text, error.may_retry) == (meaning, retry == "yes")
        assert str(error()) == meaning and error().status == int(code)


def test_a_status_of_tomorrow_may_not_be_retried() -> None:
    error = kvpool.errors.error_of(77, "of tomorrow")
    assert type(error) is kvpool.KvpoolError
    assert (error.status, error.may_retry, str(error)) == (77, False, "of tomorrow")


@pytest.mark.parametrize(
    ("error", "builtin"), [(kvpool.Timeout, TimeoutError), (kvpool.Disconnected, ConnectionError)]
)
def test_some_are_what_python_calls_them_too(error: type, builtin: type) -> None:
    assert issubclass(error, builtin) and issubclass(error, kvpool.KvpoolError)
