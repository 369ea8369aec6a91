"""Objects of a store such as S3, through `obstore` (``pip install 'trailmark[object-store]'``).

"Publish if absent" is the store's own conditional put. A put is whole or absent and lasts once it
is acknowledged, so there is nothing to sync and no temporary to clean. An answer can be lost, and
the client repeats the put, which then finds its own object: so bytes are compared before an object
is taken for another's.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from trailmark.errors import NoPermission, StorageError, Unreachable
from trailmark.log.storage.object_client import connect, first_line, import_obstore
from trailmark.log.storage.paths import aside_path, check_path, split_path
from trailmark.log.storage.protocol import Entry, Part, is_made_of
from trailmark.log.storage.providers import Provider

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_T = TypeVar("_T")

#: Arrow wants columns to begin at multiples of this; uncompressed ones are used where they lie.
_ALIGNMENT = 64


def open_object_store(
    url: str, provider: Provider, patience_us: int | None = None
) -> ObjectStorage:
    """Storage below a URL of a provider; the usual variables say how to get there.

    Of ``s3://`` these are ``AWS_...``: ``AWS_ENDPOINT_URL`` names a store other than Amazon's,
    ``AWS_ALLOW_HTTP=true`` lets it be reached without TLS, ``AWS_TIMEOUT`` says how long one
    request may take if ``patience_us`` does not. Of ``gs://`` they are ``GOOGLE_...``, of ``az://``
    ``AZURE_...``.
    """
    return ObjectStorage(connect(url, provider, patience_us), url, has_tails=provider.has_tails)


class ObjectStorage:
    """Implements `Storage` on an obstore store, whose own prefix is the root."""

    def __init__(self, store: ObjectStore, url: str = "", *, has_tails: bool = True) -> None:
        self._store = store
        self._has_tails = has_tails
        self._url = url or repr(store)
        self._api = import_obstore()

    def publish(self, path: str, parts: Sequence[Part], *, force_sync: bool = False) -> bool:
        del force_sync  # an acknowledged put lasts
        try:
            with self._translated("publish the object", path, missing_is_fault=True):
                self._put(path, parts, "create")
        except self._api.exceptions.AlreadyExistsError as error:
            failure = self._gone_since(path, error)
        except StorageError as error:
            failure = error
        else:
            return True
        try:
            return self._holds(path, parts)
        except (FileNotFoundError, StorageError):
            raise failure from None  # whose it was cannot be found out

    def replace(self, path: str, parts: Sequence[Part]) -> None:
        with self._translated("replace the object", path, missing_is_fault=True):
            self._put(path, parts, "overwrite")

    def settle(self, path: str) -> None:
        self.size(path)  # what can be seen lasts; all that is left to do is to look

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        assert offset >= 0
        if length is None and offset == 0:
            return self._get(path, None)[0]
        wanted = {"offset": offset} if length is None else (offset, offset + length)
        try:
            return self._get(path, wanted)[0]
        except StorageError:
            # An empty range, or one behind the end, is an error to the store; here it is nothing.
            if length != 0 and self.size(path) > offset:
                raise
            return memoryview(b"")

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        assert length > 0
        if self._has_tails:
            return self._get(path, {"suffix": length})
        size = self.size(path)
        if size == 0:
            return memoryview(b""), 0  # an empty range is an error to the store
        return self._get(path, (max(0, size - length), size))

    def size(self, path: str) -> int:
        with self._translated("look at the object", path):
            return int(self._repeated(self._api.head, check_path(path))["size"])

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, directory: str) -> builtins.list[Entry]:
        prefix = check_path(directory) if directory else None
        with self._translated("list the objects", directory):
            found = self._repeated(self._api.list_with_delimiter, prefix)["objects"]
        entries = (Entry(split_path(each["path"])[1], each["size"]) for each in found)
        return sorted(entries, key=lambda entry: entry.name)

    def directories(self, directory: str) -> builtins.list[str]:
        prefix = check_path(directory) if directory else None
        with self._translated("list the objects", directory):
            found = self._repeated(self._api.list_with_delimiter, prefix)["common_prefixes"]
        return sorted(split_path(each.rstrip("/"))[1] for each in found)

    def delete(self, path: str, *, synced: bool = True) -> None:
        del synced  # an acknowledged deletion lasts
        try:
            with self._translated("delete the object", path):
                self._repeated(self._api.delete, check_path(path))
        except FileNotFoundError:
            return

    def recycle(self, path: str) -> None:
        self.delete(path)  # objects cannot be written over in part

    def set_aside(self, path: str) -> str:
        content = self.read(path)
        earlier = 0
        while not self.publish(aside_path(path, earlier), [content]):
            earlier += 1
        self.delete(path)
        return aside_path(path, earlier)

    def clean(self, directory: str) -> builtins.list[str]:
        if directory:
            check_path(directory)
        return []

    def _put(self, path: str, parts: Sequence[Part], mode: str) -> None:
        # One request: a put in several has no condition "if absent".
        pieces = [piece for piece in parts if len(piece)]

        def put(store: ObjectStore, path: str) -> None:
            self._api.put(store, path, iter(pieces), mode=mode, use_multipart=False)

        self._repeated(put, check_path(path))

    def _get(self, path: str, wanted: Any) -> tuple[memoryview, int]:
        options = None if wanted is None else {"range": wanted}

        def get(store: ObjectStore, path: str) -> tuple[memoryview, int]:
            result = self._api.get(store, path, options=options)
            return _aligned(pa.py_buffer(result.bytes())), int(result.meta["size"])

        with self._translated("read the object", path):
            return self._repeated(get, check_path(path))

    def _repeated(self, request: Callable[[ObjectStore, Any], _T], path: str | None) -> _T:
        """What the store answers. A request that failed on its way is sent once more.

        The client itself repeats only what it can do so safely: not a put that took too long, nor
        a listing whose answer was cut short.
        """
        try:
            return request(self._store, path)
        except self._api.exceptions.GenericError:
            return request(self._store, path)

    def _holds(self, path: str, parts: Sequence[Part]) -> bool:
        size = sum(memoryview(part).nbytes for part in parts)
        return self.size(path) == size and is_made_of(self.read(path), parts)

    def _gone_since(self, path: str, error: Exception) -> StorageError:
        failure = StorageError(
            "Could not publish the object: one was there, and gone before it could be compared.",
            where=self._where(path),
            fix="Start again: everything published before is whole.",
        )
        failure.__cause__ = error
        return failure

    def _where(self, path: str) -> str:
        return f"{self._url.rstrip('/')}/{path}"

    @contextmanager
    def _translated(
        self, action: str, path: str, *, missing_is_fault: bool = False
    ) -> Iterator[None]:
        errors = self._api.exceptions
        where = self._where(path)
        try:
            yield
        except errors.AlreadyExistsError:
            raise
        except FileNotFoundError as error:
            if not missing_is_fault:
                raise
            raise StorageError(
                f"Could not {action}: the store has no such bucket.",
                where=where,
                fix="Create the bucket, or correct the path.",
            ) from error
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise NoPermission(
                f"Could not {action}: {first_line(error)}",
                where=where,
                fix="Give these credentials the right to get, put, list and delete objects.",
            ) from error
        except errors.BaseError as error:
            # What the client has no other word for is about the way to the store, or the store.
            kind = Unreachable if isinstance(error, errors.GenericError) else StorageError
            raise kind(
                f"Could not {action}: {first_line(error)}",
                where=where,
                fix="Look at the state of the store and the way to it, then start again: "
                "everything published before is whole.",
            ) from error


def _aligned(buffer: pa.Buffer) -> memoryview:
    if buffer.address % _ALIGNMENT:
        copy = pa.allocate_buffer(buffer.size)
        memoryview(copy).cast("B")[:] = memoryview(buffer).cast("B")
        buffer = copy
    return memoryview(buffer).cast("B").toreadonly()
