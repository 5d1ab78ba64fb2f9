"""Folders of saved states that belong to the test."""

import pytest

from apps.kv import places


@pytest.fixture(autouse=True)
def folders(monkeypatch, tmp_path):
    """The default folders, under the test's own; returns the server's and the chat's."""
    stores, sessions = tmp_path / "cache" / "kv", tmp_path / "data" / "sessions"
    monkeypatch.setattr(places, "store_folder", lambda fingerprint: stores / fingerprint)
    monkeypatch.setattr(places, "sessions_folder", lambda fingerprint: sessions / fingerprint)
    return stores, sessions
