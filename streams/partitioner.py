"""Where a record belongs: murmur2 of the user id, as Kafka's own clients place it (design, section 2)."""

from aiokafka.partitioner import murmur2


def partition_for(user_id: str, partitions: int) -> int:
    """The partition of a user, for every topic; equal to what Java, `murmur2_random` and aiokafka choose."""
    return int((murmur2(user_id.encode()) & 0x7FFFFFFF) % partitions)
