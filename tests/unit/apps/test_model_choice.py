"""Which model file is used when none is named."""

import pytest

from apps.model_choice import EMBEDDED_MODEL, choose_model
from shared.errors import ModelFileError


def test_a_named_file_wins(tmp_path):
    named, default = tmp_path / "a.gguf", tmp_path / "ds4flash.gguf"
    named.touch()
    default.touch()
    choice = choose_model(named, default=default)
    assert (choice.path, choice.note) == (named, None)


def test_then_the_file_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds4flash.gguf").touch()
    choice = choose_model(None)
    assert (str(choice.path), choice.note) == ("ds4flash.gguf", None)


def test_then_the_built_in_model_with_a_line_that_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choice = choose_model(None)
    assert choice.path == EMBEDDED_MODEL
    assert EMBEDDED_MODEL.is_file()
    assert "demonstration model" in choice.note
    assert "ds4 pull ds4f-q2" in choice.note


def test_a_dangling_link_is_an_error_and_not_a_reason_to_fall_back(tmp_path):
    link = tmp_path / "ds4flash.gguf"
    link.symlink_to(tmp_path / "gguf" / "big.gguf")
    with pytest.raises(ModelFileError, match=r"a link to .*big\.gguf"):
        choose_model(None, default=link)


def test_a_missing_file_or_a_folder_is_an_error(tmp_path):
    with pytest.raises(ModelFileError, match="no model file"):
        choose_model(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        choose_model(tmp_path)
    with pytest.raises(ModelFileError, match="no model: give -m FILE"):
        choose_model(None, default=tmp_path / "none", embedded=tmp_path / "none")
