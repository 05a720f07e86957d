from collections.abc import Callable
from datetime import datetime
from typing import Any

from huey.registry import Registry
from huey.serializer import Serializer
from huey.storage import BaseStorage

class Task:
    id: str
    args: tuple[Any, ...]

class TaskWrapper:
    task_class: type[Task]

class Huey:
    name: str
    results: bool
    storage: BaseStorage
    _registry: Registry
    def __init__(
        self,
        name: str = ...,
        results: bool = ...,
        store_none: bool = ...,
        utc: bool = ...,
        immediate: bool = ...,
        serializer: Serializer | None = ...,
        *,
        storage_class: Callable[..., BaseStorage] | None = ...,
        **storage_kwargs: Any,
    ) -> None: ...
    def task(
        self, retries: int = ..., *, name: str | None = ..., context: bool = ...
    ) -> Callable[[Callable[..., Any]], TaskWrapper]: ...
    def dequeue(self) -> Task | None: ...
    def enqueue(self, task: Task) -> Any: ...
    def execute(self, task: Task, timestamp: datetime | None = ...) -> Any: ...
    def put(self, key: str, data: Any) -> Any: ...
    def lock_task(self, lock_name: str) -> Any: ...

def crontab(
    minute: str = ..., hour: str = ..., day: str = ..., month: str = ..., day_of_week: str = ..., strict: bool = ...
) -> Callable[[datetime], bool]: ...
