"""Binding a Session to exact bytes, and the guard that keeps them (behaviours 29, 53 to 57, 65)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from emelex_core.engine import EndpointConfig
from emelex_core.errors import (
    Corrupt,
    EmelexError,
    Invalid,
    MissingModelIdentity,
    ModelSnapshotInvalid,
    NotFound,
    Refused,
    SessionBusy,
    SessionModelMismatch,
    StaleSessionLease,
)
from emelex_core.home import Home
from emelex_core.models import (
    BUILTIN_REFERENCE,
    InstalledModel,
    MemorySnapshotReferenceGuard,
    ModelManager,
)
from emelex_core.models.probe import Probed
from emelex_core.sessions import binding
from stores import ManualClock, edit, rows
from tinymodels import tiny_model

BOX = EndpointConfig(name="box", base_url="http://127.0.0.1:8080/v1", model="m", context_tokens=4_096)


@pytest.fixture
def store(place: Home) -> Iterator[MemoryStore]:
    with MemoryStore.open(place, create=True) as opened:
        yield opened


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def session(store: MemoryStore, workspace: Path) -> Session:
    return store.start_session(workspace, title="Which model was it?")


@pytest.fixture
def model(manager: ModelManager, tiny: Path) -> InstalledModel:
    return manager.install(tiny, name="small").model


def bound(store: MemoryStore, session: Session) -> tuple[str | None, str | None]:
    found = store.get_session(session.id)
    return found.model_reference, found.model_snapshot_id


def test_a_session_is_bound_to_reference_and_exact_snapshot(
    store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
) -> None:
    assert bound(store, session) == (None, None)
    assert store.bind_model(session.id, model, manager=manager) == model
    assert bound(store, session) == ("local:small", model.snapshot_id)


def test_the_same_binding_again_is_fine_and_another_is_refused(
    store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
) -> None:
    """Behaviour 54."""
    store.bind_model(session.id, model, manager=manager)
    before = store.get_session(session.id)
    store.bind_model(session.id, model, manager=manager)
    assert store.get_session(session.id) == before
    with pytest.raises(Invalid, match=r"bound to local:small@sha256:\w+ already"):
        store.bind_model(session.id, manager.get(BUILTIN_REFERENCE), manager=manager)
    assert bound(store, session) == ("local:small", model.snapshot_id)


def test_a_store_without_a_home_binds_nothing(
    place: Home, store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel, tmp_path: Path
) -> None:
    """Behaviour 53: also when the path is that of the Home's own database."""
    with MemoryStore.open_path(place.database) as opened, pytest.raises(Invalid, match="own Home"):
        opened.bind_model(session.id, model, manager=manager)
    other = ModelManager(Home(tmp_path / "other"))
    with pytest.raises(Invalid, match="own Home"):
        store.bind_model(session.id, model, manager=other)
    assert bound(store, session) == (None, None)
    assert not other.home.root.exists()


def test_a_snapshot_that_was_removed_before_is_not_bound(
    store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
) -> None:
    """Behaviour 55."""
    manager.remove(model.reference)
    with pytest.raises(ModelSnapshotInvalid):
        store.bind_model(session.id, model, manager=manager)
    assert bound(store, session) == (None, None)


def test_a_name_that_stands_for_other_bytes_now_is_not_bound(
    store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel, tiny: Path
) -> None:
    manager.remove(model.reference)
    tiny.write_bytes(tiny_model(filling=b"other"))
    assert manager.install(tiny, name="small").model.snapshot_id != model.snapshot_id
    with pytest.raises(ModelSnapshotInvalid):
        store.bind_model(session.id, model, manager=manager)
    assert bound(store, session) == (None, None)


def test_altered_bytes_are_not_bound(
    store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
) -> None:
    """Behaviour 58, where it counts."""
    assert model.path is not None
    model.path.write_bytes(model.path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelSnapshotInvalid):
        store.bind_model(session.id, model, manager=manager)
    assert bound(store, session) == (None, None)


def test_a_live_session_is_bound_under_its_lease_only(
    store: MemoryStore, session: Session, workspace: Path, manager: ModelManager, model: InstalledModel
) -> None:
    """Behaviour 29."""
    with store.claim_session(session.id, workspace) as lease:
        with pytest.raises(SessionBusy) as caught:
            store.bind_model(session.id, model, manager=manager)
        assert caught.value.held_until > store.clock()
        store.bind_model(session.id, model, manager=manager, lease=lease)
        lease.append_turn([Event.user("still held")])
    assert bound(store, session) == ("local:small", model.snapshot_id)
    with pytest.raises(StaleSessionLease):
        store.bind_model(session.id, model, manager=manager, lease=lease)


def test_a_lease_of_another_store_is_refused(
    place: Home, store: MemoryStore, session: Session, workspace: Path, manager: ModelManager, model: InstalledModel
) -> None:
    """Behaviour 28."""
    with (
        MemoryStore.open(place) as other,
        other.claim_session(session.id, workspace) as lease,
        pytest.raises(Invalid, match="another store"),
    ):
        store.bind_model(session.id, model, manager=manager, lease=lease)


def test_a_session_that_is_not_there_is_not_found(
    store: MemoryStore, manager: ModelManager, model: InstalledModel
) -> None:
    with pytest.raises(NotFound):
        store.bind_model("00000000-0000-4000-8000-000000000000", model, manager=manager)


def test_the_builtin_model_and_an_endpoint_are_bound_like_any_other(
    place: Home, store: MemoryStore, workspace: Path
) -> None:
    manager = ModelManager(place, endpoints={"box": BOX})
    for reference in (BUILTIN_REFERENCE, "endpoint:box"):
        session = store.start_session(workspace, title=reference)
        model = store.bind_model(session.id, manager.get(reference), manager=manager)
        assert bound(store, session) == (reference, model.snapshot_id)
        assert manager.get(model.snapshot_id) == model
    moved = ModelManager(
        place, endpoints={"box": EndpointConfig(name="box", base_url=BOX.base_url, model="n", context_tokens=1)}
    )
    session = store.start_session(workspace, title="moved")
    with pytest.raises(ModelSnapshotInvalid, match="#n@"):
        store.bind_model(session.id, manager.get("endpoint:box"), manager=moved)


class TestResume:
    """Behaviour 65."""

    def test_the_bound_model_may_go_on(
        self, store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
    ) -> None:
        store.bind_model(session.id, model, manager=manager)
        store.validate_model(session, model)

    def test_another_model_is_refused_by_name(
        self, store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
    ) -> None:
        store.bind_model(session.id, model, manager=manager)
        with pytest.raises(SessionModelMismatch) as caught:
            store.validate_model(session, manager.get(BUILTIN_REFERENCE))
        assert model.snapshot_id in caught.value.message
        assert BUILTIN_REFERENCE in caught.value.message
        assert "--model local:small" in str(caught.value.hint)

    def test_the_same_name_with_other_bytes_is_another_model(
        self,
        store: MemoryStore,
        session: Session,
        manager: ModelManager,
        model: InstalledModel,
        tiny: Path,
        tmp_path: Path,
    ) -> None:
        store.bind_model(session.id, model, manager=manager)
        tiny.write_bytes(tiny_model(filling=b"newer"))
        elsewhere = ModelManager(Home(tmp_path / "b"), prober=lambda path: Probed(grammar=True, engine="a test"))
        newer = elsewhere.install(tiny, name="small").model
        with pytest.raises(SessionModelMismatch):
            store.validate_model(session, newer)

    def test_history_without_a_binding_has_no_model_to_be_the_same(
        self, store: MemoryStore, session: Session, workspace: Path, model: InstalledModel
    ) -> None:
        store.validate_model(session, model)
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("hello"), Event.assistant("hello")])
        with pytest.raises(MissingModelIdentity):
            store.validate_model(session, model)


class TestRemoval:
    def test_a_bound_model_stays_whole(
        self, store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
    ) -> None:
        """Behaviour 57."""
        store.bind_model(session.id, model, manager=manager)
        assert model.path is not None
        before = sorted((path.name, path.read_bytes()) for path in model.path.parent.iterdir())
        for spelling in (model.reference, model.snapshot_id, model.digest):
            assert spelling is not None
            with pytest.raises(Refused, match="a Session is bound to it"):
                manager.remove(spelling)
        assert sorted((path.name, path.read_bytes()) for path in model.path.parent.iterdir()) == before
        assert manager.revalidate(model) == model
        store.delete_session(session.id)
        manager.remove(model.reference)

    def test_damage_does_not_free_a_bound_model(
        self, store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
    ) -> None:
        store.bind_model(session.id, model, manager=manager)
        assert model.path is not None
        assert model.digest is not None
        (model.path.parent / "manifest.json").write_bytes(b"{}")
        with pytest.raises(Refused, match="though damaged"):
            manager.remove(model.digest)

    def test_every_manager_has_the_guard(
        self, place: Home, store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
    ) -> None:
        """The seed: direct construction cannot bypass retained references."""
        store.bind_model(session.id, model, manager=manager)
        with pytest.raises(Refused):
            ModelManager(place).remove(model.reference)


class TestGuard:
    """Behaviour 56."""

    SNAPSHOT = f"local:x@sha256:{'1' * 64}"

    def test_without_a_database_nothing_is_needed_and_nothing_made(self, place: Home) -> None:
        assert not MemorySnapshotReferenceGuard(place.database).is_referenced(self.SNAPSHOT)
        assert not place.root.exists()
        place.memory.mkdir(parents=True)
        assert not MemorySnapshotReferenceGuard(place.database).is_referenced(self.SNAPSHOT)
        assert not list(place.memory.iterdir())

    def test_it_opens_nothing_before_it_is_asked(self, place: Home, store: MemoryStore) -> None:
        guard = MemorySnapshotReferenceGuard(place.database)
        store.close()
        place.database.chmod(0o644)
        with pytest.raises(Refused):
            guard.is_referenced(self.SNAPSHOT)

    def test_it_only_reads(self, place: Home, store: MemoryStore) -> None:
        store.close()
        before = place.database.read_bytes()
        assert not MemorySnapshotReferenceGuard(place.database).is_referenced(self.SNAPSHOT)
        assert place.database.read_bytes() == before

    @pytest.mark.parametrize("kind", ["garbage", "newer schema", "link"])
    def test_a_database_that_cannot_be_read_keeps_every_model(
        self, place: Home, store: MemoryStore, manager: ModelManager, model: InstalledModel, kind: str
    ) -> None:
        store.close()
        if kind == "garbage":
            place.database.write_bytes(b"no database" * 1_000)
        elif kind == "newer schema":
            edit(place.database, "PRAGMA user_version = 999")
        else:
            place.database.rename(place.memory / "away")
            place.database.symlink_to("away")
        with pytest.raises((Corrupt, Refused)) as caught:
            manager.remove(model.reference)
        assert isinstance(caught.value, EmelexError)
        assert manager.revalidate(model) == model

    def test_the_same_bytes_under_another_name_are_needed_too(
        self, place: Home, store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
    ) -> None:
        store.bind_model(session.id, model, manager=manager)
        edit(place.database, "UPDATE sessions SET model_snapshot_id = ?", (f"local:old@sha256:{model.digest}",))
        assert rows(place.database, "SELECT count(*) FROM sessions WHERE model_snapshot_id LIKE 'local:old@%'") == [
            (1,)
        ]
        with pytest.raises(Refused):
            manager.remove(model.reference)


def test_binding_does_not_count_as_the_future(
    store: MemoryStore, session: Session, manager: ModelManager, model: InstalledModel
) -> None:
    """Binding is activity: the Session sorts first and its age begins anew (behaviour 31)."""
    clock = ManualClock(session.updated_at + 1_000)
    binding.bind(store.database, session.id, model, manager=manager, clock=clock)
    assert store.get_session(session.id).updated_at == clock.now
