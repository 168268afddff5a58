"""The errors that a user is meant to see."""


class UserError(Exception):
    """One line for the user: what is wrong, where, and what to do.

    Commands print it as `kquota: <message>` and exit 1; it never comes with a traceback.
    """


class UnreachableError(UserError):
    """A server that may answer later: who has its last answer can go on with that, and has to say so."""
