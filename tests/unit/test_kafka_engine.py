"""The local broker's configuration."""

from infra.engines.kafka import _cluster_id


def test_no_cluster_id_looks_like_an_option() -> None:
    # One in 64 would: enough of them that a leading dash cannot hide.
    made = {_cluster_id() for _ in range(2_000)}
    assert len(made) == 2_000
    assert {len(one) for one in made} == {22}
    assert not [one for one in made if one.startswith("-")]
