"""`emelex models list|import|default|verify|remove|path|gc` (issue 4, item 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emelex_cli.call import Call
from emelex_cli.output import one_line, path_text
from emelex_cli.shapes import size
from emelex_core.clock import iso
from emelex_core.errors import EmelexError, Invalid, Refused

if TYPE_CHECKING:
    from emelex_cli.progress import Bar
    from emelex_core.models.manager import ModelManager
    from emelex_core.models.records import InstalledModel


def list_models(call: Call) -> int:
    """Print the models that can be used: built in, installed, configured; the default one is marked."""
    manager = _manager(call)
    installed, damaged = manager.list_models()
    found = [*_others(call, manager), *installed]
    default = call.config.models.default
    if call.out.json:
        for model in found:
            call.out.record({**shape(model), "default": model.reference == default})
    else:
        rows = [_row(model, "*" if model.reference == default else "") for model in found]
        call.out.table(rows, heading=("", "reference", "kind", "size", "context", "snapshot", "licence"))
    for entry in damaged:
        call.out.note(f"damaged: {entry.path.name[:12]}: {entry.reason}")
    if default not in {model.reference for model in found}:
        call.out.note(f"the default, {default}, is not among them")
    return 0


def import_model(call: Call, *, path: str, name: str | None = None, link: bool = False) -> int:
    """Install a GGUF file by copy or by link, and print what it is."""
    from emelex_cli.progress import bar

    if not path or "\0" in path:
        raise Invalid(f"{path!r} cannot name a file")
    with bar() as shown:
        done = _manager(call).install(call.place(path), name=name, link=link, progress=_shown(shown))
    if call.out.json:
        call.out.record({"type": "imported_model", "already": done.already, **shape(done.model)})
        return 0
    call.out.line(f"{done.model.reference}  {'installed already' if done.already else done.model.kind.value}")
    call.out.line(done.model.snapshot_id)
    for reason in _unfit(done.model):
        call.out.note(reason)
    return 0


def default(call: Call, *, reference: str | None = None) -> int:
    """Print the default model, or make another one the default in the Home's config.toml."""
    from emelex_core import config as configs
    from emelex_core import home as homes
    from emelex_core.models.preference import set_default

    if reference is None:
        reference = call.config.models.default
    else:
        model = _manager(call).get(reference)
        reasons = _unfit(model)
        if reasons:
            raise Refused(reasons[0])
        reference = model.reference
        homes.make_private_directory(call.home.root)
        set_default(call.home.config, reference)
        # Read anew: a project or the environment may have the last word here.
        effective = configs.load(call.home, directory=call.directory)
        if effective.models.default != reference:
            origin = effective.origins["models.default"]
            call.out.note(f"here {effective.models.default} still wins, by {origin}")
    if call.out.json:
        call.out.record({"type": "default_model", "reference": reference})
    else:
        call.out.line(reference)
    return 0


def verify(call: Call, *, reference: str | None = None, certify: bool = False) -> int:
    """Hash every byte of a model, or of all; print each and return 1 when one is not as it must be.

    With `certify` each sound one is put through the trials, too.
    """
    from emelex_cli.progress import bar

    manager = _manager(call)
    wanted = [reference] if reference is not None else _names(call, manager)
    failed = False
    with bar() as shown:
        for name in wanted:
            try:
                done = manager.verify(name, progress=_shown(shown))
            except EmelexError as error:
                if reference is not None:
                    raise
                failed = True
                shown.pause()
                _tell(call, _failure(name, error))
                continue
            shown.pause()
            _tell(
                call,
                {
                    "reference": done.model.reference,
                    "snapshot": done.model.snapshot_id,
                    "ok": True,
                    "restamped": done.restamped,
                    "error": None,
                },
            )
            if certify:
                from emelex_cli import certify_cmd

                certify_cmd.certify(call, done.model.reference)
    return 1 if failed else 0


def remove(call: Call, *, snapshot: str) -> int:
    """Remove an installed model; a linked one's file stays. Refused while a Session is bound to it."""
    removed = _manager(call).remove(snapshot)
    if call.out.json:
        call.out.record(
            {
                "type": "removed_model",
                "reference": removed.reference,
                "snapshot": removed.snapshot_id,
                "bytes_freed": removed.bytes_freed,
            }
        )
    else:
        call.out.line(f"{removed.snapshot_id}  removed, {size(removed.bytes_freed)} freed")
    if removed.reference == call.config.models.default:
        call.out.note(f"{removed.reference} is still the default; emelex models default REF names another")
    return 0


def path(call: Call, *, reference: str) -> int:
    """Print the file that a reference names, for other programs. It is not hashed."""
    model = _manager(call).get(reference)
    if model.path is None:
        raise Invalid(f"{model.reference} is a server and has no file")
    if call.out.json:
        call.out.record({"reference": model.reference, "snapshot": model.snapshot_id, "path": path_text(model.path)})
    else:
        call.out.line(path_text(model.path))
    return 0


def collect(call: Call) -> int:
    """Sweep what crashed imports and removals left; damaged models are told and stay."""
    found = _manager(call).collect()
    if call.out.json:
        call.out.record(
            {
                "type": "collected_models",
                "removed": found.removed,
                "bytes_freed": found.bytes_freed,
                "in_use": found.in_use,
                "damaged": [entry.path.name for entry in found.damaged],
            }
        )
    else:
        call.out.line(f"{found.removed} leftovers removed, {size(found.bytes_freed)} freed; {found.in_use} in use")
    for entry in found.damaged:
        call.out.note(f"damaged: {entry.path.name[:12]}: {entry.reason}")
    return 0


def shape(model: InstalledModel) -> dict[str, Any]:
    """The JSON of a model."""
    able = model.capabilities
    return {
        "reference": model.reference,
        "snapshot": model.snapshot_id,
        "kind": model.kind.value,
        "path": None if model.path is None else path_text(model.path),
        "sha256": model.sha256,
        "size": model.size,
        "architecture": model.architecture,
        "license": model.license,
        "parameters": model.parameters,
        "installed_at": iso(model.installed_at),
        "capabilities": {
            "context_tokens": able.context_tokens,
            "chat": able.chat,
            "system_role": able.system_role,
            "tools": able.tools,
            "grammar": able.grammar,
            "evidence": able.evidence,
        },
    }


def _manager(call: Call) -> ModelManager:
    from emelex_core.models.manager import ModelManager

    return ModelManager(call.home, endpoints=call.config.models.endpoint)


def _others(call: Call, manager: ModelManager) -> list[InstalledModel]:
    """The built-in model, where its package is installed, and the endpoints."""
    from emelex_core.models.resolve import BUILTIN_REFERENCE

    found: list[InstalledModel] = []
    try:
        found.append(manager.get(BUILTIN_REFERENCE))
    except EmelexError as error:
        call.out.note(error.message)
    return found + [manager.get(f"endpoint:{name}") for name in sorted(call.config.models.endpoint)]


def _names(call: Call, manager: ModelManager) -> list[str]:
    """Everything that has bytes to verify, and by its digest what is damaged."""
    installed, damaged = manager.list_models()
    files = [model.reference for model in (*_others(call, manager), *installed) if model.path is not None]
    return files + [entry.path.name for entry in damaged]


def _unfit(model: InstalledModel) -> list[str]:
    """Why the workers would refuse a model, in one sentence; nothing when they would not."""
    from emelex_workers.fitness import require_fit

    try:
        require_fit(model.reference, model.capabilities)
    except EmelexError as error:
        return [error.message]
    return []


def _shown(shown: Bar) -> Callable[[str, int, int], None]:
    return lambda doing, done, total: shown.update(doing, done=done, total=total or None)


def _failure(reference: str, error: EmelexError) -> dict[str, Any]:
    return {"reference": reference, "snapshot": None, "ok": False, "restamped": False, "error": error.message}


def _tell(call: Call, record: dict[str, Any]) -> None:
    if call.out.json:
        call.out.record({"type": "verified_model", **record})
        return
    state = "ok" if record["ok"] else "fail"
    renewed = "  (its stamp was renewed)" if record["restamped"] else ""
    detail = f"  {one_line(record['error'])}" if record["error"] else ""
    call.out.line(f"{state:4}  {record['reference']}{renewed}{detail}")


def _row(model: InstalledModel, mark: str) -> tuple[str, ...]:
    context = model.capabilities.context_tokens
    digest = model.digest or model.sha256
    return (
        mark,
        one_line(model.reference),
        model.kind.value,
        size(model.size) if model.size else "",
        "" if context is None else str(context),
        "" if digest is None else digest[:12],
        one_line(model.license or ""),
    )
