"""The command line, `keepsake`: one module a topic. Commands import what they use when they run, so that
`--help` is quick."""
