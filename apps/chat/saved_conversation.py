"""Opens a conversation and the place where it is saved. Knows folders; nothing of lines and keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from apps.chat.answer import Answerer
from apps.chat.background_writer import BackgroundWriter
from apps.chat.conversation import Conversation
from apps.chat.conversation_file import ConversationFile
from apps.chat.session_commands import SessionCommands
from apps.chat.settings import NEWEST, ChatSettings, SessionSettings
from apps.chat.system_state import SystemState
from apps.kv_folder import agent_folder, sessions_folder
from apps.steering import weights_fingerprint
from shared.errors import UsageError
from shared.kv.sessions.folder import SessionFolder
from shared.kv.sessions.system_prompt import SystemPromptFile
from shared.kv.store.model_identity import ModelIdentity
from shared.session import Engine

if TYPE_CHECKING:
    from rich.console import Console

# What the server's disk store leaves in its folder.
_STORE_MARKER = ".model"


@contextmanager
def open_conversation(
    engine: Engine, settings: ChatSettings, answerer: Answerer, sessions: SessionSettings, *, err: Console
) -> Iterator[tuple[Conversation, SessionCommands]]:
    """A new conversation, or the one to resume, and the commands that save it and change it for another.

    Raises UsageError, and UnusableSession for one that cannot be resumed.
    """
    weights = weights_fingerprint(engine)  # no state under steering is ever saved
    own = sessions.directory or sessions_folder(weights)
    _check_no_store(own)
    model = ModelIdentity(engine.model_id, engine.quant_bits, weights, engine.name)
    folder = SessionFolder(own, others=[agent_folder()], model=model)
    folder.clean()
    with closing(BackgroundWriter()) as writer:
        system = SystemState(engine, SystemPromptFile(own, model), writer, save=sessions.autosave, err=err)
        with closing(Conversation(engine, settings, answerer, begin=system)) as conversation:
            file = ConversationFile(engine, conversation, folder, writer, err=err)
            commands = SessionCommands(
                engine, conversation, folder, file, writer, autosave=sessions.autosave, err=err
            )
            if sessions.resume is not None:
                commands.resume(None if sessions.resume == NEWEST else sessions.resume)
            yield conversation, commands


def _check_no_store(folder: Path) -> None:
    if (folder / _STORE_MARKER).exists():
        raise UsageError(
            f"{folder} is a disk store of `ds4 serve`, which deletes files to make room: name another folder "
            "for conversations"
        )
