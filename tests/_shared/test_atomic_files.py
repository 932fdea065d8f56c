import os
import signal
import socket
import stat
import subprocess
import sys

import pytest

from mcnet._shared.files import is_disk_full, whole_file
from mcnet.errors import InputError


def write(path, text="new"):
    with whole_file(path) as part:
        part.write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def make_device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (make_fifo, "named pipe"),
        (make_socket, "socket"),
        (make_device, "device"),
        (os.mkdir, "folder"),
        (lambda path: os.symlink("/dev/null", path), "device"),
    ],
    ids=["fifo", "socket", "device", "folder", "link to a device"],
)
def test_only_regular_files_are_replaced(tmp_path, monkeypatch, make, kind):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    make("out")
    before = os.lstat("out")
    with pytest.raises(InputError, match=kind):
        write("out")
    assert os.lstat("out") == before
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_and_its_file_is_written(tmp_path, exists):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "file", tmp_path / "link"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert (names(tmp_path), names(tmp_path / "data")) == (["data", "link"], ["file"])


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match="leads back"):
        write(tmp_path / "a")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o444])
def test_the_mode_of_a_replaced_file_is_kept(tmp_path, mode):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    write(path)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_usual_mode(tmp_path):
    (tmp_path / "usual").write_text("")
    write(tmp_path / "file")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("letter", ["x", "ü", "漢", "😀"])
def test_names_as_long_as_the_file_system_allows(tmp_path, letter):
    size = os.pathconf(tmp_path, "PC_NAME_MAX") // len(letter.encode())
    path = tmp_path / (letter * size)
    write(path)
    write(path, "again")
    assert path.read_text() == "again"


@pytest.mark.parametrize("how", ["error", "interrupt"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, how):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with whole_file(path) as part:
            part.write_text("half")
            raise ValueError if how == "error" else KeyboardInterrupt

    with pytest.raises((ValueError, KeyboardInterrupt)):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


HANG = """
import sys, time
from mcnet._shared.files import whole_file
with whole_file(sys.argv[1]) as part:
    part.write_text("half")
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the middle of writing a file."""
    process = subprocess.Popen([sys.executable, "-c", HANG, tmp_path / "theirs"], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.communicate()


def test_parts_of_a_killed_process_are_removed_by_the_next_write(tmp_path, writer):
    assert len(names(tmp_path)) == 1
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    write(tmp_path / "ours")
    assert names(tmp_path) == ["ours"]


def test_parts_of_a_living_process_are_left_alone(tmp_path, writer):
    (theirs,) = names(tmp_path)
    write(tmp_path / "ours")
    assert set(names(tmp_path)) == {theirs, "ours"}


def test_other_files_that_end_in_part_are_left_alone(tmp_path):
    others = [".a.part", "b.part", ".c.mcnet-0123.part", "d.mcnet-0123456789abcdef.part"]
    for name in others:
        (tmp_path / name).touch()
    write(tmp_path / "ours")
    assert names(tmp_path) == sorted([*others, "ours"])


def test_files_written_at_once_do_not_disturb_each_other(tmp_path):
    code = """
import sys
from mcnet._shared.files import whole_file
for number in range(300):
    with whole_file(sys.argv[1]) as part:
        part.write_text("x" * 1000)
"""
    running = [subprocess.Popen([sys.executable, "-c", code, tmp_path / f"file{i % 2}"]) for i in range(4)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0, 0]
    assert names(tmp_path) == ["file0", "file1"]
    assert (tmp_path / "file0").read_text() == "x" * 1000


def test_a_full_disk_is_said_to_be_full(tmp_path):
    def full(_):
        with open("/dev/full", "w") as device:
            device.write("x")

    with pytest.raises(OSError, match="no space left on the disk") as caught, whole_file(tmp_path / "file") as part:
        full(part)
    assert caught.value.filename == str(tmp_path / "file")
    assert names(tmp_path) == []


@pytest.mark.parametrize("sink", ["sink_parquet", "sink_ipc", "sink_csv"])
def test_polars_errors_of_a_full_disk_are_recognised(sink):
    import polars as pl

    with pytest.raises((OSError, pl.exceptions.PolarsError)) as caught:
        getattr(pl.LazyFrame({"a": range(100_000)}), sink)("/dev/full")
    assert is_disk_full(caught.value)
