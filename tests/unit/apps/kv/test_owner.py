"""Nothing is removed from a folder that a live process holds."""

import fcntl
import os

import pytest

from apps.kv.owner import FolderInUse, folder_of, held
from shared.kv.store.directory import StoreDirectory
from shared.kv.store.model_identity import ModelIdentity
from tests.support.store_lock import held_by


def test_the_holder_is_named(tmp_path):
    with held_by(tmp_path), pytest.raises(FolderInUse) as caught, held([tmp_path], force=False):
        pass
    assert str(caught.value) == (
        f"{tmp_path} is in use by process 4711: stop it first, or remove from under it with --force"
    )


def test_a_store_says_who_it_is(tmp_path):
    place = StoreDirectory(tmp_path, ModelIdentity(0, 2, "ab" * 32, "tiny"))
    assert place.take()
    with pytest.raises(FolderInUse, match=f"in use by process {os.getpid()}:"), held([tmp_path], force=False):
        pass
    place.close()
    with held([tmp_path], force=False):
        pass


def test_force_goes_on_all_the_same(tmp_path):
    with held_by(tmp_path), held([tmp_path], force=True):
        pass


def test_no_server_starts_meanwhile(tmp_path):
    (tmp_path / ".lock").touch()
    with held([tmp_path, tmp_path], force=False):
        descriptor = os.open(tmp_path / ".lock", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_a_folder_of_others_gets_no_lock(tmp_path):
    with held([tmp_path], force=False):
        assert not list(tmp_path.iterdir())


def test_what_was_set_aside_belongs_to_the_folder_above(tmp_path):
    assert folder_of(tmp_path / "bad" / "x.kv") == folder_of(tmp_path / "x.kv") == tmp_path
