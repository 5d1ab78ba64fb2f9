"""Folders that several programs save in at the same time: nobody's conversation is overwritten."""

from __future__ import annotations

from shared.kv.files import replacement
from shared.kv.files.checksum import read_sidecar
from shared.kv.files.replacement import Replacement
from shared.kv.sessions.folder import Origin
from tests.support.cache_builder import CREATED
from tests.support.clock import FakeClock
from tests.support.saved_sessions import folder_in, save


def test_what_another_program_saved_meanwhile_stays(tmp_path):
    folder = folder_in(tmp_path, clock=FakeClock(CREATED + 9))
    origin = Origin(b"one", CREATED)
    mine = theirs = save(folder, "one", "begun")
    theirs = folder.write(folder.capture(origin, b"begun, theirs", tokens=4, context=9), instead_of=theirs)
    assert theirs.identity == mine.identity
    apart = folder.write(folder.capture(origin, b"begun, mine", tokens=4, context=9), instead_of=mine)
    assert {folder.read(stored) for stored in folder.sessions()} == {b"begun, theirs", b"begun, mine"}
    assert (apart.title, apart.created_at, folder.find(apart.identity)) == (b"one", CREATED + 1, apart)
    # From then on it is a session like any other; and one more such meeting finds a free name too.
    assert folder.write(
        folder.capture(Origin(b"one", CREATED + 1), b"x", tokens=1, context=9), instead_of=apart
    )
    assert len(folder.sessions()) == 2
    folder.write(folder.capture(origin, b"begun, third", tokens=5, context=9), instead_of=mine)
    assert [stored.created_at - CREATED for stored in folder.sessions()].count(2) == 1
    folder.delete(theirs)
    assert folder.write(folder.capture(origin, b"mine", tokens=4, context=9), instead_of=mine) != apart
    assert folder.find(mine.identity).created_at == CREATED


def test_two_conversations_that_begin_alike_in_the_same_second_are_both_kept(tmp_path):
    folders = folder_in(tmp_path), folder_in(tmp_path)
    first, second, third = (save(folders[number % 2], "hello", f"{number}") for number in range(3))
    assert [stored.created_at - CREATED for stored in (first, second, third)] == [0, 1, 2]
    assert [folders[0].read(stored) for stored in (first, second, third)] == [b"0", b"1", b"2"]
    # The next save of each is the same file.
    again = folders[1].capture(Origin(b"hello", CREATED + 1), b"1, longer", tokens=9, context=9)
    assert folders[1].write(again, instead_of=second).identity == second.identity
    assert len(folders[0].sessions()) == 3


def test_a_conversation_that_begins_alike_while_this_one_is_written(tmp_path, monkeypatch):
    folder, other, theirs = folder_in(tmp_path), folder_in(tmp_path), []
    commit = Replacement.commit

    def overtaken(replacement, **how):
        if not theirs:
            monkeypatch.undo()  # the two names of what is not done yet are those of two processes
            theirs.append(save(other, "hello", "theirs"))
        commit(replacement, **how)

    monkeypatch.setattr(Replacement, "commit", overtaken)
    monkeypatch.setattr(replacement, "temporary_path", lambda path: path.with_name(f"{path.name}.tmp.1"))
    mine = save(folder, "hello", "mine")
    assert (mine.created_at, theirs[0].created_at) == (CREATED + 1, CREATED)
    assert (folder.read(mine), folder.read(theirs[0])) == (b"mine", b"theirs")
    assert read_sidecar(theirs[0].file.path) is not None
    assert not [path for path in tmp_path.iterdir() if ".tmp." in path.name]
