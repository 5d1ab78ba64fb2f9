"""The live sessions of a program, and the disk behind them: no prefix is computed twice if it can be helped.

Owns the way from a prompt to a session that holds as much of it as is known, and what is saved before
something else takes its place. One thread uses it. Spec: kv §7, §9.
Must not know: dialects, requests, how a store keeps its files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from shared.errors import ContextFullError, EngineFault, LiveStateLost
from shared.kv.files.cache_file import CacheFile
from shared.kv.files.header import Reason
from shared.kv.live.checkpoints import DEFAULT_CHECKPOINT_BYTES, CheckpointBudget
from shared.kv.live.choice import StoredPrefix, Way, choose, discard_price
from shared.kv.live.control_tokens import ControlTokens
from shared.kv.live.disk_match import Refusals, hidden_kind, resume_offset
from shared.kv.live.prefill_plan import plan_stops
from shared.kv.live.prompt import Prompt
from shared.kv.live.slot import LiveSlot, Reuse
from shared.kv.live.start import Start
from shared.kv.live.tool_memory import ToolMemory
from shared.kv.store.outcomes import Saved
from shared.kv.store.policy import ContinuedCounter, StoreSettings
from shared.kv.store.store import KvStore
from shared.prefix import common_prefix
from shared.session import Session
from shared.text.tokenizer import Tokenizer

_NO_STORE = StoreSettings(cold_max_tokens=0, continued_interval=0)


class Slots:
    """`sessions` of one engine, one slot each. Turns on different slots may be in work at the same time: from
    `begin` to `release` a slot belongs to its turn.

    With a `store` states go to disk and come back; with a `tool_memory` the calls in them do too.
    `checkpoint_bytes` is the memory that points to go back to may take, for all slots together.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        tokenizer: Tokenizer,
        *,
        store: KvStore | None = None,
        tool_memory: ToolMemory | None = None,
        checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES,
    ) -> None:
        if not sessions:
            raise ValueError("live slots need at least one session")
        self.tokenizer = tokenizer
        self.settings = store.settings if store is not None else _NO_STORE
        self._store = store
        self._tool_memory = tool_memory
        self._controls = ControlTokens(tokenizer)
        self._refusals = Refusals(self._controls)
        self._turns = 0
        budget = CheckpointBudget(checkpoint_bytes)
        self.slots = [
            LiveSlot(number, session, self._controls, budget.shelf(), ContinuedCounter(self.settings))
            for number, session in enumerate(sessions)
        ]

    def begin(self, prompt: Prompt) -> Start:
        """Bring a free slot as far along `prompt` as memory and disk allow, after saving what must go for it.

        The slot is in use until `release` or `failed`. Raises RuntimeError if none is free; for results of
        tools that come without their history LiveStateLost if the answer that they belong to is no longer
        live, and ContextFullError if they do not fit behind it.
        """
        if prompt.tail is not None and prompt.tail.alone:
            return self._begin_behind(*self._offers(prompt))
        way, files = self._way(prompt)
        slot = way.slot
        self._occupy(slot)
        try:
            return self._start(prompt, way, files)
        except BaseException:
            slot.invalidate()
            slot.busy = False
            raise

    def knows_calls(self, calls: Collection[str]) -> bool:
        """Whether a live answer made all of `calls`. Any thread may ask; the answer may change at once."""
        return any(slot.calls.issuperset(calls) for slot in self.slots)

    def spared_after(self, prompt: Prompt, others: Sequence[Prompt], least: int) -> list[int]:
        """For each of `others`, whose turns are in work: tokens of work that `prompt` is spared if it waits
        for that turn and goes on from what both begin with, instead of taking a free slot now. 0 or less if
        it had better not, or if they have fewer than `least` tokens in common.

        Reckons with the points that a turn leaves behind, and with what of the other would have to go. Raises
        RuntimeError if no slot is free.
        """
        shared = [self._shared(prompt, other, least) for other in others]
        if not any(shared):
            return shared
        now = self._way(prompt)[0].cost
        price = partial(discard_price, worth_a_file=self.settings.min_tokens, saves=self._saves)
        return [
            now - (len(prompt.tokens) - length) - price(len(other.tokens) - length) if length else 0
            for length, other in zip(shared, others, strict=True)
        ]

    def release(self, slot: LiveSlot) -> None:
        """The turn on `slot` is over, however it ended; its state stays for the next one."""
        slot.busy = False

    def failed(self, start: Start) -> None:
        """The prefill failed: the slot starts from nothing, and a file that was loaded for it is never tried
        again. The slot is released; the turn may begin once more."""
        start.slot.invalidate()
        if start.file is not None and self._store is not None:
            self._store.unusable(start.file)
        self.release(start.slot)

    def save(
        self, slot: LiveSlot, reason: Reason, *, protect: Collection[str] = (), trimmed: int = 0
    ) -> Saved:
        """Store the present state of `slot`; `trimmed` tokens of its prompt lie behind it.

        Raises EngineFault.
        """
        if self._store is None:
            return Saved(False, "there is no store", 0)
        key = slot.key()
        if key is None:
            why = "the text holds control strings that are no control tokens"
            return self._not_saved(slot.session.position, reason, why)
        calls = self._tool_memory.turns_in(key.text) if self._tool_memory is not None else {}
        return self._store.save(slot.session, key, reason, tool_map=calls, protect=protect, trimmed=trimmed)

    def save_on_the_way(self, slot: LiveSlot, *, trimmed: int = 0) -> Saved | None:
        """Store the state if it stands at one of the lengths at which long states are saved; None if not."""
        position = slot.session.position
        if self._store is None or not slot.counter.fires(position):
            return None
        saved = self.save(slot, Reason.CONTINUED, trimmed=trimmed)
        if saved.stored:
            slot.counter.stored(position)
        return saved

    def while_decoding(self, slot: LiveSlot, *, in_tool_call: bool) -> Saved | None:
        """`save_on_the_way`, to be asked before each sampled token. A call that is being written is not cut
        in two; where reasoning gets hidden, no prompt begins with half an answer. Raises EngineFault."""
        return None if in_tool_call or slot.hides_tokens else self.save_on_the_way(slot)

    def shut_down(self) -> None:
        """Save what every slot holds, and wait until it is on disk. What goes wrong with one costs the
        others nothing."""
        if self._store is None:
            return
        for slot in self.slots:
            try:
                if slot.worth >= self.settings.min_tokens:
                    self._save_worth(slot, Reason.SHUTDOWN, self.settings.min_tokens)
            except Exception as error:  # whatever it was
                why = f"slot {slot.number}: {type(error).__name__}: {error}"
                self._not_saved(slot.session.position, Reason.SHUTDOWN, why)
        self._store.flush()

    def _occupy(self, slot: LiveSlot) -> None:
        self._turns += 1
        slot.busy, slot.used = True, self._turns

    def _begin_behind(self, free: Sequence[LiveSlot], reuses: Sequence[Reuse]) -> Start:
        """Results without their history: only the state that they belong to will do."""
        for slot, reuse in zip(free, reuses, strict=True):
            if reuse.kept:
                if len(reuse.tokens) >= slot.session.context:
                    raise ContextFullError(len(reuse.tokens), slot.session.context)
                self._occupy(slot)
                return self._from_memory(slot, reuse, None)
        raise LiveStateLost

    def _shared(self, prompt: Prompt, other: Prompt, least: int) -> int:
        """Tokens up to the last point that a turn of `other` leaves behind within what both begin with; 0 if
        fewer than `least`."""
        common = common_prefix(prompt.tokens, other.tokens)
        if common < least:
            return 0
        stops = plan_stops(other.tokens, 0, None, self.tokenizer.specials, self.settings)
        length = max((stop.position for stop in stops if stop.position <= common and stop.kind), default=0)
        return length if length >= least else 0

    @property
    def _saves(self) -> bool:
        return self._store is not None and not self._store.read_only

    def _offers(self, prompt: Prompt) -> tuple[list[LiveSlot], list[Reuse]]:
        """The free slots, and what each holds for `prompt`."""
        free = [slot for slot in self.slots if not slot.busy]
        if not free:
            raise RuntimeError("every slot is in use: release one before the next turn begins")
        return free, [slot.look(prompt) for slot in free]

    def _way(self, prompt: Prompt) -> tuple[Way, list[CacheFile]]:
        """The best way to `prompt` from what is free and what is on disk, and the files that hold a part of
        it. Changes nothing."""
        free, reuses = self._offers(prompt)
        files = self._candidates(prompt, free[0].session.context, max(reuse.offset for reuse in reuses))
        stored = self._stored_prefix(files[0], prompt) if files else None
        way = choose(free, reuses, stored, worth_a_file=self.settings.min_tokens, saves=self._saves)
        return way, files

    def _candidates(self, prompt: Prompt, context: int, live_bytes: int) -> list[CacheFile]:
        if self._store is None:
            return []
        files = self._store.find(prompt.rendered, context, live_bytes=live_bytes)
        return [file for file in files if not self._refusals.covers(file, prompt)]

    def _stored_prefix(self, file: CacheFile, prompt: Prompt) -> StoredPrefix:
        covered = self._controls.tokens_before(prompt.tokens, file.text_bytes)
        return StoredPrefix(file, len(prompt.tokens) - covered)

    def _start(self, prompt: Prompt, way: Way, files: Sequence[CacheFile]) -> Start:
        slot = way.slot
        least = self.settings.min_tokens
        saved = None
        if slot.loss(way.kept, least) >= least:
            saved = self._save_worth(slot, Reason.EVICT, way.kept + 1, [file.name for file in files])
        if way.from_disk:
            start = self._from_disk(prompt, way, files, saved)
            if start is not None:
                return start
        # A save may have gone back to the prompt's end, and a file that failed may have spoilt the session.
        untouched = saved is None and not way.from_disk
        return self._from_memory(slot, way.reuse if untouched else slot.look(prompt), saved)

    def _from_memory(self, slot: LiveSlot, reuse: Reuse, saved: Saved | None) -> Start:
        taken = slot.take(reuse)
        source = "miss" if taken.source == "none" else taken.source
        return Start(slot, taken.prompt, taken.tokens, source, taken.kept, saved=saved)

    def _from_disk(
        self, prompt: Prompt, way: Way, files: Sequence[CacheFile], saved: Saved | None
    ) -> Start | None:
        """The first file, of the longest text on, that can be loaded and whose state may be used."""
        slot, in_memory = way.slot, len(way.reuse.tokens) - way.reuse.kept
        for file in files:
            if slot.session.position and self._stored_prefix(file, prompt).left >= in_memory:
                break
            if (start := self._load(prompt, slot, file, saved)) is not None:
                return start
        return None

    def _load(self, prompt: Prompt, slot: LiveSlot, file: CacheFile, saved: Saved | None) -> Start | None:
        assert self._store is not None
        offset, tokens = None, prompt.tokens

        def accepts(loaded: list[int], read: CacheFile) -> bool:
            nonlocal offset, tokens
            offset = resume_offset(loaded, read, prompt, self._controls)
            if offset is None:
                self._refusals.add(file, prompt)
                return False
            tokens = prompt.after(loaded, offset, self.tokenizer)
            return len(tokens) < slot.session.context

        loaded = self._store.load(file, prompt.rendered, slot.session, accepts)
        if loaded is None or offset is None:
            return None
        slot.loaded(loaded.tokens, prompt, offset, hidden_kind(file))
        if self._tool_memory is not None:
            self._tool_memory.adopt(loaded.tool_map, loaded.text)
        return Start(slot, prompt, tokens, "disk-text", len(loaded.tokens), loaded.file, saved)

    def _save_worth(
        self, slot: LiveSlot, reason: Reason, least: int, protect: Collection[str] = ()
    ) -> Saved | None:
        """Save the state, without an answer that no client will send back; `least` tokens must be left of it.
        Whatever goes wrong costs the state and no more."""
        if self._store is None:
            return None
        tokens = slot.session.position
        if not slot.return_to_prompt(least):
            why = "its answer will not come back, and there is no way back to before it"
            return self._not_saved(tokens, reason, why)
        try:
            return self.save(slot, reason, protect=protect)
        except EngineFault as fault:
            slot.invalidate()
            return self._not_saved(tokens, reason, str(fault))

    def _not_saved(self, tokens: int, reason: Reason, why: str) -> Saved:
        assert self._store is not None
        self._store.say_skipped(tokens, reason, why)
        return Saved(False, why, 0)
