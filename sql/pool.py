"""The connection pool: codecs, search path, and which errors mean that PostgreSQL is away."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import orjson
from pgvector.asyncpg import register_vector

from models.store_errors import StoreRejected, StoreUnavailable

Pool = asyncpg.Pool
Connection = asyncpg.Connection


# Every query of ours begins with a scope and looks the rest up by key. Left to its estimates the planner
# reads the vectors and tokens of all users for a large scope, and changes its mind at the sixth run of a
# statement; so the one plan that is right at every size is fixed, and planned once a connection. Where two
# materialised scopes meet they are hashed; look-ups by key are written so that they stay look-ups.
_PLANNER = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "work_mem": "16MB",
}


async def _prepare(connection: Connection) -> None:
    await register_vector(connection)
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: b"\x01" + orjson.dumps(value),
        decoder=lambda data: orjson.loads(data[1:]),
        format="binary",
    )


async def create_pool(
    dsn: str, *, schema: str = "memory", min_size: int = 0, max_size: int = 8, command_timeout: float = 60
) -> Pool:
    """A pool whose connections see `schema` first. Nothing is connected yet, unless `min_size` asks for it:
    then StoreUnavailable when PostgreSQL cannot be reached."""
    with store_errors():
        return await asyncpg.create_pool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            command_timeout=command_timeout,
            timeout=5,
            init=_prepare,
            server_settings={
                "search_path": f"{schema}, public",
                "application_name": "keepsake",
                **_PLANNER,
            },
        )


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn the driver's errors into StoreUnavailable and StoreRejected; any other is a fault of ours.

    Their messages are left out: PostgreSQL quotes values in them.
    """
    try:
        yield
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        raise StoreRejected(type(error).__name__) from None
    except (
        OSError,
        TimeoutError,
        asyncpg.PostgresConnectionError,
        asyncpg.OperatorInterventionError,  # shut down, crashed, starting up
        asyncpg.InsufficientResourcesError,
        asyncpg.InternalServerError,
        asyncpg.ReadOnlySQLTransactionError,  # a standby that was not promoted yet
        asyncpg.TransactionRollbackError,  # deadlock, serialisation
    ) as error:
        raise StoreUnavailable(type(error).__name__) from error
    except asyncpg.InterfaceError as error:
        if isinstance(error, ValueError):  # values that the driver itself cannot encode
            raise StoreRejected(type(error).__name__) from None
        raise StoreUnavailable(type(error).__name__) from error
