"""`keepsake engines tool`: Kafka's own command-line tools, from the jars of the local broker."""

import os
from enum import StrEnum

import typer

from streams.cli.common import load_settings


class Tool(StrEnum):
    """The tools, named as the scripts of a Kafka download are."""

    console_producer = "console-producer"
    console_consumer = "console-consumer"
    consumer_groups = "consumer-groups"
    topics = "topics"


_CLASSES = {
    Tool.console_producer: "org.apache.kafka.tools.ConsoleProducer",
    Tool.console_consumer: "org.apache.kafka.tools.consumer.ConsoleConsumer",
    Tool.consumer_groups: "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    Tool.topics: "org.apache.kafka.tools.TopicCommand",
}


def tool(context: typer.Context, name: Tool) -> None:
    """Run one of Kafka's own tools on our broker; what follows its name is passed on to it.

    Example: keepsake engines tool topics --describe --topic chat.message
    """
    from infra.engines.kafka import console_command
    from streams.places import kafka_bootstrap

    command = console_command(
        _CLASSES[name], "--bootstrap-server", kafka_bootstrap(load_settings()), *context.args
    )
    os.execv(command[0], command)  # noqa: S606  # replaces this process: signals and exit code are the tool's


def add_to(app: typer.Typer) -> None:
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(tool)
