"""The jars of Apache Kafka: pinned in kafka.lock, fetched once per user, checked by SHA-256 at every start."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import truststore
from filelock import FileLock
from jgo.maven import MavenContext

from infra.engines.processes import EngineError

LOCK_FILE = Path(__file__).with_name("kafka.lock")
DOWNLOADS = 6
TIMEOUT_SECONDS = 60
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar: Maven coordinates, and the SHA-256 of the file in hexadecimal."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def pinned_jars() -> list[Jar]:
    """The lines of kafka.lock: `group:artifact:version sha256`."""
    jars = []
    for line in LOCK_FILE.read_text().splitlines():
        coordinates, digest = line.split()
        group, artifact, version = coordinates.split(":")
        jars.append(Jar(group, artifact, version, digest))
    return jars


def kafka_jars(progress: Callable[[str], None], cache: Path | None = None) -> list[Path]:
    """The paths of all jars, fetched where they are missing or damaged.

    Raises EngineError when one cannot be fetched, or is not what was pinned.
    """
    folder = cache or Path(platformdirs.user_cache_dir("keepsake")) / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    jars = pinned_jars()
    # Two first starts at once would write the same files.
    with FileLock(folder / ".lock"):
        missing = [jar for jar in jars if not _is_good(folder / jar.file_name, jar)]
        if missing:
            progress(f"fetching Apache Kafka: {len(missing)} jars, once per user")
            _fetch_all(missing, folder, progress)
    return [folder / jar.file_name for jar in jars]


def _fetch_all(jars: list[Jar], folder: Path, progress: Callable[[str], None]) -> None:
    context = MavenContext(repo_cache=folder / ".maven", timeout=TIMEOUT_SECONDS)
    with _system_certificates(), ThreadPoolExecutor(DOWNLOADS) as pool:
        waiting = [pool.submit(_fetch, context, jar, folder) for jar in jars]
        for done, future in enumerate(as_completed(waiting), 1):
            future.result()
            if done % 10 == 0 or done == len(jars):
                progress(f"  {done} of {len(jars)} jars")
    shutil.rmtree(folder / ".maven", ignore_errors=True)


@contextmanager
def _system_certificates() -> Iterator[None]:
    """The certificates of the operating system, as pip does: behind a company's proxy the bundled ones do not do.

    For as long as needed only: libraries that hold the `ssl` module's own class (botocore) fail beside the other.
    """
    truststore.inject_into_ssl()
    try:
        yield
    finally:
        truststore.extract_from_ssl()


def _fetch(context: MavenContext, jar: Jar, folder: Path) -> None:
    failure: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
            found = Path(artifact.resolve())
        except Exception as error:  # noqa: BLE001 - jgo lets errors of several HTTP libraries through
            failure = error
            continue
        if not _is_good(found, jar):
            found.unlink()
            failure = EngineError("its SHA-256 is not the pinned one")
            continue
        temporary = folder / f".{jar.file_name}.part"
        shutil.copyfile(found, temporary)
        temporary.replace(folder / jar.file_name)
        return
    raise EngineError(
        f"cannot fetch {jar.group}:{jar.artifact}:{jar.version} ({failure}): check that Maven Central can be "
        "reached, or set KEEPSAKE_KAFKA_BOOTSTRAP to a broker of your own"
    )


def _is_good(path: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False
