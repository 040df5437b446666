"""The sealer of this deployment, on the master keys that the settings name."""

from infra.sealing import AesGcmSealer, load_master_keys
from streams.settings import Settings


def open_sealer(settings: Settings) -> AesGcmSealer:
    """The sealer; KeysError, which says what to do, when the master keys cannot be read."""
    inline = settings.master_keys.get_secret_value() if settings.master_keys else None
    return AesGcmSealer(load_master_keys(settings.keys_path, inline))
