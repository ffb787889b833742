"""Exceptions, by whose fault it is."""


class Error(Exception):
    """Something that posse refused. Nothing has changed."""


class InputError(Error, ValueError):
    """The caller passed arms, rewards or numbers of agents that no algorithm can use."""


class ConfigError(Error, ValueError):
    """A setting has a name or a value that it cannot have. The text is the command's."""


class ProtocolError(Error):
    """A peer said something that its protocol does not allow."""


class DecodeError(ProtocolError, ValueError):
    """Bytes that are no message or state of posse."""


class ExperimentError(Error):
    """An experiment could not be run, or results could not be read."""


class ConnectError(Error, ConnectionError):
    """A live agent cannot reach its coordinator, was refused by it, or cannot go on."""


class Violation(Error, AssertionError):
    """An algorithm breaks a promise of the conformance suite."""
